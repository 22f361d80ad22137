"""Maintenance of a knowledge base: check, repair, rebuild, export and import."""
