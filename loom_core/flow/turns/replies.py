"""Delivery of replies: wait for a run, build the reply, and save it to the conversation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from loom_core.cjk import has_cjk
from loom_core.flow.config.models import SKILLS_PROFILE
from loom_core.flow.executor.inputs import input_names_of, with_properties
from loom_core.flow.responses.phrases import Phrases, format_value, language_of, language_of_run
from loom_core.flow.responses.reply import FlowReply, WaitingRun
from loom_core.flow.understanding.choices import properties_of, with_titles
from loom_core.flow.understanding.slots import holds_words
from loom_core.runs.journal.rows.runs import FINAL_STATUSES

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.responses.reply import TurnOutcome
    from loom_core.flow.runtime.runtime import FlowRuntime
    from loom_core.flow.turns.session import ConversationStore, FlowConversation
    from loom_core.flow.turns.turn_context import TurnContext
    from loom_core.runs.journal import Journal
    from loom_core.runs.run import Pending, Run

__all__ = ["Delivery", "build_reply", "find_waiting", "late_text", "question_text", "run_text"]

_SHORT = 40  # characters of a goal
_TELLING = 3  # letters or digits of a value; a shorter one may be part of something else in a question


def build_reply(
    outcome: TurnOutcome,
    run: Run | None,
    *,
    session_id: str,
    file: FlowFile,
    phrases: Phrases,
    waiting: WaitingRun | None,
    timings: Mapping[str, float],
) -> FlowReply:
    """Build the reply."""
    said = [outcome.late, outcome.text]
    if run is not None:
        shown = _without_remarks(run) if outcome.again else run
        is_passed_on = outcome.route.action == "pass_on" and not _is_final(run)
        said.append(phrases.passed_on if is_passed_on else run_text(shown, file=file, phrases=phrases))
    elif outcome.asked is not None:
        said.append(outcome.asked.reason)
    ended = run is None or _is_final(run)
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
    """Return the text about a run's state; without `Run.problem`, which is for operators."""
    title = _title(file, run)
    match run.status:
        case "completed":
            return run.output
        case "input_required":
            asked = run.questions or run.pending[:1]
            text, count = question_text(asked[0], file=file, phrases=phrases), len(asked)
            return text if count == 1 else f"{text}\n{phrases.one_by_one.format(count=count)}"
        case "failed":
            return _failure_text(run, title, file=file, phrases=phrases)
        case "aborted":
            return run.output if _is_of_flow(run) and run.output else phrases.cancelled.format(flow=title)
        case "paused":
            return phrases.paused.format(flow=title)
        case "working":
            return phrases.working.format(flow=title)


def late_text(turn: TurnContext) -> str:
    """Return the beginning of a reply: operators' messages, and the results of earlier runs."""
    lines = [turn.phrases.by_operator.format(by=line.by, text=line.text) for line in turn.lines]
    results = (run_text(run, file=turn.file, phrases=turn.phrases) for run in turn.late)
    return "\n\n".join((*lines, *results))


def _failure_text(run: Run, title: str, *, file: FlowFile, phrases: Phrases) -> str:
    """Return the text about a failed run, with the next steps."""
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


def _is_final(run: Run) -> bool:
    return run.status in FINAL_STATUSES


def _is_of_flow(run: Run) -> bool:
    """Return whether a run is of a flow, which words its own result."""
    return run.request.profile != SKILLS_PROFILE


def _without_remarks(run: Run) -> Run:
    return replace(run, pending=tuple(map(_without_remark, run.pending)))


def _without_remark(pending: Pending) -> Pending:
    remark = pending.remark
    return replace(pending, reason=pending.reason.removesuffix(remark).removeprefix(remark).strip())


def question_text(pending: Pending, *, file: FlowFile, phrases: Phrases) -> str:
    """Return a question with its details: its fields if it has a form, the values for a yes or no."""
    if pending.taken_by:
        return phrases.with_operator.format(by=pending.taken_by)
    if pending.takes_answer:
        return pending.reason
    flow = file.flow(pending.tool)
    if flow is None and pending.kind == "approval":  # it is worded for customers, with its values
        return pending.reason
    if flow is None:
        return phrases.with_values(pending.reason, pending.arguments, pending.arguments_schema)
    schema = with_properties(flow.input_schema, properties_of(pending.arguments_schema))
    named = with_titles(schema, pending.arguments, phrases.language)
    values = {name: format_value(value) for name, value in named.items()}
    lines = [
        phrases.values.format(name=input_names_of(schema, [name]), value=value)
        for name, value in values.items()
        if name in properties_of(flow.input_schema)
        and not (_is_telling(value) and holds_words(pending.reason, value))
    ]
    return "\n".join([pending.reason, *lines])


def _is_telling(value: str) -> bool:
    """Return whether a value in a text is hardly part of something else; two Chinese characters suffice."""
    return len(value) >= _TELLING or (len(value) > 1 and has_cjk(value))


def find_waiting(runs: list[Run], *, file: FlowFile, but: str = "") -> WaitingRun | None:
    """Return the latest of the runs that wait for an answer, to which the conversation returns.

    It is not the run of the current reply, `but`.
    """
    for run in runs:
        drivable = file.can_execute(run.request.profile)
        if run.id != but and run.status == "input_required" and run.questions and drivable:
            flow_id = "" if run.request.profile == SKILLS_PROFILE else run.request.profile
            return WaitingRun(run.id, flow_id, _title(file, run), run.questions)
    return None


def _title(file: FlowFile, run: Run) -> str:
    """Return the title of a run for people: its flow, or the user's request."""
    flow = file.flow(run.request.profile)
    return flow.title if flow is not None else format_value(run.request.goal, most=_SHORT)


class Delivery:
    """Delivery of outcomes to conversations."""

    def __init__(self, journal: Journal, *, conversations: ConversationStore, wait_seconds: float) -> None:
        self._journal = journal
        self._conversations = conversations
        self._wait_seconds = wait_seconds

    async def wait_for_run(self, outcome: TurnOutcome, seconds: float | None) -> Run | None:
        """Return an outcome's run when it ends or waits, or after a timeout; None for none."""
        if not outcome.run_id:
            return None
        limit = self._wait_seconds if seconds is None else seconds
        return await self._journal.wait_until_idle(outcome.run_id, after=outcome.after, seconds=limit)

    async def reply(
        self, turn: TurnContext, outcome: TurnOutcome, run: Run | None, *, began: float
    ) -> FlowReply:
        """Return the reply to a message.

        `began` is the arrival of the message, as `time.perf_counter`.
        """
        timings = {**turn.clock.timings, "total": time.perf_counter() - began}
        if run is not None:
            timings["run"] = timings["total"] - sum(turn.clock.timings.values())
        return build_reply(
            outcome,
            run,
            session_id=turn.conversation.session_id,
            file=turn.file,
            phrases=turn.phrases,
            waiting=await self._waiting(turn.conversation, turn.file, outcome),
            timings=timings,
        )

    async def reply_for_run(
        self,
        outcome: TurnOutcome,
        runtime: FlowRuntime,
        conversation: FlowConversation,
        *,
        seconds: float | None,
    ) -> FlowReply:
        """Return the reply to a query for a run, in the run's language."""
        began = time.perf_counter()
        run = await self.wait_for_run(outcome, seconds)
        setting = runtime.file.basic_settings.language
        language = (
            language_of("", setting=setting, before=conversation.language)
            if run is None
            else language_of_run(run.request, setting=setting)
        )
        file = runtime.localize(language)
        return build_reply(
            outcome,
            run,
            session_id=conversation.session_id,
            file=file,
            phrases=Phrases(language),
            waiting=await self._waiting(conversation, file, outcome),
            timings={"total": time.perf_counter() - began},
        )

    async def remember(
        self, turn: TurnContext, reply: FlowReply, *, key: str, tracks_delivery: bool, again: bool = False
    ) -> None:
        """Save the reply about a run; if the run continues, a later turn reports its result.

        If the message is repeated (`again`), the reply is saved only if it had none.
        """
        conversation = turn.conversation
        if (reply.status == "working" and not reply.late) or (again and not reply.told):
            return
        session = self._conversations.turn(conversation.session_id, caller=conversation.caller, context={})
        async with session as latest:
            is_news = any(map(latest.is_untold, reply.told))
            if is_news or not (again or reply.told):
                await self.keep(
                    latest, "", reply, key=key, said=turn.message, tracks_delivery=tracks_delivery
                )

    async def keep(
        self,
        conversation: FlowConversation,
        message: str,
        reply: FlowReply,
        *,
        key: str,
        said: str = "",
        tracks_delivery: bool,
    ) -> None:
        """Save the reply.

        The message is empty if it is saved already, as `said`. `tracks_delivery`: the reply reaches the user
        now, so that its results count as told.
        """
        await self._conversations.save_messages(conversation.session_id, message, reply.text)
        if key:
            conversation.note_reply(key, message or said, reply)
        if tracks_delivery:
            conversation.mark_told(reply.told)
        await self._conversations.save(conversation)
        if tracks_delivery:
            self._conversations.confirm_delivery(conversation)

    async def confirm_delivery(
        self, session_id: str, run: Run | None, told: Sequence[str], *, caller: str
    ) -> None:
        """Record that the user has received the results in a reply."""
        ended = run is not None and run.status in FINAL_STATUSES
        runs = {*told, *((run.id,) if run is not None and ended else ())}
        if not runs or not session_id:
            return
        async with self._conversations.turn(session_id, caller=caller, context={}) as conversation:
            news = {*filter(conversation.is_untold, runs)}
            if not news:
                return
            if run is not None and run.id in news and run.id not in told:
                await self._conversations.save_messages(session_id, reply=run.output)
            conversation.mark_told(news)
            await self._conversations.save(conversation)
            self._conversations.confirm_delivery(conversation)

    async def _waiting(
        self, conversation: FlowConversation, file: FlowFile, outcome: TurnOutcome
    ) -> WaitingRun | None:
        """Return the run that the conversation returns to; after an emergency, it asks nothing at once."""
        flow = file.flow(outcome.route.flow_id)
        if flow is not None and flow.hidden and flow.only_informs:
            return None
        runs = await self._conversations.list_unfinished(conversation)
        return find_waiting(runs, file=file, but=outcome.run_id)
