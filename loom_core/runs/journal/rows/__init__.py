"""The tables of a journal: schema, and rows of runs, commands, events and sessions."""
