"""The least MCP server there is: one tool on the bare SDK. The yardstick of `startup.py` and `server.py`.

python benchmarks/echo_server.py [http PORT]
"""

from __future__ import annotations

import sys
import time

from mcp.server import MCPServer

server = MCPServer("echo", log_level="WARNING")


@server.tool()
async def echo(text: str) -> str:
    """Give a text back."""
    return text


@server.tool()
async def worked() -> float:
    """Seconds of processor time that this process has taken."""
    return time.process_time()


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run()
