"""A server that says of its tools what servers/*/contract.json says: what others read the contract from.

recorded_server.py CONTRACT SURFACE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
from mcp import types
from mcp.server import Server
from mcp.server.stdio import stdio_server


def recorded(contract: Path, surface: str) -> Server[object]:
    """The server, which lists tools and can do nothing."""
    tools = json.loads(contract.read_text(encoding="utf-8"))[surface]["tools"]
    listed = types.ListToolsResult.model_validate({"tools": tools})

    async def list_tools(*_: object) -> types.ListToolsResult:
        return listed

    return Server("recorded", on_list_tools=list_tools)


async def main() -> None:
    server = recorded(Path(sys.argv[1]), sys.argv[2])
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
