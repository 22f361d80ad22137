"""Application of a reply: pass a message to a waiting run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from loom_core.flow.responses.reply import RoutingOutcome, TurnOutcome
from loom_core.flow.turns.actions import answer_small_talk, ask_sources, respond, send_run_command
from loom_core.flow.turns.llm_routing import (
    apply_decision,
    build_action_space,
    decide,
    route_by_model,
    with_rest,
)
from loom_core.flow.turns.plan import flow_to_cancel
from loom_core.flow.understanding.choices import choices_of
from loom_core.flow.understanding.reply_parser import ParsedReply
from loom_core.flow.understanding.small_talk import classify_small_talk
from loom_core.runs.commands import Abort, ApprovalDecision, InputResponse

if TYPE_CHECKING:
    from loom_core.flow.knowledge import KnowledgePrefetch
    from loom_core.flow.policy.decision import RoutingDecision
    from loom_core.flow.turns.plan import TurnPlan
    from loom_core.flow.turns.turn_context import TurnContext
    from loom_core.runs.run import Run

__all__ = ["apply_reply", "handle_unclear", "repeat_question", "reply_from_decision"]

_APPROVES = 0.8  # minimum confidence of a model to approve something by words that are no plain yes


async def apply_reply(turn: TurnContext, run: Run, said: ParsedReply, route: RoutingOutcome) -> TurnOutcome:
    """Pass a reply to a run.

    Args:
        turn: the turn.
        run: the waiting run.
        said: the reply: an answer, a correction, yes, no, or a cancellation.
        route: how that was decided.
    """
    pending, by = run.pending[0], turn.conversation.caller
    if said.kind == "cancel":
        return await send_run_command(turn, run, Abort(by=by), route=replace(route, action="cancel"))
    if said.kind in {"approve", "deny"}:
        action: Literal["approve", "deny"] = "approve" if said.kind == "approve" else "deny"
        order = ApprovalDecision(id=pending.id, action=action, by=by)
        return await send_run_command(
            turn, run, order, route=replace(route, action=action), answers=pending.id
        )
    asked: Mapping[str, Any] = pending.schema.get("properties", {})
    corrects = not {*said.values} & {*asked}
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


def repeat_question(turn: TurnContext, run: Run) -> TurnOutcome:
    """Answer small talk, and repeat the question of the run."""
    text = "" if classify_small_talk(turn.message) == "assent" or turn.match.flow else answer_small_talk(turn)
    return _ask_again(run, RoutingOutcome(action="greet", how="manners"), text)


async def handle_unclear(turn: TurnContext, plan: TurnPlan, run: Run) -> TurnOutcome:
    """Let the model interpret a reply; without a model, take it as it is, or repeat the question."""
    with turn.runtime.knowledge.pre_query(turn.message, turn.context) as found:
        menu = build_action_space(turn, pending=run.pending[0], asking=plan.asking)
        decision, problem = await decide(turn, menu)
        if decision is not None:
            return await _apply_decision(turn, run, decision, found)
        route = RoutingOutcome(action="answer", how="pending", problem=problem)
        if plan.said is not None and plan.said.kind in {"answer", "approve", "deny"}:
            return await apply_reply(turn, run, plan.said, route)
        known = await ask_sources(turn, found)
        route = route.with_problem(known.problem)
        answer = turn.runtime.answerer.answer_without_model(known, turn.phrases)
        again, is_told = _why_unclear(turn, plan, run.pending[0].reason)
        text = answer.text if known.items and not is_told else again
        outcome = _ask_again(run, replace(route, action="respond" if known.items else "clarify"), text)
        return replace(outcome, citations=answer.citations)


def _why_unclear(turn: TurnContext, plan: TurnPlan, question: str) -> tuple[str, bool]:
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
    if choices and not refused.said and all(label in question for label in choices):
        return phrases.again, False  # the repeated question lists them
    return phrases.rejection_text(refused), refused.value is not None or bool(refused.choices or refused.said)


def reply_from_decision(
    turn: TurnContext, run: Run, decision: RoutingDecision
) -> ParsedReply | Literal["else", "respond", "clarify"]:
    """Return the reply to a waiting run by the model's decision; `else`: the message is not for it."""
    is_sure = decision.confidence >= turn.file.confidence
    is_own = decision.action == "flow" and decision.target == run.request.profile
    match decision.action:
        case "answer" | "flow" if (decision.action == "answer" or is_own) and is_sure and decision.parameters:
            asked: Mapping[str, Any] = run.pending[0].schema.get("properties", {})
            corrects = not {*decision.parameters} & {*asked}
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
            return await with_rest(turn, decision, await apply_reply(turn, run, said, route))
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
