"""The MCP server, and notifications to its clients when the flow file changes."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

import anyio

from loom_core.errors import ConfigError, InvalidInputError, LoomError
from loom_core.flow.expressions import text_of
from loom_core.flow.expressions.expression import look_up, parse_pointer
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.webhook import Webhook
from loom_flow.introduction import introduction
from loom_flow.mcp_tools.prompts import register_prompts
from loom_flow.mcp_tools.read_only_tools import register_read_only_tools
from loom_flow.mcp_tools.resources import register_resources
from loom_flow.mcp_tools.tools import register_conversation_tools, register_flow_tools
from loom_flow.service import FlowService

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from loom_core.tools.interface import JsonValue
    from loom_flow.settings import Settings

__all__ = ["build", "take_event", "watch_flows"]


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
    server.webhooks.append(Webhook("/events", partial(take_event, service)))
    register_resources(server, service)
    register_prompts(server, service)
    return server


async def take_event(
    service: FlowService, parameters: Mapping[str, str], payload: object
) -> Mapping[str, object]:
    """Take an event that another system posts, `POST /events?name=…&key=…` with its data as JSON.

    A key that begins with a slash is a JSON pointer (RFC 6901) into the data.

    Returns:
        The ids of the runs that it reached.

    Raises:
        InvalidInputError: it has no name, or the data has no such key.
        NotFoundError: no run waits for it.
    """
    name, key = parameters.get("name", ""), parameters.get("key", "")
    if not name:
        raise InvalidInputError("The event has no name.", advice="Post to /events?name=…&key=…")
    if key.startswith("/"):
        key = _value_at(payload, key)
    return {"runs": await service.send_event(name, key=key, payload=payload)}


def _value_at(payload: object, pointer: str) -> str:
    try:
        key = text_of(look_up(cast("JsonValue", payload), parse_pointer(pointer)))
    except ValueError:
        key = ""
    if not key:  # an event without a key is another one
        raise InvalidInputError(f"The data of the event has nothing at {pointer[:80]!r}.")
    return key


_LOOK_SECONDS = 2.0


async def watch_flows(server: LoomServer, service: FlowService, said: str = "") -> None:
    """Poll the file, reload it after a change, and notify clients, until cancelled.

    A call may have reloaded it meanwhile, so the flows are compared with those that clients know. An invalid
    file changes nothing: the last valid one stays in use, and `flow_list` reports the problem. `said` is the
    known problem of the file, which is already logged.
    """
    known = service.current
    while True:
        await anyio.sleep(_LOOK_SECONDS)
        try:
            await service.reload_if_changed()
        except LoomError as error:
            if str(error) != said:
                said = str(error)
                _log.warning("the flow file is not in use: %s", error)
            continue
        said = ""
        if service.current is not known:
            known = service.current
            await server.tools_changed()
            await server.resources_changed()


_log = logging.getLogger(__name__)
