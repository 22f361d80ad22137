"""The loom-kb MCP server: a GraphRAG knowledge base."""
