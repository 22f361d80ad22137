"""Validate a flow file beyond its schema: references, steps and endpoints."""
