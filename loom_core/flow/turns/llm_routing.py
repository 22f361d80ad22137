"""What patterns leave open: decided by the model while the sources are asked; or by what they know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from loom_core.flow.executor.inputs import missing_inputs, with_defaults
from loom_core.flow.policy.action_space import Menu
from loom_core.flow.policy.disambiguation import Offer
from loom_core.flow.policy.router import FlowRouter
from loom_core.flow.responses.reply import Route
from loom_core.flow.turns.multiple_requests import content_words
from loom_core.flow.turns.responses import Outcome
from loom_core.flow.turns.tracing import decision_span
from loom_core.flow.understanding.found_inputs import found_inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.flow.config.models import FlowConfig
    from loom_core.flow.knowledge import PreQuery
    from loom_core.flow.policy.decision import Decision
    from loom_core.flow.policy.router import RouteMatch
    from loom_core.flow.runtime.runtime import Equipment
    from loom_core.flow.turns.turn_context import Acts
    from loom_core.runs.run import Pending

__all__ = [
    "Verdict",
    "asked_without_model",
    "carry_out",
    "decided",
    "judged",
    "menu_for",
    "route_by_model",
    "route_by_rules",
    "verdict",
    "with_inputs_by_model",
]

_MORE = 3  # words
Verdict: TypeAlias = Literal["begin", "offer", "work", "respond", "clarify"]
"""A flow is begun; it is asked whether it is meant; skills or a tool work; words answer; words ask."""


async def judged(acts: Acts, match: RouteMatch) -> Outcome:
    """What comes of a message that no pattern has settled."""
    with acts.equipment.knowledge.pre_query(acts.message, acts.context) as found:
        decision, problem = await decided(acts, menu_for(acts.equipment, match))
        if decision is not None:
            return await carry_out(acts, decision, match, found)
        return await _without_model(acts, match, found, problem)


async def with_inputs_by_model(acts: Acts, flow: FlowConfig, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Inputs of a flow that rules have chosen, with those that a model finds in what is left of the message.

    It is asked only where an input is missing and the message says more than what was found in it.
    """
    missing = missing_inputs(flow.input_schema, with_defaults(flow.input_schema, given))
    if acts.equipment.decider is None or not missing or not _says_more(acts, flow):
        return given
    menu = Menu(flows=[flow], flow_text=FlowRouter([flow]).build_flow_descriptions())
    decision, _ = await decided(acts, menu)
    is_it = decision is not None and decision.action == "flow" and decision.target == flow.flow_id
    return {**decision.parameters, **given} if decision is not None and is_it else given


def _says_more(acts: Acts, flow: FlowConfig) -> bool:
    """Whether a message says more than what the patterns of a flow fit, and what its inputs were found by."""
    said = list(acts.message)
    named: Any = flow.input_schema.get("properties") or {}
    found = found_inputs(
        acts.message, {name: part for name, part in named.items() if isinstance(part, Mapping)}
    )
    own = [match for match in acts.match.matches if match.flow_id == flow.flow_id]
    for each in (*own, *found):
        said[each.start : each.end] = " " * (each.end - each.start)
    return len(content_words("".join(said))) >= _MORE


def menu_for(
    equipment: Equipment,
    match: RouteMatch,
    *,
    pending: Pending | None = None,
    asking: FlowConfig | None = None,
) -> Menu:
    """What the model may choose from: of flows that fit alike, one of those.

    Args:
        equipment: has all that there is.
        match: what the patterns say.
        pending: what a run waits for.
        asking: its flow.
    """
    only = list(match.flows) if match.kind == "ambiguous" else []
    return Menu(
        flows=only or equipment.flows,
        flow_text=equipment.router.build_flow_descriptions(),
        skills=[] if only else equipment.skills,
        tools=[] if only else equipment.free_tools,
        hints=match.hints,
        pending=pending,
        asking=asking,
    )


async def decided(acts: Acts, menu: Menu) -> tuple[Decision | None, str]:
    """What the model says; None where there is none, or it fails, and why."""
    decider = acts.equipment.decider
    if decider is None:
        return None, ""
    texts = await acts.texts()
    deciding = decider.decide(acts.message, menu, conversation=texts, context=acts.context)
    with decision_span() as told:
        found, problem = await acts.patience.by_model(
            "decision", deciding, seconds=acts.file.decision_seconds
        )
        told(found)
    if found is not None and found.more and found.action != "clarify" and not acts.conversation.queue:
        acts.conversation.queue.append(Offer(found.more, ()))
    return found, problem


def verdict(acts: Acts, decision: Decision, match: RouteMatch) -> Verdict:
    """What is made of what the model has decided.

    What it is not sure of becomes a question; so does a flow that changes something and that the words of
    the message only name: 「我不请假了」 begins no leave, however sure a model is.
    """
    is_sure = decision.confidence >= acts.file.confidence
    match decision.action:
        case "flow":
            flow = _flow_of(acts, decision)
            doubted = flow in match.hints and acts.equipment.changes_something(flow)
            return "offer" if doubted or not (is_sure or flow.confirm == "never") else "begin"
        case "skill" | "tool" if is_sure:
            return "work" if acts.can_work(decision) else "respond"
        case "respond":
            return "respond"
        case _:
            return "clarify"


async def carry_out(acts: Acts, decision: Decision, match: RouteMatch, found: PreQuery) -> Outcome:
    """Do what is made of what the model has decided."""
    route = route_by_model(decision)
    match verdict(acts, decision, match):
        case "begin":
            return await _begun(acts, decision, route)
        case "offer":
            flow, route = _flow_of(acts, decision), replace(route, action="clarify")
            return acts.offer([flow], route, parameters=decision.parameters)
        case "work":
            return await acts.work(decision, route)
        case "respond":
            return await acts.respond(found, replace(route, action="respond"))
        case "clarify":
            text = decision.question.strip() or acts.phrases.explain
            return Outcome(route=replace(route, action="clarify"), text=text)


def _flow_of(acts: Acts, decision: Decision) -> FlowConfig:
    return next(each for each in acts.equipment.flows if each.flow_id == decision.target)


async def _begun(acts: Acts, decision: Decision, route: Route) -> Outcome:
    flow = _flow_of(acts, decision)
    unsure = bool(decision.inferred) and flow.confirm == "model" and acts.equipment.changes_something(flow)
    return await acts.begin(
        flow,
        decision.parameters,
        route=route,
        confirm=True if unsure else None,
        reason=acts.phrases.begin.format(flow=acts.told(flow).title) if unsure else "",
    )


def asked_without_model(match: RouteMatch) -> Sequence[FlowConfig]:
    """The flows of which it is asked whether they are meant, where no model says; else it is answered."""
    if match.kind == "ambiguous":
        return match.flows
    return () if any(each.doubt == "question" for each in match.matches) else match.hints


async def _without_model(acts: Acts, match: RouteMatch, found: PreQuery, problem: str) -> Outcome:
    route = replace(route_by_rules(match), action="clarify", problem=problem)
    if asked := asked_without_model(match):
        return acts.offer(asked, route)
    known = await acts.known(found)
    if not known.items and not match.hints and (run := await acts.run_asked_about()) is not None:
        return acts.state_of(run)
    answer = acts.equipment.answerer.plain(known, acts.phrases)
    route = replace(route, action="respond").with_problem(known.problem)
    if not match.hints:
        route = replace(route, how="none")
        return Outcome(route=route, text=answer.text, citations=answer.citations)
    offered = acts.offer(match.hints, route, text=answer.text if known.items else "")
    return replace(offered, citations=answer.citations)


def route_by_rules(match: RouteMatch) -> Route:
    """How patterns decide."""
    first = next(iter(match.matches), None)
    return Route(
        action="flow",
        how="rules",
        flow_id=match.flow.flow_id if match.flow else "",
        pattern=first.pattern if first else "",
        start=first.start if first else 0,
        end=first.end if first else 0,
        candidates=tuple(flow.flow_id for flow in (match.flows or match.hints)),
    )


def route_by_model(decision: Decision) -> Route:
    """How a model decides."""
    return Route(
        action=decision.action,
        how="model",
        flow_id=decision.target if decision.action == "flow" else "",
        skills=decision.skills,
        tool=decision.target if decision.action == "tool" else "",
        confidence=decision.confidence,
        reason=decision.reason,
        dropped=decision.dropped,
        problem=decision.problem,
    )
