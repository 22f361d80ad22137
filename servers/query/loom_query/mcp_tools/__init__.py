"""Tools that MCP clients see."""
