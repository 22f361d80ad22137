"""Starter flow file of `init`, which needs no model and no API."""
