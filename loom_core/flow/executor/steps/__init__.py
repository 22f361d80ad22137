"""Execution of a flow's steps, by kind."""
