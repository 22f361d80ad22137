"""The loom-query-server MCP server: one search over knowledge wherever it lives."""
