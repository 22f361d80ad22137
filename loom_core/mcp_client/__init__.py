"""Other MCP servers, as a client: what is configured, the connections, and their tools as Loom's own."""

from __future__ import annotations

__all__: list[str] = []
