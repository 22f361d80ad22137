"""Self-contained HTML pages, without network requests."""
