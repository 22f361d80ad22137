"""Runs as a server shows them: models, resources and pages."""
