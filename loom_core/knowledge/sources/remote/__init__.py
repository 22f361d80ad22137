"""Remote sources: HTTP APIs and MCP servers."""
