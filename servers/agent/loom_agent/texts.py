"""What the tools answer, as text for a model and as data."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from loom_agent.models import RunInfo, RunLine, UsageInfo
from loom_agent.wording import Wording
from loom_core.knowledge.text.control_characters import visible
from loom_core.server.protocol.results import TOKEN_CAP, TextBudget
from loom_core.server.runs.models import pending_info

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_agent.models import EventsResult, RunsResult, SearchResult
    from loom_core.runs.run import Pending, Run

__all__ = [
    "events_text",
    "goal_line",
    "pending_line",
    "question_of",
    "run_info",
    "run_line",
    "run_summary",
    "run_text",
    "runs_text",
    "search_text",
]

_ARGUMENTS = 2000  # characters of a call's arguments that a person reads
_GOAL = 120
_PAYLOAD = 400


def run_info(run: Run, *, by_tool: bool, by_asking: bool) -> RunInfo:
    """A run as data, with what to do now.

    Args:
        run: as it stands.
        by_tool: whether the caller may decide by `agent_decide`.
        by_asking: whether the caller's client can ask its user, who may decide.
    """
    usage = run.spent.usage
    return RunInfo(
        run_id=run.id,
        session_id=run.request.session_id,
        profile=run.request.profile,
        goal=run.request.goal,
        status=run.status,
        output=run.output,
        structured=cast("dict[str, Any] | None", run.structured),
        problem=run.problem,
        pending=[pending_info(each) for each in run.pending],
        usage=UsageInfo(
            iterations=run.spent.iterations,
            tool_calls=run.spent.tool_calls,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            seconds=round(run.spent.seconds, 3),
        ),
        cost=usage.cost,
        last_seq=run.last_seq,
        next=_next(run, by_tool=by_tool, by_asking=by_asking),
    )


def _next(run: Run, *, by_tool: bool, by_asking: bool) -> str:
    wording = Wording.for_goal(run.request.goal)
    match run.status:
        case "completed":
            text = wording.completed
        case "working":
            text = wording.working
        case "input_required":
            text = wording.ask if by_asking else wording.decide if by_tool else wording.elsewhere
        case "paused":
            text = wording.paused
        case "failed" | "aborted":
            text = wording.ended
    return text.format(run_id=run.id, session_id=run.request.session_id)


def run_text(run: Run, info: RunInfo) -> str:
    """The answer about a run."""
    wording = Wording.for_goal(run.request.goal)
    status = dict(wording.statuses)[run.status]
    lines = [wording.head.format(run_id=run.id, session_id=run.request.session_id, status=status)]
    if run.problem:
        lines.append(wording.problem.format(problem=run.problem))
    if run.pending:
        lines += [wording.waits, *(pending_line(each, wording) for each in run.pending)]
    blocks = ["\n".join(lines)]
    if run.output:
        blocks.append(run.output)
    blocks.append(f"{run_summary(run)}\n{wording.next.format(text=info.next)}")
    return "\n\n".join(blocks)


def run_summary(run: Run) -> str:
    """What a run has taken, in a line."""
    wording = Wording.for_goal(run.request.goal)
    usage = run.spent.usage
    return wording.spent.format(
        turns=run.spent.iterations,
        calls=run.spent.tool_calls,
        tokens=f"{usage.input_tokens + usage.output_tokens:,}",
        cost="" if usage.cost is None else f", ${usage.cost:.4f}",
    )


def pending_line(pending: Pending, wording: Wording) -> str:
    """Something that a run waits for."""
    template = {"approval": wording.call, "unknown": wording.unknown, "question": wording.question}
    line = template[pending.kind].format(
        id=pending.id,
        tool=pending.tool,
        arguments=_json(pending.arguments),
        reason=visible(pending.reason),
        schema=_json(pending.schema),
    )
    if pending.deadline is None:
        return line
    time = datetime.fromtimestamp(pending.deadline).astimezone().strftime("%H:%M:%S")
    return line + wording.until.format(time=time)


def question_of(pending: Pending, wording: Wording) -> str:
    """What a person is asked, in a form of their client."""
    if pending.kind == "question":
        return visible(pending.reason)
    template = wording.may_run if pending.kind == "approval" else wording.may_run_again
    return template.format(
        tool=visible(pending.tool), arguments=_json(pending.arguments), reason=visible(pending.reason)
    )


def goal_line(run: Run) -> str:
    """The beginning of what a run was asked to do."""
    return _short(run.request.goal, _GOAL)


def run_line(run: Run) -> RunLine:
    """A run in a list, as data."""
    return RunLine(
        run_id=run.id,
        session_id=run.request.session_id,
        profile=run.request.profile,
        goal=goal_line(run),
        status=run.status,
        created=run.created,
        updated=run.updated,
        pending=len(run.pending),
    )


def runs_text(result: RunsResult) -> str:
    """The answer of `agent_runs`."""
    if not result.runs:
        return "There is no such run. agent_run starts one."
    budget = TextBudget(narrow="status, session_id, query or limit", separator="\n")
    for run in result.runs:
        waits = f", waits for {run.pending}" if run.pending else ""
        budget.add(f"- {run.run_id} ({run.status}{waits}; session {run.session_id}): {visible(run.goal)}")
    return budget.text()


def events_text(result: EventsResult, *, tokens: int = TOKEN_CAP // 2) -> tuple[str, int]:
    """The answer of `agent_events`, and how many events are in it."""
    if not result.events:
        return f"Nothing has happened since. The run is {result.status}.", 0
    budget = TextBudget(tokens, narrow="after_seq and limit", separator="\n")
    for event in result.events:
        budget.add(f"{event.seq} {event.type} {visible(_short(_json(event.payload), _PAYLOAD))}")
    more = f"\n[more: go on with after_seq={result.last_seq}]" if result.more else ""
    return f"{budget.text()}{more}", budget.shown


def search_text(result: SearchResult) -> str:
    """The answer of `tool_search`."""
    budget = TextBudget(narrow="a query that says more", separator="\n")
    for tool in result.tools:
        arguments = ", ".join(tool.arguments.get("properties", {})) or "none"
        budget.add(
            f"- {visible(tool.name)} ({tool.permission}): {visible(_short(tool.description, _PAYLOAD))}"
            f" Arguments: {visible(arguments)}"
        )
    found = budget.text() if result.tools else f"None of the {result.total} tools fits. Try other words."
    return "\n".join([found, *(f"(Note: {visible(note)})" for note in result.notes)])


def _json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return visible(text if len(text) <= _ARGUMENTS else f"{text[:_ARGUMENTS]} …")


def _short(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most].rstrip()} …"
