"""The loom-agent-server MCP server: an agent whose runs outlive the calls that start them."""

from __future__ import annotations

__all__ = ["PROGRAM"]

PROGRAM = "loom-agent-server"
"""The command, and the distribution's name."""
