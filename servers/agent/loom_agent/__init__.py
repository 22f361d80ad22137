"""The loom-agent-server MCP server: an agent whose runs outlive the calls that start them."""
