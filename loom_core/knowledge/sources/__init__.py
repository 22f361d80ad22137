"""Knowledge sources: local, federated, HTTP, MCP; and the one search tool over them."""
