"""Assembly of the MCP server."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from loom_agent.introduction import introduction
from loom_agent.mcp_tools.prompts import register_prompts
from loom_agent.mcp_tools.resources import register_resources
from loom_agent.mcp_tools.tools import register_read_only_tools, register_run_tools
from loom_agent.service import AgentService
from loom_core.server.protocol.factory import LoomServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from loom_agent.settings import Settings

__all__ = ["build"]


def build(settings: Settings) -> LoomServer:
    """Build the server; it reads no run and connects nothing before the first call that needs it.

    Raises:
        ConfigError: the configuration cannot be read.
    """
    service = AgentService(settings)
    if settings.config_given or settings.config.exists():
        service.load()

    @asynccontextmanager
    async def lifespan() -> AsyncGenerator[None]:
        async with service:
            yield

    server = LoomServer.from_introduction(introduction(settings), home=settings.home, lifespan=lifespan)
    register_run_tools(server, service)
    register_read_only_tools(server, service)
    register_resources(server, service)
    register_prompts(server, service)
    return server
