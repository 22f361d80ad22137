"""MCP client: configuration, connections, and the servers' tools as tools of Loom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.mcp_client.callbacks import Callbacks, SamplingRequest, SamplingResult, SamplingTurn
    from loom_core.mcp_client.client import HttpClient, MCPClient, StdioClient
    from loom_core.mcp_client.configuration.server_config import ServerConfig
    from loom_core.mcp_client.registry import MCPToolRegistry, ServerStatus
    from loom_core.mcp_client.tools.tool import MCPTool, ServerTool

__all__ = [
    "Callbacks",
    "HttpClient",
    "MCPClient",
    "MCPTool",
    "MCPToolRegistry",
    "SamplingRequest",
    "SamplingResult",
    "SamplingTurn",
    "ServerConfig",
    "ServerStatus",
    "ServerTool",
    "StdioClient",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
