"""Flows as an MCP server: conversations that follow rules, and steps that survive restarts."""

from __future__ import annotations

__all__ = ["PROGRAM"]

PROGRAM = "loom-flow-server"
"""The command, and the distribution's name."""
