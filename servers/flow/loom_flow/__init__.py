"""Flows as an MCP server: conversations that follow rules, and steps that survive restarts."""
