"""Models that are asked by Anthropic's messages format: Claude, and servers that speak the same."""
