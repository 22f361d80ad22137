"""Loaders of text formats: documents with markup, PDF, EPUB, e-mail, notebooks, JSON, source code."""
