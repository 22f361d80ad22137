"""Loaders of office formats: documents, slides, spreadsheets."""
