"""Transports of a server: stdio and HTTP, with sessions and limits."""
