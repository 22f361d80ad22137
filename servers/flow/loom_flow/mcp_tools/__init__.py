"""Tools, prompts and resources that MCP clients see."""
