"""Loaders of text formats: HTML, EPUB, PDF, man pages, e-mail, Markdown, notebooks, JSON, source code."""
