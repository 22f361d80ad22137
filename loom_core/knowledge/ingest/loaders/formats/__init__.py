"""Loaders of text formats: HTML, EPUB, PDF, man pages, Markdown, JSON, source code."""
