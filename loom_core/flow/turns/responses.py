"""How what came of a message is put into words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loom_core.flow.executor.inputs import input_names_of
from loom_core.flow.responses.phrases import shown_value
from loom_core.flow.responses.reply import FlowReply, Route, Waiting
from loom_core.flow.runtime.execution import can_be_driven
from loom_core.flow.runtime.skills import SKILLS_PROFILE
from loom_core.flow.understanding.choices import titled_inputs
from loom_core.runs.journal.rows.runs import FINAL_STATUSES

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.responses.phrases import Phrases
    from loom_core.flow.responses.reply import Citation
    from loom_core.runs.run import Pending, Run

__all__ = ["Outcome", "question_text", "reply_of", "run_text", "waiting_of"]

_SHORT = 40  # of what somebody wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a message came to.

    Attributes:
        route: how it was decided.
        text: what is said; before what a run says, where there is one.
        run_id: the run that it was begun for or told to, and that is waited for.
        after: seq of its last event before that.
        asked: what is asked without a run.
        again: whether what the run waits for is only asked once more.
        citations: what the text rests on.
        late: how earlier runs have ended, of which the user was not told; said before everything else.
        told: ids of these runs.
    """

    route: Route
    text: str = ""
    run_id: str = ""
    after: int = 0
    asked: Pending | None = None
    again: bool = False
    citations: tuple[Citation, ...] = ()
    late: str = ""
    told: tuple[str, ...] = ()


def reply_of(
    outcome: Outcome,
    run: Run | None,
    *,
    session_id: str,
    file: FlowFile,
    phrases: Phrases,
    waiting: Waiting | None,
    timings: Mapping[str, float],
) -> FlowReply:
    """What the conversation gets back.

    Args:
        outcome: what the message came to.
        run: its run as it stands; None where there is none.
        session_id: the conversation.
        file: the flows.
        phrases: how things are said.
        waiting: another run that the conversation returns to.
        timings: see `FlowReply`.
    """
    said = [outcome.late, outcome.text]
    if run is not None:
        told = run_text(_without_remarks(run) if outcome.again else run, file=file, phrases=phrases)
        said.append(told)
    elif outcome.asked is not None:
        said.append(outcome.asked.reason)
    ended = run is None or run.status in FINAL_STATUSES
    back = waiting if ended and outcome.asked is None else None
    if back is not None:
        question = question_text(_without_remark(back.pending[0]), file=file, phrases=phrases)
        said.append(phrases.back.format(flow=back.title, question=question))
    asked = () if outcome.asked is None else (outcome.asked,)
    flow_id = outcome.route.flow_id
    if run is not None and _is_of_flow(run):
        flow_id = run.request.profile
    return FlowReply(
        status=run.status if run is not None else "input_required" if asked else "completed",
        text="\n\n".join(filter(None, (each.strip() for each in said))),
        session_id=session_id,
        route=outcome.route,
        flow_id=flow_id,
        run_id="" if run is None else run.id,
        pending=asked if run is None else run.pending,
        citations=outcome.citations,
        structured=None if run is None else run.structured,
        waiting=waiting,
        timings=timings,
        language=phrases.language,
        late=outcome.late,
        told=(*outcome.told, *((run.id,) if run is not None and ended else ())),
    )


def run_text(run: Run, *, file: FlowFile, phrases: Phrases) -> str:
    """What is said of a run as it stands: nothing of `Run.problem`, which is for operators."""
    title = _title(file, run)
    match run.status:
        case "completed":
            return run.output
        case "input_required":
            text = question_text(run.pending[0], file=file, phrases=phrases)
            count = len(run.pending)
            return text if count == 1 else f"{text}\n{phrases.one_by_one.format(count=count)}"
        case "failed":
            return _failed(run, title, file=file, phrases=phrases)
        case "aborted":
            return run.output if _is_of_flow(run) and run.output else phrases.cancelled.format(flow=title)
        case "paused":
            return phrases.paused.format(flow=title)
        case "working":
            return phrases.working.format(flow=title)


def _failed(run: Run, title: str, *, file: FlowFile, phrases: Phrases) -> str:
    """What is said of a run that has failed, and what can be done then."""
    broken = phrases.failed.format(flow=title, problem=phrases.broken)
    if not _is_of_flow(run):
        if run.output == phrases.unapproved:
            return run.output
        return f"{run.output}\n\n{broken}" if run.output else broken
    flow = file.flow(run.request.profile)
    then = (
        "" if flow is None else phrases.correct if flow.input_schema.get("properties") else phrases.try_again
    )
    return phrases.space.join(filter(None, (run.output or broken, then)))


def _is_of_flow(run: Run) -> bool:
    """Whether it is a flow that runs, and says itself how it has ended."""
    return run.request.profile != SKILLS_PROFILE


def _without_remarks(run: Run) -> Run:
    return replace(run, pending=tuple(map(_without_remark, run.pending)))


def _without_remark(pending: Pending) -> Pending:
    return replace(pending, reason=pending.reason.removesuffix(pending.remark).strip())


def question_text(pending: Pending, *, file: FlowFile, phrases: Phrases) -> str:
    """A question with what is to be known for the answer: a form for a form, the values for a yes or no."""
    if pending.kind == "question":
        return pending.reason
    flow = file.flow(pending.tool)
    if flow is None and pending.kind == "approval":  # it is worded for customers, values and all
        return pending.reason
    if flow is None:
        return phrases.with_values(pending.reason, pending.arguments, pending.arguments_schema)
    lines = [
        phrases.values.format(name=input_names_of(flow.input_schema, [name]), value=shown_value(value))
        for name, value in titled_inputs(flow.input_schema, pending.arguments, phrases.language).items()
        if name in flow.input_schema.get("properties", {})  # pyright: ignore[reportOperatorIssue]
    ]
    return "\n".join([pending.reason, *lines])


def waiting_of(runs: list[Run], *, file: FlowFile, but: str = "") -> Waiting | None:
    """The run that a conversation returns to: of those that wait for an answer, the latest.

    Args:
        runs: those of the session that are not at their end, the latest first.
        file: the flows.
        but: the id of one that the conversation is about now.
    """
    for run in runs:
        drivable = can_be_driven(file, run.request.profile)
        if run.id != but and run.status == "input_required" and run.pending and drivable:
            flow_id = "" if run.request.profile == SKILLS_PROFILE else run.request.profile
            return Waiting(run.id, flow_id, _title(file, run), run.pending)
    return None


def _title(file: FlowFile, run: Run) -> str:
    """What people call a run: the flow, or what they wanted."""
    flow = file.flow(run.request.profile)
    return flow.title if flow is not None else shown_value(run.request.goal, most=_SHORT)
