"""A server of ours over HTTP, in the test's own process."""

from __future__ import annotations

import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from loom_core.server.serving.http import serve_http
from loom_core.server.serving.http_settings import HttpSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from loom_core.server.protocol.factory import LoomServer

__all__ = ["serving"]

_LONGEST = 30.0  # seconds that a test may take


@asynccontextmanager
async def serving(server: LoomServer, settings: HttpSettings | None = None) -> AsyncGenerator[str]:
    """Serve while the block runs, unless the block ends it; gives the URL.

    Args:
        server: what is served.
        settings: how; on a free port if nothing is said.
    """
    ready = anyio.Event()
    urls: list[str] = []

    def on_ready(url: str) -> None:
        urls.append(url)
        ready.set()

    async def serve() -> None:
        await serve_http(server, settings or HttpSettings(port=0), on_ready=on_ready)
        urls.clear()

    with anyio.fail_after(_LONGEST):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            await ready.wait()
            try:
                yield urls[0]
            finally:
                if urls:
                    signal.raise_signal(signal.SIGTERM)
