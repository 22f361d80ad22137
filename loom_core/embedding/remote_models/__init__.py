"""Embedding models behind a network."""
