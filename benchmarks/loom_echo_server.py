"""The same tools as those of `echo_server.py`, by Loom's factory and over Loom's transports.

python benchmarks/loom_echo_server.py [http PORT]
"""

from __future__ import annotations

import logging
import sys
import time

from pydantic import BaseModel

from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.serving.http_settings import HttpSettings
from loom_core.server.serving.run import serve


class Text(BaseModel):
    """The echoed text."""

    result: str


class Seconds(BaseModel):
    """How long."""

    result: float


async def echo(text: str) -> ToolReply[Text]:
    """Give a text back."""
    return tool_result(text, Text(result=text))


async def worked() -> ToolReply[Seconds]:
    """Seconds of processor time that this process has taken."""
    return tool_result("", Seconds(result=time.process_time()))


def echo_server() -> LoomServer:
    """The server with both tools."""
    server = LoomServer("echo", version="1", title="Echo")
    for tool in (echo, worked):
        title = tool.__name__.title()
        server.tool(title=title, read_only=True, destructive=False, idempotent=True, open_world=False)(tool)
    return server


if __name__ == "__main__":
    http = HttpSettings(port=int(sys.argv[2])) if sys.argv[1:2] == ["http"] else None
    serve(echo_server, http=http, log_level=logging.WARNING)
