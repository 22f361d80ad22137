"""Sources that others serve: HTTP APIs and MCP servers."""
