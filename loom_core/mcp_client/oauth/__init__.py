"""OAuth 2.1 for requests to MCP servers: login, renewal and stored tokens."""
