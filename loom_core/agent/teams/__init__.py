"""Several agents: chains, routers, workflows and agents as tools."""
