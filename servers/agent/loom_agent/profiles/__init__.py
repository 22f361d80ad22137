"""Profiles of agents: their file, models, knowledge and approvers."""
