"""Runs of agents and flows: requests, commands, the event journal, and the executor."""
