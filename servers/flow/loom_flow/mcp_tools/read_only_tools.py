"""Read-only tools: list flows, explain a message, show a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from loom_core.server.calls.context import ToolContext
from loom_core.server.calls.long_polling import LONGEST_WAIT
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.runs.models import event_info
from loom_flow.mcp_tools.tools import Context, RunId, SessionId
from loom_flow.models import ExplainResult, FlowsResult, RunResult
from loom_flow.texts import events_text, explain_text, flows_text, run_info, run_text

if TYPE_CHECKING:
    from loom_core.server.protocol.factory import LoomServer
    from loom_flow.service import FlowService

__all__ = ["register_read_only_tools"]

_EVENTS = 200


def register_read_only_tools(server: LoomServer, service: FlowService) -> None:
    """Register the tools."""
    _register_list(server, service)
    _register_explain(server, service)
    _register_status(server, service)


def _register_list(server: LoomServer, service: FlowService) -> None:
    @server.tool(
        title="List flows",
        description=(
            "See what the assistant of flow_chat can do. Use it first where you are not sure whether a "
            "request is its business. Returns its flows with their inputs, what else it may call, and the "
            "user's unfinished runs."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    )
    async def flow_list() -> ToolReply[FlowsResult]:
        result = await service.list_flows()
        return tool_result(flows_text(result), result)


def _register_explain(server: LoomServer, service: FlowService) -> None:
    @server.tool(
        title="Explain what a message would do",
        description=(
            "Say what a message would do, and do nothing. Use it to see why something was or was not begun. "
            "Returns which trigger patterns fit, what would be chosen and why, and with which inputs."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=True,
    )
    async def flow_explain(
        message: Annotated[str, Field(description="What a user might say.")],
        session_id: SessionId = "",
        context: Context = None,
    ) -> ToolReply[ExplainResult]:
        result = await service.explain(message, session_id=session_id, context=context)
        return tool_result(explain_text(result), result)


def _register_status(server: LoomServer, service: FlowService) -> None:
    @server.tool(
        title="Look at a run",
        description=(
            "Get the state of a run. With wait_seconds it waits for a result, and the user is asked if the "
            "run waits for them; call it again as long as the status is `working`. Returns what each step "
            "has done, and with after_seq the events."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
        task="optional",
    )
    async def flow_status(
        ctx: ToolContext,
        run_id: RunId,
        after_seq: Annotated[
            int | None,
            Field(
                description="`last_seq`: wait for what happens after it; 0: all.",
                ge=0,
                json_schema_extra={"type": "integer"},
            ),
        ] = None,
        wait_seconds: Annotated[
            float, Field(description="Seconds to wait; 0: look.", ge=0, le=LONGEST_WAIT)
        ] = 0.0,
    ) -> ToolReply[RunResult]:
        long_poll = service.long_poll
        run = await long_poll.wait_for_run(
            ctx, run_id, after=after_seq or 0, seconds=wait_seconds, task="waits"
        )
        info = run_info(run, await service.steps(run.id), by_asking=long_poll.can_ask_user(ctx, run))
        found = [] if after_seq is None else await service.events(run_id, after=after_seq, limit=_EVENTS)
        events = [event_info(event) for event in found]
        result = RunResult(**dict(info), events=events)
        return tool_result("\n\n".join(filter(None, [run_text(run, info), events_text(events)])), result)
