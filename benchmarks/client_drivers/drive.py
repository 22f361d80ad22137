"""Drive a server of Loom with an MCP client in Python, and print what it saw as one line of JSON.

    drive.py CLIENT list|use stdio COMMAND ARGUMENT…
    drive.py CLIENT list|use http URL

`benchmarks/clients.py` runs it in an environment that has the client.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

List = Callable[[], Awaitable[list[str]]]
Call = Callable[[str, dict[str, Any]], Awaitable[str]]

NOTE = {"text": "# 青岛港\n\n青岛港的港长是李明。", "source": "知识库"}
ID = re.compile(r'(?: id=|"id": ")([^\s"]+)')


def text_of(content: object) -> str:
    """The text of a tool's answer, whatever a client makes of it."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return content["text"] if "text" in content else json.dumps(content, ensure_ascii=False)
    if isinstance(content, list | tuple):
        return "\n".join(map(text_of, content))
    return getattr(content, "text", "") or str(content)


@asynccontextmanager
async def fastmcp(transport: str, target: list[str]) -> AsyncGenerator[tuple[List, Call]]:
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    environment = dict(os.environ)
    wire = target[0] if transport == "http" else StdioTransport(target[0], target[1:], env=environment)
    async with Client(wire) as client:

        async def names() -> list[str]:
            return [tool.name for tool in await client.list_tools()]

        async def call(name: str, arguments: dict[str, Any]) -> str:
            return text_of((await client.call_tool(name, arguments)).content)

        yield names, call


@asynccontextmanager
async def langchain(transport: str, target: list[str]) -> AsyncGenerator[tuple[List, Call]]:
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    stdio = {"transport": "stdio", "command": target[0], "args": target[1:], "env": dict(os.environ)}
    http = {"transport": "streamable_http", "url": target[0]}
    client = MultiServerMCPClient({"loom": http if transport == "http" else stdio})
    async with client.session("loom") as session:
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}

        async def names() -> list[str]:
            return list(tools)

        async def call(name: str, arguments: dict[str, Any]) -> str:
            return text_of(await tools[name].ainvoke(arguments))

        yield names, call


@asynccontextmanager
async def openai_agents(transport: str, target: list[str]) -> AsyncGenerator[tuple[List, Call]]:
    from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

    if transport == "http":
        server = MCPServerStreamableHttp({"url": target[0]}, client_session_timeout_seconds=60)
    else:
        params = {"command": target[0], "args": target[1:], "env": dict(os.environ)}
        server = MCPServerStdio(params, client_session_timeout_seconds=60)
    async with server:

        async def names() -> list[str]:
            return [tool.name for tool in await server.list_tools()]

        async def call(name: str, arguments: dict[str, Any]) -> str:
            return text_of((await server.call_tool(name, arguments)).content)

        yield names, call


@asynccontextmanager
async def pydantic_ai(transport: str, target: list[str]) -> AsyncGenerator[tuple[List, Call]]:
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai.mcp import MCPToolset

    environment = dict(os.environ)
    wire = target[0] if transport == "http" else StdioTransport(target[0], target[1:], env=environment)
    # Its own 5 s are for the probe and the handshake together, and a server on the SDK is probed for longer.
    async with MCPToolset(wire, init_timeout=60) as toolset:

        async def names() -> list[str]:
            return [tool.name for tool in await toolset.list_tools()]

        async def call(name: str, arguments: dict[str, Any]) -> str:
            return text_of(await toolset.direct_call_tool(name, arguments))

        yield names, call


@asynccontextmanager
async def mcp_use(transport: str, target: list[str]) -> AsyncGenerator[tuple[List, Call]]:
    from mcp_use import MCPClient

    stdio = {"command": target[0], "args": target[1:], "env": dict(os.environ)}
    entry = {"url": target[0]} if transport == "http" else stdio
    client = MCPClient({"mcpServers": {"loom": entry}})
    session = await client.create_session("loom")
    try:

        async def names() -> list[str]:
            return [tool.name for tool in await session.list_tools()]

        async def call(name: str, arguments: dict[str, Any]) -> str:
            return text_of((await session.call_tool(name, arguments)).content)

        yield names, call
    finally:
        await client.close_all_sessions()


CLIENTS = {
    "fastmcp": fastmcp,
    "langchain-mcp-adapters": langchain,
    "openai-agents": openai_agents,
    "pydantic-ai": pydantic_ai,
    "mcp-use": mcp_use,
}


async def main() -> None:
    """Read the command line, drive and print."""
    name, mode, transport, *target = sys.argv[1:]
    async with CLIENTS[name](transport, target) as (names, call):
        seen: dict[str, Any] = {"tools": await names()}
        if mode == "use":
            added = await call("add", NOTE)
            await call("job", {"id": added.split()[0], "action": "wait"})  # a busy machine needs longer
            seen["found"] = await call("query", {"query": "谁是青岛港的港长？"})
            if id_ := ID.search(seen["found"]):
                seen["fetched"] = await call("fetch", {"id": id_[1]})
    sys.stdout.write(json.dumps(seen, ensure_ascii=False) + "\n")


asyncio.run(main())
