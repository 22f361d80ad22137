"""Build the server, and tell its clients when the flow file has changed what there is."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from loom_core.errors import ConfigError, LoomError
from loom_core.server.protocol.factory import LoomServer
from loom_flow.introduction import introduction
from loom_flow.mcp_tools.prompts import register_prompts
from loom_flow.mcp_tools.read_only_tools import register_read_only_tools
from loom_flow.mcp_tools.resources import register_resources
from loom_flow.mcp_tools.tools import register_conversation_tools, register_flow_tools
from loom_flow.service import FlowService

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from loom_flow.settings import Settings

__all__ = ["build", "watch_flows"]


def build(settings: Settings) -> LoomServer:
    """Make the server; nothing is asked, and no run looked at, before the first call that needs it.

    A flow file that is wrong, or not there, keeps no server from starting: every tool says what to mend, and
    the file is used as soon as that is done.
    """
    service, problem = FlowService(settings), ""
    try:
        service.load()
    except ConfigError as error:
        problem = str(error)
        _log.warning("there is no flow yet: %s", problem)

    @asynccontextmanager
    async def lifespan() -> AsyncGenerator[None]:
        async with service, anyio.create_task_group() as tasks:
            tasks.start_soon(watch_flows, server, service, problem)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    server = LoomServer.from_introduction(introduction(settings), home=settings.home, lifespan=lifespan)
    register_conversation_tools(server, service)
    register_read_only_tools(server, service)
    register_flow_tools(server, service)
    register_resources(server, service)
    register_prompts(server, service)
    return server


_LOOK_SECONDS = 2.0


async def watch_flows(server: LoomServer, service: FlowService, said: str = "") -> None:
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


_log = logging.getLogger(__name__)
