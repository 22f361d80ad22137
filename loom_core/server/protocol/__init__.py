"""The server side of MCP: tools, resources, prompts, completions, notifications and the handshake."""
