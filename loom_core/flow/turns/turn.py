"""One turn of a conversation: plan for a message, carry out the plan, save the conversation.

The order is: pending questions of the conversation, of a disambiguation or a run; then the words: to cancel
or retry something, small talk, trigger patterns; then the model, if there is one, while the knowledge
sources are queried; without one, an answer from knowledge.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from loom_core.errors import InvalidInputError
from loom_core.flow.policy.decision import FurtherRequest
from loom_core.flow.policy.router import Disambiguation, find_unread_request
from loom_core.flow.responses.phrases import Phrases, language_of
from loom_core.flow.responses.reply import RoutingOutcome, TurnOutcome
from loom_core.flow.turns.actions import (
    answer_small_talk,
    ask_sources,
    ask_which_flow,
    begin_flow,
    respond,
    send_run_command,
    start_run,
    status_outcome,
)
from loom_core.flow.turns.llm_routing import (
    apply_decision,
    build_action_space,
    decide,
    read_rest_of_request,
    route_by_model,
    route_by_rules,
    route_with_llm,
    with_answer,
    with_rest,
)
from loom_core.flow.turns.plan import TurnPlan, flow_to_cancel, make_plan
from loom_core.flow.turns.replies import late_text
from loom_core.flow.turns.session import check_same_request
from loom_core.flow.turns.turn_context import TurnClock, TurnContext
from loom_core.flow.understanding.choices import choices_of, properties_of
from loom_core.flow.understanding.reply_parser import ParsedReply
from loom_core.flow.understanding.small_talk import classify_small_talk
from loom_core.observability.families import FLOW_MESSAGE_SECONDS, FLOW_ROUTES
from loom_core.observability.log_fields import logging_with
from loom_core.observability.metrics import process_metrics
from loom_core.observability.spans import FLOW_MESSAGE
from loom_core.observability.tracing import span
from loom_core.runs.commands import Abort, ApprovalDecision, InputResponse, Reply, Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from loom_core.flow.config.models import FlowConfig
    from loom_core.flow.knowledge import KnowledgePrefetch
    from loom_core.flow.policy.decision import RoutingDecision
    from loom_core.flow.runtime.runtime import FlowRuntime
    from loom_core.flow.turns.session import ConversationStore, FlowConversation
    from loom_core.runs.host import RunHost
    from loom_core.runs.run import Pending, Run, RunRequest

__all__ = [
    "begin_named_flow",
    "begin_next",
    "check_message",
    "observe",
    "open_turn",
    "process_turn",
    "reply_from_decision",
]

_MAX_LENGTH = 20_000  # characters of a message


def check_message(message: str) -> None:
    """Validate a message.

    Raises:
        InvalidInputError: it is too long, or no text.
    """
    if len(message) > _MAX_LENGTH:
        raise InvalidInputError(
            f"The message has {len(message)} characters.", advice=f"Send at most {_MAX_LENGTH}."
        )
    try:
        message.encode()
    except UnicodeEncodeError:
        raise InvalidInputError("The message is not valid text: it contains a lone surrogate.") from None


def open_turn(
    runtime: FlowRuntime,
    conversation: FlowConversation,
    message: str,
    *,
    conversations: ConversationStore,
    host: RunHost,
    key: str = "",
    since: float | None = None,
) -> TurnContext:
    """Build the context of a turn; the conversation continues in the language of its message."""
    setting = runtime.file.basic_settings.language
    language = language_of(message, setting=setting, before=conversation.language)
    conversation.language = language
    return TurnContext(
        runtime=runtime,
        host=host,
        conversations=conversations,
        conversation=conversation,
        message=message,
        phrases=Phrases(language),
        file=runtime.localize(language),
        clock=TurnClock(since=since),
        key=key,
        run_key=key,
    )


async def observe(turn: TurnContext) -> TurnContext:
    """Add the session's active runs and the matches of trigger patterns."""
    turn = await _with_unfinished(turn)
    with turn.clock.measure("rules"):
        match = await turn.runtime.router.match_in_thread(turn.message)
    return replace(turn, match=match)


async def process_turn(turn: TurnContext) -> TurnOutcome:
    """Process a message as far as possible at once, and save the conversation.

    Raises:
        StoreError: the journal cannot be written.
    """
    conversation = turn.conversation
    turn = replace(turn, late=tuple(await turn.conversations.find_unreported(conversation)))
    if turn.runtime.hands_over:
        turn = replace(turn, lines=tuple(await turn.conversations.find_unread_lines(conversation)))
    with _message_span(turn) as note, turn.situation():
        outcome = await _carry_out(turn)
        note(outcome)
    outcome = _with_late(turn, outcome)
    if outcome.run_id:  # the rest is saved when the run ends or waits
        conversation.expect(outcome.run_id)
        await turn.conversations.save_messages(conversation.session_id, turn.message)
    await turn.conversations.save(conversation)
    return outcome


async def begin_next(turn: TurnContext) -> TurnOutcome | None:
    """Start the next request of an earlier message, and save; None while a run is active.

    The message of the turn is the first one in the conversation's `queue`.

    Raises:
        StoreError: the journal cannot be written.
    """
    conversation = turn.conversation
    turn = await _with_unfinished(turn)
    if turn.unfinished or conversation.offer is not None:
        return None
    last = await turn.conversations.latest_run(conversation)
    further = conversation.queue.pop(0)
    with turn.situation():
        outcome = await _process_further(turn, further, last)
    if outcome.run_id:
        conversation.expect(outcome.run_id)
    await turn.conversations.save(conversation)
    return outcome


async def begin_named_flow(
    turn: TurnContext, request: RunRequest, *, route: RoutingOutcome, known: Run | None
) -> TurnOutcome:
    """Start a flow by its id.

    `known` is the run of an earlier request with the same key.

    Raises:
        InvalidInputError: the key was used with another request.
        StoreError: the journal cannot be written.
    """
    if known is not None:
        check_same_request(known.request, request)
        return TurnOutcome(route=route, run_id=known.id)
    with _message_span(turn) as note:
        run = await start_run(await _with_unfinished(turn), request)
        check_same_request(run.request, request)  # another process may have started it at the same time
        outcome = TurnOutcome(route=route, run_id=run.id)
        note(outcome)
    return outcome


async def _with_unfinished(turn: TurnContext) -> TurnContext:
    unfinished = tuple(await turn.conversations.list_unfinished(turn.conversation))
    known = [run for run in unfinished if turn.file.can_execute(run.request.profile)]
    handed_over = next((run for run in known if any(each.kind == "operator" for each in run.pending)), None)
    waiting = tuple(replace(run, pending=run.questions) for run in known)
    return replace(turn, unfinished=unfinished, waiting=waiting, handed_over=handed_over)


def _with_late(turn: TurnContext, outcome: TurnOutcome) -> TurnOutcome:
    """Add operators' messages and the results of earlier runs to the beginning of an outcome."""
    turn = replace(turn, late=tuple(run for run in turn.late if run.id != outcome.run_id))
    if not turn.late and not turn.lines:
        return outcome
    late = late_text(turn)
    if outcome.run_id:
        turn.conversation.note_late(turn.key, turn.message, outcome.run_id, late)
    return replace(outcome, late=late, told=tuple(each.id for each in (*turn.lines, *turn.late)))


async def _carry_out(turn: TurnContext) -> TurnOutcome:
    """Plan the action, and carry it out."""
    turn = await observe(turn)
    plan = await make_plan(turn)
    turn.conversation.offer = None  # it is open for one message only
    if plan.run is not None:
        return await _about_run(turn, plan, plan.run)
    match plan.kind:
        case "choose" | "begin" if plan.flow is not None:
            return await _begin_planned(turn, plan, plan.flow)
        case "decline":
            return TurnOutcome(route=RoutingOutcome(action="cancel", how="choice"), text=turn.phrases.dropped)
        case "cancel":
            return TurnOutcome(route=RoutingOutcome(action="cancel", how="none"), text=turn.phrases.nothing)
        case "manners":
            return TurnOutcome(
                route=RoutingOutcome(action="greet", how="manners"), text=answer_small_talk(turn)
            )
        case "ask":
            route = replace(route_by_rules(turn.match), action="clarify")
            return ask_which_flow(turn, turn.match.flows, route)
        case _:
            return await route_with_llm(turn)


async def _begin_planned(turn: TurnContext, plan: TurnPlan, flow: FlowConfig) -> TurnOutcome:
    turn.conversation.queue += plan.then
    if plan.kind == "choose":
        route = RoutingOutcome(action="flow", how="choice", reason=plan.reason)
        return await begin_flow(turn, flow, plan.parameters, route=route, message=plan.message)
    given, decision = plan.parameters, None
    if not plan.then:
        if further := find_unread_request(turn.message, turn.runtime.router, turn.match):
            turn.conversation.queue.append(FurtherRequest(message=further))
        if (decision := await read_rest_of_request(turn, flow, given)) is not None:
            given = {**decision.parameters, **given}
    route = route_by_rules(turn.match)
    outcome = await begin_flow(turn, flow, given, route=route, message=plan.message)
    if decision is not None:
        outcome = await with_rest(turn, decision, outcome)
    return await with_answer(turn, plan.aside, outcome) if decision is None or not decision.aside else outcome


async def _about_run(turn: TurnContext, plan: TurnPlan, run: Run) -> TurnOutcome:
    by = turn.conversation.caller
    match plan.kind:
        case "tell" if plan.said is not None:
            route = RoutingOutcome(action="answer", how="pending")
            turn.conversation.queue += plan.then
            return await with_answer(turn, plan.aside, await _apply_reply(turn, run, plan.said, route))
        case "cancel":
            return await send_run_command(
                turn, run, Abort(by=by), route=RoutingOutcome(action="cancel", how="pending")
            )
        case "retry":
            order = Retry(inputs=plan.parameters, by=by)
            return await send_run_command(
                turn, run, order, route=RoutingOutcome(action="retry", how="pending")
            )
        case "status":
            return status_outcome(turn, run)
        case "pass_on":
            return await send_run_command(
                turn,
                run,
                Reply(text=turn.message, by=by),
                route=RoutingOutcome(action="pass_on", how="pending"),
            )
        case "manners":
            return _repeat_question(turn, run)
        case _:
            return await _handle_unclear(turn, plan, run)


async def _process_further(turn: TurnContext, further: FurtherRequest, last: Run | None) -> TurnOutcome:
    """Process a further request of an earlier message, the message of the turn.

    If the previous request failed or was cancelled, the user is asked whether a flow is still wanted.
    """
    turn = replace(turn, run_key=f"after {last.id}" if last is not None else "")
    decision = further.decision
    if decision is None or decision.target not in build_action_space(turn).targets:
        outcome = await _carry_out(turn)
    elif decision.action == "flow" and not _goes_on(further, last):
        offer = Disambiguation(further.message, (decision.target,), {decision.target: decision.parameters})
        turn.conversation.offer = offer
        route = RoutingOutcome(action="clarify", how=further.how, candidates=offer.flows)
        flows = [flow for flow in turn.file.flows if flow.flow_id == decision.target]
        return TurnOutcome(route=route, asked=offer.question(flows, turn.phrases))
    else:
        with turn.runtime.knowledge.pre_query(turn.message, turn.context) as found:
            outcome = await apply_decision(turn, decision, found, how=further.how)
    if outcome.run_id or outcome.asked is not None:
        return outcome
    about = turn.phrases.further.format(request=turn.message)
    return replace(outcome, text=turn.phrases.space.join((about, outcome.text)))


def _goes_on(further: FurtherRequest, last: Run | None) -> bool:
    return further.replaces or (last is not None and last.status == "completed")


@contextmanager
def _message_span(turn: TurnContext) -> Generator[Callable[[TurnOutcome], None]]:
    """Start the span of a message; yield a function that records the outcome.

    The metrics count the message by its outcome, and each log line has its conversation.
    """
    began, session_id = perf_counter(), turn.conversation.session_id
    with (
        logging_with({"conversation": session_id}),
        span(FLOW_MESSAGE, {"gen_ai.conversation.id": session_id}) as started,
    ):

        def note(outcome: TurnOutcome) -> None:
            route = outcome.route
            process_metrics.add(FLOW_ROUTES, route.action, route.how)
            for part, seconds in {**turn.clock.timings, "whole": perf_counter() - began}.items():
                process_metrics.observe(FLOW_MESSAGE_SECONDS, seconds, part)
            said = {"gen_ai.workflow.name": route.flow_id, "loom.run.id": outcome.run_id}
            started.set_attributes({"loom.flow.action": route.action, "loom.flow.how": route.how})
            started.set_attributes({name: value for name, value in said.items() if value})

        yield note


# Application of a reply

_APPROVES = 0.8  # minimum confidence of a model to approve something by words that are no plain yes


async def _apply_reply(turn: TurnContext, run: Run, said: ParsedReply, route: RoutingOutcome) -> TurnOutcome:
    """Pass a reply to a run."""
    pending, by = run.pending[0], turn.conversation.caller
    if said.kind == "cancel":
        return await send_run_command(turn, run, Abort(by=by), route=replace(route, action="cancel"))
    if said.kind in {"approve", "deny"}:
        action: Literal["approve", "deny"] = "approve" if said.kind == "approve" else "deny"
        order = ApprovalDecision(id=pending.id, action=action, by=by)
        return await send_run_command(
            turn, run, order, route=replace(route, action=action), answers=pending.id
        )
    corrects = not said.values.keys() & properties_of(pending.schema)
    route = replace(route, action="correct" if corrects else "answer")
    if pending.kind == "question":
        answer = InputResponse(id=pending.id, action="accept", content=said.values, by=by)
        outcome = await send_run_command(turn, run, answer, route=route, answers=pending.id)
        refused = said.refused  # next to what is accepted
        return replace(outcome, text=turn.phrases.rejection_text(refused)) if refused else outcome
    if pending.kind == "unknown" or turn.file.flow(pending.tool) is None:
        return _ask_again(run, replace(route, action="clarify"), turn.phrases.again)
    edit = ApprovalDecision(id=pending.id, action="edit", arguments=said.values, by=by, ask_again=True)
    return await send_run_command(turn, run, edit, route=route, answers=pending.id)


def _repeat_question(turn: TurnContext, run: Run) -> TurnOutcome:
    """Answer small talk, and repeat the question of the run."""
    text = "" if classify_small_talk(turn.message) == "assent" or turn.match.flow else answer_small_talk(turn)
    return _ask_again(run, RoutingOutcome(action="greet", how="manners"), text)


async def _handle_unclear(turn: TurnContext, plan: TurnPlan, run: Run) -> TurnOutcome:
    """Let the model interpret a reply; without a model, take it as it is, or repeat the question."""
    with turn.runtime.knowledge.pre_query(turn.message, turn.context) as found:
        menu = build_action_space(turn, pending=run.pending[0], asking=plan.asking)
        decision, problem = await decide(turn, menu)
        if decision is not None:
            return await _apply_decision(turn, run, decision, found)
        route = RoutingOutcome(action="answer", how="pending", problem=problem)
        if plan.said is not None and plan.said.kind in {"answer", "approve", "deny"}:
            return await _apply_reply(turn, run, plan.said, route)
        known = await ask_sources(turn, found)
        route = route.with_problem(known.problem)
        answer = turn.runtime.answerer.answer_without_model(known, turn.phrases)
        again, is_told = _why_unclear(turn, plan, run.pending[0])
        text = answer.text if known.items and not is_told else again
        outcome = _ask_again(run, replace(route, action="respond" if known.items else "clarify"), text)
        return replace(outcome, citations=answer.citations)


def _why_unclear(turn: TurnContext, plan: TurnPlan, pending: Pending) -> tuple[str, bool]:
    """Return the text before a repeated question, and whether it says more than that nothing matches."""
    said, phrases = plan.said, turn.phrases
    if (flow := flow_to_cancel(turn.message, turn.file.flows)) is not None:
        return phrases.not_open.format(flow=flow.title), True
    if said is not None and said.either and plan.asking is not None:
        return phrases.ask_which_input(said.either, plan.asking.input_schema), True
    if said is None or said.refused is None:
        return phrases.again, False
    refused = said.refused
    choices = [choice.label_in(phrases.language) for choice in choices_of(refused.schema)]
    if choices and not refused.said and all(label in pending.reason for label in choices):
        return phrases.again, False  # the repeated question lists them
    text = phrases.rejection_text(refused)
    if text == phrases.again:
        text = f"{text}{phrases.space}{phrases.ask_which_text(pending.schema)}".rstrip()
    return text, refused.value is not None or bool(refused.choices or refused.said)


def reply_from_decision(
    turn: TurnContext, run: Run, decision: RoutingDecision
) -> ParsedReply | Literal["else", "respond", "clarify"]:
    """Return the reply to a waiting run by the model's decision; `else`: the message is not for it."""
    is_sure = decision.confidence >= turn.file.confidence
    is_own = decision.action == "flow" and decision.target == run.request.profile
    match decision.action:
        case "answer" | "flow" if (decision.action == "answer" or is_own) and is_sure and decision.parameters:
            corrects = not decision.parameters.keys() & properties_of(run.pending[0].schema)
            return ParsedReply("correct" if corrects else "answer", decision.parameters)
        case "approve" if decision.confidence >= max(turn.file.confidence, _APPROVES):
            return ParsedReply("approve")
        case "deny" | "cancel" if is_sure:
            return ParsedReply(decision.action)
        case "flow" | "skill" | "tool" if is_sure and not is_own:
            return "else"
        case "respond":
            return "respond"
        case _:
            return "clarify"


async def _apply_decision(
    turn: TurnContext, run: Run, decision: RoutingDecision, found: KnowledgePrefetch
) -> TurnOutcome:
    route = route_by_model(decision)
    match reply_from_decision(turn, run, decision):
        case ParsedReply() as said:
            return await with_rest(turn, decision, await _apply_reply(turn, run, said, route))
        case "else":
            return await with_rest(turn, decision, await apply_decision(turn, decision, found))
        case "respond":
            return replace(await respond(turn, found, route), run_id=run.id, again=True)
        case "clarify":
            text = decision.question if decision.action == "clarify" else ""
            return _ask_again(run, replace(route, action="clarify"), text or turn.phrases.again)


def _ask_again(run: Run, route: RoutingOutcome, text: str) -> TurnOutcome:
    """Return a text, and repeat the question of the run."""
    return TurnOutcome(route=route, text=text, run_id=run.id, again=True)
