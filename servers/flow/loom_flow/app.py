"""The MCP server, and notifications to its clients when the flow file changes."""

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
    """Build the server; nothing is loaded before the first call that needs it.

    An invalid or missing flow file does not prevent the start: every tool reports what to correct, and the
    file is loaded as soon as it is valid.
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
    """Poll the file, reload it after a change, and notify clients, until cancelled.

    An invalid file changes nothing: the last valid one stays in use, and `flow_list` reports the problem.

    Args:
        server: notifies its clients.
        service: the service with the file.
        said: the known problem of the file, which is already logged.
    """
    while True:
        await anyio.sleep(_LOOK_SECONDS)
        try:
            changed = await service.reload_if_changed()
        except LoomError as error:
            if str(error) != said:
                said = str(error)
                _log.warning("the flow file is not in use: %s", error)
            continue
        said = ""
        if changed:
            await server.tools_changed()
            await server.resources_changed()


_log = logging.getLogger(__name__)
