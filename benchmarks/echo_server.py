"""The least MCP server there is: one tool on the bare SDK. The yardstick of `startup.py`."""

from __future__ import annotations

from mcp.server import MCPServer

server = MCPServer("echo")


@server.tool()
async def echo(text: str) -> str:
    """Give a text back."""
    return text


if __name__ == "__main__":
    server.run()
