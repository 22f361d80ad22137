"""The graph as a page and as an MCP App."""
