"""Tools and prompts that MCP clients see."""
