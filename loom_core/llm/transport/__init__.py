"""Transport of requests: connection, streaming, and the parts common to all formats."""
