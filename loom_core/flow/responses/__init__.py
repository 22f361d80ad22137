"""Replies and phrases, in English and Chinese."""
