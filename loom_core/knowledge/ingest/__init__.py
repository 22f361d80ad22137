"""Ingest: list, load, chunk, extract, write, link."""
