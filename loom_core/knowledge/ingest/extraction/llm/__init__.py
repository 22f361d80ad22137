"""Extraction of entities and relations by a language model."""
