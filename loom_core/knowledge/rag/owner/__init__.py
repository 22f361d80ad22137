"""How processes that share a knowledge base talk to its owner, the one that works."""
