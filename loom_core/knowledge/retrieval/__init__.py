"""Retrieval: channels, fusion, link expansion, strategies, retrievers, rerankers, generation."""
