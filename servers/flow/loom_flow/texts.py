"""What the tools answer, as text for a model and as data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from loom_core.flow.config.localization import spoken
from loom_core.flow.responses.phrases import Phrases, language_of_run
from loom_core.flow.responses.reply import CHOICE
from loom_core.flow.turns.replies import question_text
from loom_core.flow.turns.replies import run_text as told_of_run
from loom_core.knowledge.text.control_characters import visible
from loom_core.server.protocol.results import TOKEN_CAP, TextBudget
from loom_core.server.runs.models import pending_info
from loom_flow.models import (
    ChatResult,
    CitationInfo,
    RouteInfo,
    RunInfo,
    RunLine,
    StepInfo,
    WaitingInfo,
)
from loom_flow.wording import Wording

if TYPE_CHECKING:
    from loom_core.flow.config import FlowFile
    from loom_core.flow.responses.reply import FlowReply, Route
    from loom_core.flow.understanding.language import Language
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Pending, Run
    from loom_core.server.runs.models import EventInfo
    from loom_flow.models import ExplainResult, FlowsResult, RunsResult

__all__ = [
    "chat_result",
    "chat_text",
    "events_text",
    "explain_text",
    "flows_text",
    "go_on_line",
    "message_of",
    "pending_line",
    "progress_line",
    "question_of",
    "route_info",
    "run_info",
    "run_line",
    "run_text",
    "runs_text",
    "steps_of",
]

_JSON = 2000  # characters of arguments or a schema that a person reads
_MESSAGE = 120
_SHOWN = 120
_OUTPUTS = 400


def message_of(run: Run) -> str:
    """What the user said to begin a run."""
    return str(run.request.metadata.get("message") or run.request.goal)


def chat_result(reply: FlowReply, run: Run | None, *, file: FlowFile, by_asking: bool) -> ChatResult:
    """What is said to a message, as data.

    Args:
        reply: as the assistant gave it.
        run: the run that it is about as it stands now; None for none.
        file: the flows.
        by_asking: whether the caller's client can ask its user.
    """
    wording = Wording.of(reply.language)
    status, text, pending, structured = reply.status, reply.text, reply.pending, reply.structured
    if run is not None and (run.status, run.pending) != (reply.status, reply.pending):
        status, pending, structured = run.status, run.pending, run.structured
        told = told_of_run(run, file=spoken(file, reply.language), phrases=Phrases.of(reply.language))
        text = "\n\n".join(filter(None, (reply.late, told))) if told else reply.text
    key = {"completed": "told" if run is None else "completed", "input_required": "answer"}.get(
        status, status
    )
    if status == "input_required" and by_asking and run is not None:
        key = "ask"
    waiting = reply.waiting
    return ChatResult(
        status=status,
        text=text,
        session_id=reply.session_id,
        flow_id=reply.flow_id,
        run_id=reply.run_id,
        pending=[pending_info(each) for each in pending],
        citations=[
            CitationInfo(id=each.id, source=each.source, title=each.title, text=each.text)
            for each in reply.citations
        ],
        structured=_object(structured),
        waiting=None
        if waiting is None
        else WaitingInfo(
            run_id=waiting.run_id,
            flow_id=waiting.flow_id,
            pending=[pending_info(each) for each in waiting.pending],
        ),
        route=route_info(reply.route),
        timings={name: round(seconds, 4) for name, seconds in reply.timings.items()},
        next=str(getattr(wording, key)).format(run_id=reply.run_id, session_id=reply.session_id),
    )


def chat_text(result: ChatResult, language: Language) -> str:
    """The answer of `flow_chat`: what the user reads, and what the model needs to know besides."""
    wording, route = Wording.of(language), result.route
    parts = [result.text]
    if result.citations and not any(f"[{each.id}]" in result.text for each in result.citations):
        titles = dict.fromkeys(visible(each.title or each.source) for each in result.citations)
        parts.append("\n".join(f"[{number}] {title}" for number, title in enumerate(titles, 1)))
    by = wording.by.format(
        action=wording.named(wording.actions, route.action), how=wording.named(wording.hows, route.how)
    )
    run = [wording.run.format(id=result.run_id)] if result.run_id else []
    lines = [f"({', '.join([wording.session.format(id=result.session_id), *run, by])})"]
    choices = [each for each in result.pending if each.id == CHOICE]
    asked = [each for each in result.pending if each.kind == "question" and each.id != CHOICE]
    for each in (*choices, *asked):
        properties = each.answer_schema.get("properties")
        if properties:
            lines.append(f"- {each.id}: {_json(properties)}")
    lines.append(wording.next.format(text=result.next))
    return "\n\n".join([*parts, "\n".join(lines)])


def route_info(route: Route) -> RouteInfo:
    """How it was decided, as data."""
    return RouteInfo(
        action=route.action,
        how=route.how,
        flow_id=route.flow_id,
        pattern=route.pattern,
        start=route.start,
        end=route.end,
        skills=list(route.skills),
        tool=route.tool,
        candidates=list(route.candidates),
        confidence=route.confidence,
        reason=route.reason,
        problem=route.problem,
    )


def run_info(run: Run, steps: Sequence[StepInfo], *, by_asking: bool) -> RunInfo:
    """A run as data, with what to do now.

    Args:
        run: as it stands.
        steps: what it has done.
        by_asking: whether the caller's client can ask its user, who may decide.
    """
    wording = _wording_of(run)
    key = {"input_required": "ask" if by_asking else "resume"}.get(run.status, run.status)
    return RunInfo(
        run_id=run.id,
        session_id=run.request.session_id,
        flow_id=run.request.profile,
        status=run.status,
        output=run.output,
        structured=_object(run.structured),
        problem=run.problem,
        pending=[pending_info(each) for each in run.pending],
        steps=list(steps),
        last_seq=run.last_seq,
        next=str(getattr(wording, key)).format(run_id=run.id, session_id=run.request.session_id),
    )


def run_text(run: Run, info: RunInfo) -> str:
    """The answer about a run."""
    wording = _wording_of(run)
    status = wording.named(wording.statuses, run.status)
    head = wording.head.format(
        run_id=run.id, flow=run.request.profile, session_id=run.request.session_id, status=status
    )
    lines = [head]
    if run.problem:
        lines.append(wording.problem.format(problem=run.problem))
    if run.pending:
        lines += [wording.waits, *(pending_line(each, wording) for each in run.pending)]
    if info.steps:
        lines += [wording.did, *(_step_line(step, wording) for step in info.steps)]
    blocks = ["\n".join(lines)]
    if run.output:
        blocks.append(run.output)
    if info.next:
        blocks.append(wording.next.format(text=info.next))
    return "\n\n".join(blocks)


def _wording_of(run: Run) -> Wording:
    return Wording.of(language_of_run(run.request))


def _step_line(step: StepInfo, wording: Wording) -> str:
    outputs = f" {_short(_json(step.outputs), _OUTPUTS)}" if step.outputs else ""
    problem = f" {visible(step.problem)}" if step.problem else ""
    status = wording.named(wording.step_statuses, step.status)
    return f"- {visible(step.step_id)}: {status}{outputs}{problem}"


def steps_of(events: Sequence[StreamEvent]) -> list[StepInfo]:
    """What a run has done, by what happened in it: of each step how it stands."""
    steps: dict[str, StepInfo] = {}
    for event in events:
        step_id = str(event.payload.get("step_id", ""))
        if event.type == "step_start":
            steps[step_id] = StepInfo(step_id=step_id, status="running", outputs={}, problem="")
        elif event.type == "step_result":
            outputs: Any = event.payload.get("outputs") or {}
            steps[step_id] = StepInfo(
                step_id=step_id,
                status=str(event.payload["status"]),
                outputs=outputs,
                problem=str(event.payload.get("problem") or ""),
            )
    return list(steps.values())


def pending_line(pending: Pending, wording: Wording) -> str:
    """Something that a run waits for."""
    template = {"approval": wording.approval, "unknown": wording.unknown, "question": wording.question}
    line = template[pending.kind].format(
        id=pending.id,
        reason=visible(pending.reason),
        arguments=f" {_json(pending.arguments)}" if pending.arguments else "",
        schema=_json(pending.schema),
    )
    if pending.deadline is None:
        return line
    time = datetime.fromtimestamp(pending.deadline).astimezone().strftime("%H:%M:%S")
    return line + wording.until.format(time=time)


def question_of(run: Run, pending: Pending, file: FlowFile) -> str:
    """What a person is asked, in a form of their client: with the values that a yes or no is about."""
    language = language_of_run(run.request, setting=file.basic_settings.language)
    text = question_text(pending, file=spoken(file, language), phrases=Phrases.of(language))
    return "\n".join(map(visible, text.splitlines()))


def progress_line(run: Run) -> Callable[[StreamEvent], str]:
    """What says each event of a run in a line; empty for one that tells people nothing."""
    wording = _wording_of(run)

    def line(event: StreamEvent) -> str:
        it = event.payload
        match event.type:
            case "step_start":
                said = wording.step.format(step=it["step_id"])
            case "step_result" if it["status"] == "success":
                said = wording.done.format(step=it["step_id"], seconds=it["seconds"])
            case "step_result":
                status = wording.named(wording.step_statuses, str(it["status"]))
                said = wording.ended.format(step=it["step_id"], status=status)
            case "approval_required":
                said = wording.asks.format(reason=it["pending"]["reason"])
            case "tool_progress":
                said = str(it["message"])
            case "flow_finish":
                said = ": ".join(filter(None, (wording.finished, str(it.get("output") or ""))))
            case "error" | "aborted" | "paused":
                said = wording.named(wording.statuses, "failed" if event.type == "error" else event.type)
            case _:
                said = ""
        return visible(said)[:_SHOWN]

    return line


def go_on_line(run: Run, command: str) -> str:
    """The command that goes on with a run, for people at a terminal."""
    return _wording_of(run).go_on.format(command=command)


def run_line(run: Run) -> RunLine:
    """A run in a list, as data."""
    return RunLine(
        run_id=run.id,
        session_id=run.request.session_id,
        flow_id=run.request.profile,
        message=_short(message_of(run), _MESSAGE),
        status=run.status,
        created=run.created,
        updated=run.updated,
        pending=len(run.pending),
    )


def runs_text(result: RunsResult) -> str:
    """A list of runs."""
    budget = TextBudget(narrow="words, --status or --limit", separator="\n")
    for run in result.runs:
        budget.add(_run_line_text(run))
    return budget.text() if result.runs else "There is no such run."


def flows_text(result: FlowsResult) -> str:
    """The answer of `flow_list`."""
    budget = TextBudget(narrow="loom://flows", separator="\n")
    for flow in result.flows:
        inputs = ", ".join(flow.inputs.get("properties", {})) or "none"
        tool = f" Tool: {flow.tool}." if flow.tool else ""
        budget.add(
            f"- {flow.flow_id} ({visible(flow.name)}): {visible(flow.description)} Inputs: {visible(inputs)}."
            f"{' It changes something.' if flow.changes_something else ''}{tool}"
        )
    for skill in result.skills:
        budget.add(f"- skill: {visible(skill)}")
    for name in result.system_tools:
        budget.add(f"- system tool: {visible(name)}")
    if result.unfinished:
        budget.add("Not at their end:")
        for run in result.unfinished:
            budget.add(_run_line_text(run))
    none = [] if result.flows or result.skills else ["There is no flow."]
    notes = [f"(Note: {visible(each)})" for each in result.problems]
    return "\n".join([*none, *filter(None, [budget.text()]), *notes])


def _run_line_text(run: RunLine) -> str:
    waits = f", waits for {run.pending}" if run.pending else ""
    about = f"{run.flow_id}, {run.status}{waits}; session {run.session_id}"
    return f"- {run.run_id} ({about}): {visible(run.message)}"


def events_text(events: Sequence[EventInfo]) -> str:
    """What happened in a run, a line each; empty for nothing."""
    budget = TextBudget(TOKEN_CAP // 2, narrow="after_seq", separator="\n")
    for event in events:
        budget.add(f"{event.seq} {event.type} {_short(_json(event.payload), _OUTPUTS)}")
    return budget.text()


def explain_text(result: ExplainResult) -> str:
    """The answer of `flow_explain`."""
    target = result.flow_id or result.tool or ", ".join(result.skills)
    action = result.action or "as the model decides"
    lines = [f"“{visible(result.message)}” → {action}{f': {target}' if target else ''} ({result.decided_by})"]
    if result.run_id:
        lines.append(f"It would be told to the run {result.run_id}.")
    if result.confidence is not None:
        lines.append(f"Confidence: {result.confidence:.2f}. {visible(result.reason)}".rstrip())
    if result.problem:
        lines.append(f"The model did not decide: {visible(result.problem)}")
    for match in result.matches:
        doubt = f"; in doubt: {match.doubt}" if match.doubt else ""
        fits = visible(result.message[match.start : match.end])
        lines.append(f"- {match.flow_id}: {visible(match.pattern)} fits “{fits}”{doubt}")
    if result.candidates:
        lines.append(f"One of: {', '.join(result.candidates)}")
    if result.inputs:
        lines.append(f"Inputs: {_json(result.inputs)}")
    if result.missing:
        lines.append(f"It would ask for: {', '.join(result.missing)}")
    lines.append(", ".join(f"{name} {1000 * seconds:.2f} ms" for name, seconds in result.timings.items()))
    return "\n".join(line for line in lines if line)


def _object(value: object) -> dict[str, Any] | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    return {"result": value}


def _json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return visible(text if len(text) <= _JSON else f"{text[:_JSON]} …")


def _short(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most].rstrip()} …"
