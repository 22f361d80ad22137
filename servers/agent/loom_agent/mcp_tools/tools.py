"""MCP tools: start runs, wait for them and send them commands; list runs, events and tools (read-only)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from loom_agent.models import (
    BudgetInput,
    DecisionInput,
    EventsResult,
    FoundTool,
    RunInfo,
    RunsResult,
    SearchResult,
)
from loom_agent.texts import (
    Wording,
    events_text,
    goal_line,
    question_of,
    run_info,
    run_line,
    run_text,
    runs_text,
    search_text,
)
from loom_core.errors import InvalidInputError
from loom_core.knowledge.text.control_characters import escape_controls
from loom_core.runs.commands import Abort, ApprovalDecision, InputResponse, Pause, Reply, Resume
from loom_core.runs.run import RunStatus
from loom_core.server.calls.context import ToolContext
from loom_core.server.calls.long_polling import LONGEST_WAIT, LongPoll, decider_of
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.runs.models import event_info

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_agent.service import AgentService
    from loom_core.runs.commands import Command
    from loom_core.runs.events import EventType, StreamEvent
    from loom_core.runs.run import Pending, Run
    from loom_core.server.protocol.factory import LoomServer

__all__ = ["find_tools", "register_read_only_tools", "register_run_tools"]

_Wait = Annotated[
    float,
    Field(ge=0, le=LONGEST_WAIT),
]
_SessionId = Annotated[str, Field(description="`session_id` of an answer.", min_length=1)]
_RUN = (
    "Have an autonomous agent work on a goal of several steps, with its own tools, knowledge bases and "
    "MCP servers. The run outlives this call: on `working`, go on with agent_wait; on "
    "`input_required`, the user decides. Returns its status, its output, and in `next` what to do."
)
_APPLIED_SECONDS = 5.0  # timeout for a command to be applied
_LAST_SEQ = 2**32 - 1
"""The highest possible seq of an event."""

_RunId = Annotated[str, Field(description="`run_id` of an answer.", min_length=1)]
"""Id of the run."""

_TAIL = 80  # characters of the model's current text
_SHOWN = 120
_Line = Callable[["Wording", Mapping[str, Any]], str]


def register_run_tools(server: LoomServer, service: AgentService) -> None:
    """Register the tools that start and steer runs.

    Args:
        server: the server.
        service: the service for runs.
    """
    _register_run(server, service)
    _register_wait(server, service)
    _register_commands(server, service)


def _register_run(server: LoomServer, service: AgentService) -> None:
    @server.tool(
        title="Run an agent",
        description=_RUN,
        read_only=False,
        destructive=True,
        idempotent=False,
        open_world=True,
        task="optional",
    )
    async def agent_run(
        ctx: ToolContext,
        goal: Annotated[
            str,
            Field(description="The whole goal: the agent knows nothing else."),
        ],
        session_id: Annotated[str, Field(description="Conversation to continue.")] = "",
        wait_seconds: _Wait = LONGEST_WAIT,
        profile: Annotated[str, Field(description="Kind of agent; see loom://tools.")] = "",
        allowed_tools: Annotated[
            list[str] | None,
            Field(description="Tools it may call, with * and ?."),
        ] = None,
        budget: Annotated[
            BudgetInput | None,
            Field(description="Within the profile's."),
        ] = None,
        output_schema: Annotated[
            dict[str, Any] | None,
            Field(description="JSON Schema of the answer."),
        ] = None,
        context: Annotated[
            dict[str, Any] | None,
            Field(description="As the profile takes it."),
        ] = None,
        idempotency_key: Annotated[str, Field(description="The same key gets the same run.")] = "",
        attachments: Annotated[
            list[str] | None, Field(description="URLs, also data:, paths, server:uri.")
        ] = None,
    ) -> ToolReply[RunInfo]:
        # After an input request of the multi round-trip protocol this is called again, for the same run.
        run_id = ctx.client_input.kept.get("run_id", "")
        if not run_id:
            run = await service.start(
                goal,
                session_id=session_id,
                profile=profile,
                allowed_tools=allowed_tools,
                budget=budget,
                output_schema=output_schema,
                context=context,
                idempotency_key=idempotency_key,
                client=ctx.client,
                attachments=attachments or (),
            )
            run_id = ctx.client_input.kept["run_id"] = run.id
        run = await _long_poll(service).wait_for_run(ctx, run_id, seconds=wait_seconds, task="aborts")
        return await _reply(ctx, service, run)


def _register_wait(server: LoomServer, service: AgentService) -> None:
    @server.tool(
        title="Wait for a run",
        description=(
            "Wait for the outcome of a run: its answer, or something that the user has to decide. Returns "
            "the "
            "run; call it again as long as the status is `working`."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
        task="optional",
    )
    async def agent_wait(
        ctx: ToolContext,
        run_id: _RunId,
        after_seq: Annotated[
            int,
            Field(
                description="`last_seq`: wait for what happens after it.",
                ge=0,
                le=_LAST_SEQ,
            ),
        ] = 0,
        wait_seconds: _Wait = LONGEST_WAIT,
    ) -> ToolReply[RunInfo]:
        run = await _long_poll(service).wait_for_run(
            ctx, run_id, after=after_seq, seconds=wait_seconds, task="waits"
        )
        return await _reply(ctx, service, run)


def _register_commands(server: LoomServer, service: AgentService) -> None:
    @server.tool(
        title="Say something to an agent",
        description=(
            "Say something in a session: the agent reads it before its next step; where the run has ended, "
            "this begins the next one, with the message as its goal. Returns the run."
        ),
        read_only=False,
        destructive=True,
        idempotent=False,
        open_world=True,
    )
    async def agent_reply(
        ctx: ToolContext,
        session_id: _SessionId,
        message: Annotated[str, Field(description="What the user says.", min_length=1)],
        wait_seconds: _Wait = LONGEST_WAIT,
    ) -> ToolReply[RunInfo]:
        run_id = ctx.client_input.kept.get("run_id", "")
        if not run_id:
            run = await service.reply(session_id, Reply(text=message, by=decider_of(ctx)), client=ctx.client)
            run_id = ctx.client_input.kept["run_id"] = run.id
        return await _reply(
            ctx, service, await _long_poll(service).wait_for_run(ctx, run_id, seconds=wait_seconds)
        )

    @server.tool(
        title="Decide what a run waits for",
        description=(
            "Pass on what the USER decided about the calls and questions that a run waits for (`pending`). "
            "Show them each call with its arguments and ask first: never approve on your own. Returns the "
            "run."
        ),
        read_only=False,
        destructive=True,
        idempotent=False,
        open_world=True,
    )
    async def agent_decide(
        ctx: ToolContext,
        run_id: _RunId,
        decisions: Annotated[
            list[DecisionInput], Field(description="One for each entry of `pending`.", min_length=1)
        ],
        wait_seconds: _Wait = LONGEST_WAIT,
    ) -> ToolReply[RunInfo]:
        run = await service.run(run_id)
        kept = ctx.client_input.kept
        if "after" not in kept:  # otherwise this is the same call again, with an answer
            if not service.approvers.can_decide_by_tool(run):
                raise InvalidInputError(
                    "Decisions are not taken from this tool here: a model could approve what no person saw.",
                    advice="The user is asked by their client where it can do that, or decides with "
                    f"`loom-agent-server runs decide {run.id} ID approve`. The configuration allows the tool "
                    "with approvals.via_tool, or names who decides in approvals.who.",
                )
            run = await _decide(service, run, decisions, by=decider_of(ctx))
            kept["after"] = str(run.last_seq)
        run = await _long_poll(service).wait_for_run(
            ctx, run_id, after=int(kept["after"]), seconds=wait_seconds
        )
        return await _reply(ctx, service, run)

    @server.tool(
        title="Pause, resume or abort a run",
        description=(
            "`pause` lets running work end and starts nothing new; `resume` continues after a pause, a "
            "failure or an abort, and repeats nothing that was done; `abort` ends it now. Returns the run."
        ),
        read_only=False,
        destructive=True,
        idempotent=False,
        open_world=True,
    )
    async def agent_control(
        ctx: ToolContext,
        run_id: _RunId,
        action: Annotated[Literal["abort", "pause", "resume"], Field(description="What to do.")],
        reason: Annotated[str, Field(description="With `abort`: why.")] = "",
    ) -> ToolReply[RunInfo]:
        by = decider_of(ctx)
        orders: dict[str, Command] = {
            "abort": Abort(reason=reason, by=by),
            "pause": Pause(by=by),
            "resume": Resume(by=by),
        }
        run = await service.send_commands(run_id, orders[action])
        if action == "resume":
            run = await service.wait_until_applied(run_id, seconds=_APPLIED_SECONDS)
        else:
            run = await service.wait_until_idle(run_id, after=run.last_seq, seconds=_APPLIED_SECONDS)
        return await _reply(ctx, service, run)


async def _decide(service: AgentService, run: Run, decisions: Sequence[DecisionInput], *, by: str) -> Run:
    """Send decisions to a run, atomically.

    Raises:
        InvalidInputError: one is invalid; the message says that none was applied.
    """
    try:
        return await service.decide(run, *(_to_command(each, run, by=by) for each in decisions))
    except InvalidInputError as error:
        if len(decisions) == 1:
            raise
        message = f"None of the {len(decisions)} decisions was taken. {error.message}"
        raise InvalidInputError(message, advice=error.advice) from error


def _to_command(decision: DecisionInput, run: Run, *, by: str) -> ApprovalDecision | InputResponse:
    """Convert a decision to a command.

    Raises:
        InvalidInputError: it is incomplete.
    """
    if decision.action == "answer":
        if decision.content is None:
            raise InvalidInputError(
                f"{decision.id[:200]!r}: there is no answer.", advice="Give it as `content`."
            )
        return InputResponse(id=decision.id, action="accept", content=decision.content, by=by)
    if decision.action == "edit" and decision.arguments is None:
        raise InvalidInputError(
            f"{decision.id[:200]!r}: there are no arguments.", advice="Give all of them as `arguments`."
        )
    questions = {each.id for each in run.pending if each.kind == "question"}
    if decision.action == "deny" and decision.id in questions:
        return InputResponse(id=decision.id, action="decline", by=by)
    return ApprovalDecision(
        id=decision.id,
        action=decision.action,
        arguments=decision.arguments or {},
        reason=decision.reason,
        by=by,
        scope=decision.scope,
    )


async def _reply(ctx: ToolContext, service: AgentService, run: Run) -> ToolReply[RunInfo]:
    info = run_info(
        run,
        by_tool=service.approvers.can_decide_by_tool(run),
        by_asking=_long_poll(service).can_ask_user(ctx, run),
        answered_by=await service.answered_by(run),
    )
    return tool_result(run_text(run, info), info.model_copy(update={"goal": goal_line(run)}))


def register_read_only_tools(server: LoomServer, service: AgentService) -> None:
    """Register the read-only tools.

    Args:
        server: the server.
        service: the service for runs.
    """
    _register_runs(server, service)
    _register_events(server, service)
    _register_search(server, service)


def _register_runs(server: LoomServer, service: AgentService) -> None:
    @server.tool(
        title="List runs",
        description=(
            "List the runs of agents, the latest first, or find past ones. Use it to come back to work whose "
            "run_id is not known. Returns ids, goals and statuses."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    )
    async def agent_runs(
        status: Annotated[list[RunStatus] | None, Field(description="Left out, all.")] = None,
        query: Annotated[str, Field(description="Words of the goal or answer.")] = "",
        session_id: Annotated[str, Field(description="Only of this session.")] = "",
        limit: Annotated[int, Field(ge=1, le=100)] = 20,
    ) -> ToolReply[RunsResult]:
        runs = await service.runs(status=status or (), query=query, session_id=session_id, limit=limit)
        result = RunsResult(runs=[run_line(run) for run in runs])
        return tool_result(runs_text(result), result)


def _register_events(server: LoomServer, service: AgentService) -> None:
    @server.tool(
        title="Read what happened in a run",
        description=(
            "Read the events of a run, oldest first: what the model wrote, which tools were called with what "
            "result, who approved what."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    )
    async def agent_events(
        run_id: _RunId,
        after_seq: Annotated[int, Field(description="Only later events.", ge=0, le=_LAST_SEQ)] = 0,
        limit: Annotated[int, Field(ge=1, le=500)] = 100,
    ) -> ToolReply[EventsResult]:
        run = await service.run(run_id)
        found = await service.events(run_id, after=after_seq, limit=limit)
        events = [event_info(event) for event in found]
        last = events[-1].seq if events else max(after_seq, 0)
        result = EventsResult(
            run_id=run_id, status=run.status, events=events, last_seq=last, more=last < run.last_seq
        )
        text, shown = events_text(result)
        if shown == len(events):
            return tool_result(text, result)
        last = events[shown - 1].seq
        cut = result.model_copy(update={"events": events[:shown], "last_seq": last, "more": True})
        return tool_result(events_text(cut)[0], cut)


def _register_search(server: LoomServer, service: AgentService) -> None:
    @server.tool(
        title="Find tools of the agent",
        description=(
            "Find out what an agent can do, by words. Use it before agent_run where you are not sure. "
            "Returns tools, and whether their calls have to be approved."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    )
    async def tool_search(
        query: Annotated[str, Field(description="Words; left out, all tools.")] = "",
        profile: Annotated[str, Field(description="Kind of agent.")] = "",
        limit: Annotated[int, Field(ge=1, le=100)] = 10,
    ) -> ToolReply[SearchResult]:
        result = await find_tools(service, query, profile=profile, limit=limit)
        return tool_result(search_text(result), result)


async def find_tools(
    service: AgentService, query: str, *, profile: str = "", limit: int = 100
) -> SearchResult:
    """Find the tools of a profile that match a query.

    Args:
        service: the service with the agents.
        query: words; empty for all tools.
        profile: the profile; empty for the default one.
        limit: maximum number of tools.

    Raises:
        LoomError: as for `AgentService.agent`.
    """
    from loom_core.tools.tool_search import ToolSearch

    made = await service.agent(profile)
    there = made.toolbox.tools()
    found = list(there[:limit])
    if query.strip():
        found, _ = ToolSearch(made.toolbox.tools).search(query, limit=limit)
    agents = service.agents()
    return SearchResult(
        tools=[
            FoundTool(
                name=tool.name,
                description=tool.description,
                arguments=dict(tool.args_schema),
                permission=made.permissions.decide(tool, {}).action,
            )
            for tool in found
        ],
        total=len(there),
        notes=[*agents.mcp.problems(), *agents.knowledge.notes],
    )


def _long_poll(service: AgentService) -> LongPoll:
    """Return the long poll for the runs of a service, in the language of their goals."""
    return LongPoll(service, _question, _lines)


def _question(run: Run, pending: Pending) -> str:
    return question_of(pending, Wording.for_goal(run.request.goal))


def _lines(run: Run) -> Callable[[StreamEvent], str]:
    return _ProgressLines(Wording.for_goal(run.request.goal)).line


class _ProgressLines:
    """Formats each event of a run as a progress line; of the model's text, the end.

    Args:
        wording: the texts of a language.
    """

    def __init__(self, wording: Wording) -> None:
        self._wording = wording
        self._tail = ""

    def line(self, event: StreamEvent) -> str:
        """Return the progress line of an event; empty for an event of no interest to people."""
        if event.type == "text_delta":
            self._tail = (self._tail + str(event.payload["text"]))[-4 * _TAIL :]
            return escape_controls(" ".join(self._tail.split())[-_TAIL:])
        if event.type in {"model_start", "model_retry"}:
            self._tail = ""
        say = _LINES.get(event.type)
        return escape_controls(say(self._wording, event.payload))[:_SHOWN] if say else ""


def _result_line(wording: Wording, payload: Mapping[str, Any]) -> str:
    if payload["status"] == "success":
        return wording.done.format(tool=payload["tool"], seconds=payload["seconds"])
    return wording.failed.format(tool=payload["tool"], status=payload["status"])


_LINES: Mapping[EventType, _Line] = {
    "model_start": lambda say, it: say.starts.format(model=it["model"], turn=it["iteration"]),
    "model_retry": lambda say, it: say.retried.format(problem=it["problem"]),
    "tool_start": lambda say, it: say.uses.format(tool=it["tool"]),
    "tool_retry": lambda say, it: say.call_retried.format_map(it),
    "tool_progress": lambda say, it: f"{it['message']} {_share(it['done'], it['total'])}".lstrip(),
    "tool_result": _result_line,
    "approval_required": lambda say, it: say.asks.format(tool=it["pending"]["tool"]),
    "approval_decided": lambda say, it: say.decided.format(action=it["action"]),
    "compression_applied": lambda say, it: say.compacted.format(before=it["before"], after=it["after"]),
    "agent_finish": lambda say, it: say.finished,
    "error": lambda say, it: str(it["message"]),
    "aborted": lambda say, it: dict(say.statuses)["aborted"],
    "paused": lambda say, it: dict(say.statuses)["paused"],
}


def _share(done: float, total: float | None) -> str:
    return f"{done:g}" if total is None else f"{done:g} / {total:g}"
