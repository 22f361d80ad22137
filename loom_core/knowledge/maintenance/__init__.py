"""Looking after a knowledge base: check and repair, rebuild, export and import, another embedder."""
