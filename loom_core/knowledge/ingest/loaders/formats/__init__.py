"""Loaders of text formats: HTML, EPUB, PDF, man pages, Markdown, Jupyter notebooks, JSON, source code."""
