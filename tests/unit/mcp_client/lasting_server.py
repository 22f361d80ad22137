"""A server of the modern era whose lists and resources may be kept for a minute; it counts its answers."""

from __future__ import annotations

from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    ListResourcesResult,
    ListToolsResult,
    ReadResourceRequestParams,
    ReadResourceResult,
    TextResourceContents,
    Tool,
)

_MINUTE = 60_000
_reads: list[str] = []


async def _list_tools(_context: Any, _params: Any) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="a", input_schema={"type": "object"})], ttl_ms=_MINUTE)


async def _list_resources(_context: Any, _params: Any) -> ListResourcesResult:
    return ListResourcesResult(resources=[], ttl_ms=_MINUTE)


async def _read_resource(_context: Any, params: ReadResourceRequestParams) -> ReadResourceResult:
    _reads.append(params.uri)
    content = TextResourceContents(uri=params.uri, text=f"read {len(_reads)}")
    return ReadResourceResult(contents=[content], ttl_ms=_MINUTE)


async def _serve() -> None:
    server: Server[Any] = Server(
        "lasting",
        version="1",
        on_list_tools=_list_tools,
        on_list_resources=_list_resources,
        on_read_resource=_read_resource,
    )
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(_serve)
