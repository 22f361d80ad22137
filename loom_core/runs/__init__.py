"""Runs, of agents and of flows: what was asked for, every step in a journal, and who drives them on."""
