"""Configuration of a source that is a search tool of an MCP server."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from loom_core.knowledge.sources.remote.mcp_search import MCPKnowledgeConfig

__all__ = ["McpConfig"]


class McpConfig(MCPKnowledgeConfig):
    """A search tool of an MCP server."""

    server: Annotated[str, Field(min_length=1)] | dict[str, Any] = Field(
        repr=False, description="A server's name in mcp.json, or an entry as it would stand there."
    )
