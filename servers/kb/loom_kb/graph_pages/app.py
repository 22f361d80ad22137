"""The graph as an MCP App: hosts with `io.modelcontextprotocol/ui` show it next to the tool's result.

The page is the same for every call; the host gives it the result and may let it call `graph` and `fetch`.
Other hosts show the text of the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio import to_thread

from loom_core.server.protocol.resources import ResourceContent

if TYPE_CHECKING:
    from loom_core.server.protocol.factory import LoomServer

__all__ = ["APP_MIME_TYPE", "GRAPH_APP", "GRAPH_TOOL_META", "register_graph_app"]

GRAPH_APP = "ui://loom-kb/graph"
"""URI of the page."""

APP_MIME_TYPE = "text/html;profile=mcp-app"
"""Media type of an MCP App page."""

GRAPH_TOOL_META: dict[str, Any] = {"ui": {"resourceUri": GRAPH_APP}}
"""Metadata of the tool that refers to the page."""

# The page makes no network request, needs no camera, and wants a border.
_META: dict[str, Any] = {"ui": {"csp": {}, "prefersBorder": True}}
_FRESH = 300.0  # seconds


def register_graph_app(server: LoomServer) -> None:
    """Register the page as a resource. It is built when a host reads it."""

    @server.resource(
        GRAPH_APP,
        name="graph_app",
        title="Graph",
        description="The page that shows what the tool `graph` answers.",
        mime_type=APP_MIME_TYPE,
        ttl_seconds=_FRESH,
        listed=False,
    )
    async def graph_app() -> ResourceContent:
        from loom_kb.graph_pages.page import graph_app_html

        return ResourceContent(await to_thread.run_sync(graph_app_html), APP_MIME_TYPE, _META)
