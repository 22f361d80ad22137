"""The runtime of a flow server: its parts, hot reload, effects and execution."""
