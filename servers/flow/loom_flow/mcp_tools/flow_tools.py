"""Flows that are tools of their own: those with `as_tool`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from loom_core.flow.runtime.effects import changes_something
from loom_core.server.auth.caller import current_caller
from loom_core.server.calls.long_polling import LONGEST_WAIT
from loom_core.server.protocol.tools import SchemaTool
from loom_flow.mcp_tools.tools import run_through
from loom_flow.models import RunInfo
from loom_flow.service import tool_name

if TYPE_CHECKING:
    from loom_core.flow.config import FlowConfig, FlowFile
    from loom_core.server.calls.context import ToolContext
    from loom_core.server.protocol.factory import LoomServer
    from loom_core.server.protocol.results import ToolReply
    from loom_flow.service import Service

__all__ = ["register_flow_tools"]

_ASKS = "What is missing is asked for. It is a flow with a run of its own: follow `next` in the answer."


def register_flow_tools(server: LoomServer, service: Service) -> None:
    """Offer them, as they are in the file at the time of asking.

    Args:
        server: what offers them.
        service: runs the flows.
    """
    made: tuple[FlowFile | None, Sequence[SchemaTool]] = (None, ())

    def live() -> Sequence[SchemaTool]:
        nonlocal made
        file = service.current
        if made[0] is not file:
            made = (file, [] if file is None else [_tool(service, file, each) for each in _offered(file)])
        names = {tool_name(each) for each in _offered(file) if current_caller().may_use(each.flow_id)}
        return [tool for tool in made[1] if tool.name in names]

    server.live_tools(live, task="optional")


def _offered(file: FlowFile | None) -> list[FlowConfig]:
    return [flow for flow in file.flows if flow.enabled and flow.as_tool] if file else []


def _tool(service: Service, file: FlowFile, flow: FlowConfig) -> SchemaTool:
    changes = changes_something(file, flow)
    return SchemaTool(
        name=tool_name(flow),
        title=flow.title,
        description=f"{flow.description}\n\n{_ASKS}",
        input_schema=flow.input_schema,
        output=RunInfo,
        function=partial(_run, service, flow.flow_id),
        read_only=not changes,
        destructive=changes,
        idempotent=not changes,
        open_world=True,
    )


async def _run(service: Service, flow_id: str, given: dict[str, Any], ctx: ToolContext) -> ToolReply[RunInfo]:
    return await run_through(ctx, service, flow_id, given, seconds=LONGEST_WAIT)
