"""Explanation of a message: what would be done with it, and why, without doing it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from loom_core.flow.turns.llm_routing import assess_decision, build_action_space, decide, flows_to_ask_about
from loom_core.flow.turns.plan import make_plan
from loom_core.flow.turns.turn import observe, reply_from_decision
from loom_core.flow.understanding.reply_parser import ParsedReply

if TYPE_CHECKING:
    from loom_core.flow.policy.decision import RoutingDecision
    from loom_core.flow.policy.router import RouteMatch
    from loom_core.flow.turns.plan import PlanKind, TurnPlan
    from loom_core.flow.turns.turn_context import TurnContext

__all__ = ["DecidedBy", "Explanation", "explain"]

DecidedBy: TypeAlias = Literal["choice", "pending", "manners", "rules", "model", "none"]

_BY: Mapping[PlanKind, DecidedBy] = {
    "choose": "choice",
    "decline": "choice",
    "tell": "pending",
    "cancel": "pending",
    "retry": "pending",
    "status": "pending",
    "pass_on": "pending",
    "manners": "manners",
    "begin": "rules",
    "ask": "rules",
    "open": "none",
}
_ACTIONS: Mapping[PlanKind, str] = {
    "choose": "flow",
    "decline": "cancel",
    "status": "respond",
    "manners": "greet",
    "begin": "flow",
    "ask": "clarify",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The explanation of a message.

    Attributes:
        decided_by: what would decide: a choice of a candidate, a waiting run, small talk, trigger patterns,
            the model; `none`: nothing, so the answer would come from knowledge.
        action: the action, as in `RoutingOutcome`; empty if only the model would know, and was not asked.
        match: matches of the trigger patterns, with spans and doubts.
        flow_id: the flow that would be started.
        parameters: its inputs, or the values for a run.
        run_id: the run that would get the message.
        said: the parsed reply.
        decision: the model's decision, if it was asked.
        problem: why it did not decide.
        timings: durations in seconds of `rules` and `decision`, and the `total`.
    """

    decided_by: DecidedBy
    action: str
    match: RouteMatch
    flow_id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    run_id: str = ""
    said: ParsedReply | None = None
    decision: RoutingDecision | None = None
    problem: str = ""
    timings: Mapping[str, float] = field(default_factory=dict[str, float])


async def explain(turn: TurnContext, *, ask_model: bool) -> Explanation:
    """Process a message as `turn.process_turn` does, and stop before any effect."""
    with turn.situation():
        return await _explain(turn, ask_model=ask_model)


async def _explain(turn: TurnContext, *, ask_model: bool) -> Explanation:
    began = time.perf_counter()
    turn = await observe(turn)
    plan = await make_plan(turn)
    told: dict[str, Any] = {}
    if plan.kind == "open":
        told = await _open(turn, plan, ask_model=ask_model)
    said = plan.said if plan.kind == "tell" else None
    kind = said.kind if said else plan.kind
    explanation: dict[str, Any] = {
        "decided_by": _BY[plan.kind],
        "action": _ACTIONS.get(plan.kind, kind),
        "flow_id": plan.flow.flow_id if plan.flow else "",
        "parameters": said.values if said else plan.parameters,
        "run_id": plan.run.id if plan.run else "",
        "said": plan.said,
    }
    timings = {**turn.clock.timings, "total": time.perf_counter() - began}
    return Explanation(match=turn.match, timings=timings, **{**explanation, **told})


async def _open(turn: TurnContext, plan: TurnPlan, *, ask_model: bool) -> dict[str, Any]:
    if turn.runtime.decider is not None and not ask_model:
        return {"decided_by": "model", "action": ""}
    pending = plan.run.pending[0] if plan.run else None
    menu = build_action_space(turn, pending=pending, asking=plan.asking)
    decision, problem = await decide(turn, menu)
    if decision is not None:
        action = _action(turn, plan, decision)
        return {
            "decided_by": "model",
            "action": action,
            "flow_id": decision.target if action == "flow" else "",
            "parameters": decision.parameters,
            "decision": decision,
        }
    if plan.run is not None:
        kind = "" if plan.said is None else plan.said.kind
        action = kind if kind in {"answer", "approve", "deny"} else "clarify"
        return {"decided_by": "pending", "action": action, "problem": problem}
    action = "clarify" if flows_to_ask_about(turn.match) else "respond"
    by: DecidedBy = "rules" if turn.match.matches else "none"
    return {"decided_by": by, "action": action, "problem": problem}


def _action(turn: TurnContext, plan: TurnPlan, decision: RoutingDecision) -> str:
    """Return the action that the model's decision would lead to."""
    told = "else" if plan.run is None else reply_from_decision(turn, plan.run, decision)
    if told != "else":
        return told.kind if isinstance(told, ParsedReply) else told
    made = assess_decision(turn, decision)
    return {"begin": "flow", "offer": "clarify", "work": decision.action}.get(made, made)
