"""Loom: knowledge bases, models, tools and agents for the Model Context Protocol."""
