"""Application of a reply: pass a message to a waiting run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from loom_core.flow.responses.reply import Outcome, Route
from loom_core.flow.turns.actions import answer_small_talk, ask_sources, order_run, respond
from loom_core.flow.turns.llm_routing import carry_out, decide, menu_for, route_by_model
from loom_core.flow.turns.plan import named_to_cancel
from loom_core.flow.understanding.reply_parser import Said
from loom_core.flow.understanding.small_talk import manner_of
from loom_core.runs.commands import Abort, Answered, Decided

if TYPE_CHECKING:
    from loom_core.flow.knowledge import PreQuery
    from loom_core.flow.policy.decision import Decision
    from loom_core.flow.turns.plan import Plan
    from loom_core.flow.turns.turn_context import TurnContext
    from loom_core.runs.run import Run

__all__ = ["polite_again", "tell", "told_by", "unclear"]

_APPROVES = 0.8  # minimum confidence of a model to approve something by words that are no plain yes


async def tell(turn: TurnContext, run: Run, said: Said, route: Route) -> Outcome:
    """Pass a reply to a run.

    Args:
        turn: the turn.
        run: the waiting run.
        said: the reply: an answer, a correction, yes, no, or a cancellation.
        route: how that was decided.
    """
    pending, by = run.pending[0], turn.conversation.caller
    if said.kind == "cancel":
        return await order_run(turn, run, Abort(by=by), route=replace(route, action="cancel"))
    if said.kind in {"approve", "deny"}:
        action: Literal["approve", "deny"] = "approve" if said.kind == "approve" else "deny"
        order = Decided(id=pending.id, action=action, by=by)
        return await order_run(turn, run, order, route=replace(route, action=action), answers=pending.id)
    asked: Mapping[str, Any] = pending.schema.get("properties", {})
    corrects = not {*said.values} & {*asked}
    route = replace(route, action="correct" if corrects else "answer")
    if pending.kind == "question":
        answer = Answered(id=pending.id, action="accept", content=said.values, by=by)
        return await order_run(turn, run, answer, route=route, answers=pending.id)
    if pending.kind == "unknown" or turn.file.flow(pending.tool) is None:
        return _again(run, replace(route, action="clarify"), turn.phrases.again)
    edit = Decided(id=pending.id, action="edit", arguments=said.values, by=by, ask_again=True)
    return await order_run(turn, run, edit, route=route, answers=pending.id)


def polite_again(turn: TurnContext, run: Run) -> Outcome:
    """Return small talk, and repeat the question of the run."""
    text = "" if manner_of(turn.message) == "assent" or turn.match.flow else answer_small_talk(turn)
    return _again(run, Route(action="greet", how="manners"), text)


async def unclear(turn: TurnContext, plan: Plan, run: Run) -> Outcome:
    """Let the model interpret a reply; without a model, take it as it is, or repeat the question."""
    with turn.runtime.knowledge.pre_query(turn.message, turn.context) as found:
        menu = menu_for(turn, pending=run.pending[0], asking=plan.asking)
        decision, problem = await decide(turn, menu)
        if decision is not None:
            return await _by_decision(turn, run, decision, found)
        route = Route(action="answer", how="pending", problem=problem)
        if plan.said is not None and plan.said.kind == "answer":
            return await tell(turn, run, plan.said, route)
        known = await ask_sources(turn, found)
        route = route.with_problem(known.problem)
        answer = turn.runtime.answerer.plain(known, turn.phrases)
        again, is_told = _why_unclear(turn, plan)
        text = answer.text if known.items and not is_told else again
        outcome = _again(run, replace(route, action="respond" if known.items else "clarify"), text)
        return replace(outcome, citations=answer.citations)


def _why_unclear(turn: TurnContext, plan: Plan) -> tuple[str, bool]:
    """Return the text before a repeated question, and whether it says more than that nothing matches."""
    said, phrases = plan.said, turn.phrases
    if (flow := named_to_cancel(turn.message, turn.file.flows)) is not None:
        return phrases.not_open.format(flow=flow.title), True
    if said is not None and said.either and plan.asking is not None:
        return phrases.which_input(said.either, plan.asking.input_schema), True
    if said is None or said.refused is None:
        return phrases.again, False
    return phrases.refused_value(said.refused), said.refused.value is not None


def told_by(turn: TurnContext, run: Run, decision: Decision) -> Said | Literal["else", "respond", "clarify"]:
    """Return the reply to a waiting run by the model's decision; `else`: the message is not for it."""
    is_sure = decision.confidence >= turn.file.confidence
    is_own = decision.action == "flow" and decision.target == run.request.profile
    match decision.action:
        case "answer" | "flow" if (decision.action == "answer" or is_own) and is_sure and decision.parameters:
            asked: Mapping[str, Any] = run.pending[0].schema.get("properties", {})
            corrects = not {*decision.parameters} & {*asked}
            return Said("correct" if corrects else "answer", decision.parameters)
        case "approve" if decision.confidence >= max(turn.file.confidence, _APPROVES):
            return Said("approve")
        case "deny" | "cancel" if is_sure:
            return Said(decision.action)
        case "flow" | "skill" | "tool" if is_sure and not is_own:
            return "else"
        case "respond":
            return "respond"
        case _:
            return "clarify"


async def _by_decision(turn: TurnContext, run: Run, decision: Decision, found: PreQuery) -> Outcome:
    route = route_by_model(decision)
    match told_by(turn, run, decision):
        case Said() as said:
            return await tell(turn, run, said, route)
        case "else":
            return await carry_out(turn, decision, found)
        case "respond":
            return replace(await respond(turn, found, route), run_id=run.id, again=True)
        case "clarify":
            text = decision.question if decision.action == "clarify" else ""
            return _again(run, replace(route, action="clarify"), text or turn.phrases.again)


def _again(run: Run, route: Route, text: str) -> Outcome:
    """Return a text, and repeat the question of the run."""
    return Outcome(route=route, text=text, run_id=run.id, again=True)
