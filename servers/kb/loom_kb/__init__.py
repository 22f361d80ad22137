"""The loom-kb MCP server: a GraphRAG knowledge base."""

from __future__ import annotations

__all__ = ["PROGRAM"]

PROGRAM = "loom-kb"
"""The command, and the distribution's name."""
