"""The loom-query-server MCP server: one search over knowledge wherever it lives."""

__all__ = ["PROGRAM"]

PROGRAM = "loom-query-server"
"""The command, and the distribution's name."""
