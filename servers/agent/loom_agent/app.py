"""Putting the server together."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from loom_agent.introduction import introduction
from loom_agent.mcp_tools.prompts import register_prompts
from loom_agent.mcp_tools.read_only_tools import register_looking_tools
from loom_agent.mcp_tools.resources import register_resources
from loom_agent.mcp_tools.tools import register_run_tools
from loom_agent.service import Service
from loom_core.paths import audit_path
from loom_core.server.calls.request_state import state_keys
from loom_core.server.protocol.factory import LoomServer
from loom_core.tools.auditing.audit import AuditLog

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from loom_agent.settings import Settings

__all__ = ["build"]


def build(settings: Settings) -> LoomServer:
    """Make the server; no run is looked at and nothing connected before the first call that needs it.

    Raises:
        ConfigError: the configuration cannot be read.
    """
    service = Service(settings)
    if settings.config_given or settings.config.exists():
        service.load()

    @asynccontextmanager
    async def lifespan() -> AsyncGenerator[None]:
        async with service:
            yield

    told = introduction(settings)
    server = LoomServer(
        told.name,
        version=told.version,
        title=told.title,
        instructions=told.instructions,
        lifespan=lifespan,
        state_keys=partial(state_keys, settings.home),
        audit=AuditLog(audit_path(settings.home), server=told.name),
    )
    register_run_tools(server, service)
    register_looking_tools(server, service)
    register_resources(server, service)
    register_prompts(server, service)
    return server
