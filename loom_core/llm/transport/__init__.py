"""Requests over the wire: connection, streaming, and what every format shares."""
