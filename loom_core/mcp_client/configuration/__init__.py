"""Configuration of MCP servers: files, entries, expansion of variables and trust."""
