"""Putting the server together."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from loom_core.errors import ConfigError
from loom_core.server.protocol.factory import LoomServer
from loom_flow.introduction import introduction
from loom_flow.mcp_tools.flow_tools import register_flow_tools
from loom_flow.mcp_tools.prompts import register_prompts
from loom_flow.mcp_tools.read_only_tools import register_looking_tools
from loom_flow.mcp_tools.resources import register_resources
from loom_flow.mcp_tools.tools import register_talking_tools
from loom_flow.service import Service
from loom_flow.watching import watch_flows

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from loom_flow.settings import Settings

__all__ = ["build"]

_log = logging.getLogger(__name__)


def build(settings: Settings) -> LoomServer:
    """Make the server; nothing is asked, and no run looked at, before the first call that needs it.

    A flow file that is wrong, or not there, keeps no server from starting: every tool says what to mend, and
    the file is used as soon as that is done.
    """
    service, problem = Service(settings), ""
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

    server = LoomServer.introduced(introduction(settings), home=settings.home, lifespan=lifespan)
    register_talking_tools(server, service)
    register_looking_tools(server, service)
    register_flow_tools(server, service)
    register_resources(server, service)
    register_prompts(server, service)
    return server
