"""Telling clients when the flow file has changed what there is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from loom_core.errors import LoomError

if TYPE_CHECKING:
    from loom_core.server.protocol.factory import LoomServer
    from loom_flow.service import Service

__all__ = ["watch_flows"]

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 2.0


async def watch_flows(server: LoomServer, service: Service, said: str = "") -> None:
    """Look at the file now and then, have a changed one used, and tell clients; until it is cancelled.

    A file that is wrong changes nothing: what was said before holds, and `flow_list` says so.

    Args:
        server: tells its clients.
        service: has the file.
        said: what is known to be wrong with the file, and in the log.
    """
    while True:
        await anyio.sleep(_LOOK_SECONDS)
        try:
            changed = await service.look()
        except LoomError as error:
            if str(error) != said:
                said = str(error)
                _log.warning("the flow file is not used: %s", error)
            continue
        said = ""
        if changed:
            await server.tools_changed()
            await server.resources_changed()
