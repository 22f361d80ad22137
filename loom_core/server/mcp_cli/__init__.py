"""The command `mcp`: manage connections to other MCP servers."""
