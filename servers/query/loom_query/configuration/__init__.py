"""Configuration of sources."""
