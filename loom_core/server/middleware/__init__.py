"""Middleware around every request: authorization, audit, log context and tracing."""
