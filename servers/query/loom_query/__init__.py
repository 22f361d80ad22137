"""The loom-query-server MCP server: one search over knowledge wherever it lives."""

from __future__ import annotations

__all__ = ["PROGRAM"]

PROGRAM = "loom-query-server"
"""The command, and the distribution's name."""
