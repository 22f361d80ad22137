"""The graph as an MCP App: hosts that know `io.modelcontextprotocol/ui` show it beside the tool's answer.

The page is the same for every call; the host gives it the answer and, if it likes, lets it call `graph` and
`fetch`. All others read the answer's text as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio import to_thread

from loom_core.server.protocol.resources import ResourceContent

if TYPE_CHECKING:
    from loom_core.server.protocol.factory import LoomServer

__all__ = ["APP_MIME_TYPE", "GRAPH_APP", "GRAPH_TOOL_META", "register_graph_app"]

GRAPH_APP = "ui://loom-kb/graph"
"""The page's address."""

APP_MIME_TYPE = "text/html;profile=mcp-app"
"""The media type by which hosts know a page of an MCP App."""

GRAPH_TOOL_META: dict[str, Any] = {"ui": {"resourceUri": GRAPH_APP}}
"""What the tool's definition says of the page."""

# It asks no other machine for anything, needs no camera and brings its own borders.
_META: dict[str, Any] = {"ui": {"csp": {}, "prefersBorder": True}}
_FRESH = 300.0  # seconds


def register_graph_app(server: LoomServer) -> None:
    """Serve the page. It is read when a host shows it for the first time, and made then."""

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
