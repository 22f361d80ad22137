"""Taking over what changes while the server runs, and telling clients of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from loom_core.server.protocol.factory import LoomServer
    from loom_query.federation.sources import Sources

__all__ = ["watch_sources"]


async def watch_sources(server: LoomServer, sources: Sources, *, interval: float = 1.0) -> None:
    """Look again and again until cancelled; clients are told when the tools would be described differently.

    Args:
        server: tells its clients.
        sources: are exchanged.
        interval: seconds between two looks. As long as no file has changed, a look opens none.
    """
    told = sources.told()
    while True:
        await anyio.sleep(interval)
        await sources.refresh()
        if (now := sources.told()) != told:
            told = now
            await server.tools_changed()
