"""Embedding models: texts to vectors. Implementations are imported by `registry` when one is chosen."""
