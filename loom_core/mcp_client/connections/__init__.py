"""Connections to MCP servers: transports, lifecycle and supervisor."""
