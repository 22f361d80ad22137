"""Routing by a model where no pattern decides; the knowledge sources are queried at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from loom_core.flow.executor.inputs import missing_inputs, with_defaults
from loom_core.flow.policy.action_space import ActionSpace
from loom_core.flow.policy.decision import FurtherRequest
from loom_core.flow.policy.router import FlowRouter, content_words
from loom_core.flow.responses.reply import RoutingOutcome, TurnOutcome
from loom_core.flow.turns.actions import (
    ask_sources,
    ask_which_flow,
    begin_flow,
    begin_skill_run,
    can_use_skills,
    find_run_asked_about,
    respond,
    status_outcome,
)
from loom_core.flow.turns.plan import answers_at_once
from loom_core.flow.understanding.choices import properties_of
from loom_core.flow.understanding.slots import extract_slots
from loom_core.observability.spans import FLOW_DECISION
from loom_core.observability.tracing import record_failure, span
from loom_core.runs.journal.rows.runs import FINAL_STATUSES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from loom_core.flow.config.models import FlowConfig
    from loom_core.flow.knowledge import KnowledgePrefetch
    from loom_core.flow.policy.decision import RoutingDecision
    from loom_core.flow.policy.router import RouteMatch
    from loom_core.flow.turns.turn_context import TurnContext
    from loom_core.runs.run import Pending

__all__ = [
    "Verdict",
    "apply_decision",
    "assess_decision",
    "build_action_space",
    "decide",
    "flows_to_ask_about",
    "read_rest_of_request",
    "route_by_model",
    "route_by_rules",
    "route_with_llm",
    "with_answer",
    "with_rest",
]

_MORE = 3  # words
Verdict: TypeAlias = Literal["begin", "offer", "work", "respond", "clarify"]
"""Start a flow; ask whether it is meant; run skills or a tool; answer in words; ask in words."""


async def route_with_llm(turn: TurnContext) -> TurnOutcome:
    """Route a message with a model, and carry out the decision."""
    with turn.runtime.knowledge.pre_query(turn.message, turn.context) as found:
        decision, problem = await decide(turn, build_action_space(turn))
        if decision is not None:
            return await with_rest(turn, decision, await apply_decision(turn, decision, found))
        return await _without_model(turn, found, problem)


async def with_rest(turn: TurnContext, decision: RoutingDecision, outcome: TurnOutcome) -> TurnOutcome:
    """Process what else a decision has found in the message: answer a question now, postpone requests."""
    replaces = decision.action == "cancel"
    turn.conversation.queue += [
        FurtherRequest(message=each.text, decision=each, how="model", replaces=replaces)
        for each in decision.then
    ]
    return await with_answer(turn, decision.aside, outcome)


async def with_answer(turn: TurnContext, question: str, outcome: TurnOutcome) -> TurnOutcome:
    """Add the answer to a question to the beginning of an outcome; an empty question adds nothing."""
    if not question:
        return outcome
    asked = replace(turn, message=question, run_key=f"{turn.run_key} aside" if turn.run_key else "")
    match = turn.runtime.router.match(question)
    if match.flow is not None and answers_at_once(turn, match.flow, match.parameters):
        return replace(outcome, text="\n\n".join(filter(None, (await _look_up(asked, match), outcome.text))))
    with turn.runtime.knowledge.pre_query(question, turn.context) as found:
        answer = await respond(asked, found, outcome.route)
    text = "\n\n".join(filter(None, (answer.text, outcome.text)))
    return replace(outcome, text=text, citations=answer.citations, route=answer.route)


async def _look_up(turn: TurnContext, match: RouteMatch) -> str:
    """Run a flow that answers at once, and return its answer; a late one comes with the next reply."""
    assert match.flow is not None
    route = route_by_rules(match)
    begun = await begin_flow(turn, match.flow, match.parameters, route=route, aside=True)
    seconds = turn.clock.remaining(turn.file.knowledge_seconds)
    run = await turn.host.journal.wait_until_idle(begun.run_id, after=0, seconds=seconds)
    if run.status not in FINAL_STATUSES:
        turn.conversation.expect(run.id)
    return run.output


async def read_rest_of_request(
    turn: TurnContext, flow: FlowConfig, given: Mapping[str, Any]
) -> RoutingDecision | None:
    """Let a model read what a message says besides the request for a flow that rules have found in it.

    It is asked only if an input is missing and the message says more than what was found in it.
    """
    missing = missing_inputs(flow.input_schema, with_defaults(flow.input_schema, given))
    if turn.runtime.decider is None or not missing or not _says_more(turn, flow):
        return None
    menu = ActionSpace(flows=[flow], flow_text=FlowRouter([flow]).build_flow_descriptions())
    decision, _ = await decide(turn, menu)
    is_it = decision is not None and decision.action == "flow" and decision.target == flow.flow_id
    return decision if is_it else None


def _says_more(turn: TurnContext, flow: FlowConfig) -> bool:
    """Return whether a message says more than the matches of a flow's patterns and inputs."""
    said = list(turn.message)
    found = extract_slots(turn.message, properties_of(flow.input_schema))
    own = [match for match in turn.match.matches if match.flow_id == flow.flow_id]
    for each in (*own, *found):
        said[each.start : each.end] = " " * (each.end - each.start)
    return len(content_words("".join(said))) >= _MORE


def build_action_space(
    turn: TurnContext, *, pending: Pending | None = None, asking: FlowConfig | None = None
) -> ActionSpace:
    """Build the model's action space; of flows that match equally, it has one."""
    runtime, match = turn.runtime, turn.match
    only = list(match.flows) if match.kind == "ambiguous" else []
    return ActionSpace(
        flows=only or runtime.flows,
        flow_text=runtime.router.build_flow_descriptions(),
        skills=[] if only else runtime.skills,
        tools=[] if only else runtime.free_tools,
        hints=match.hints,
        pending=pending,
        asking=asking,
    )


async def decide(turn: TurnContext, action_space: ActionSpace) -> tuple[RoutingDecision | None, str]:
    """Ask the model for a decision; return None and the reason if there is none or it fails."""
    decider = turn.runtime.decider
    if decider is None:
        return None, ""
    texts = await turn.conversations.messages(turn.conversation.session_id)
    deciding = decider.decide(turn.message, action_space, conversation=texts, context=turn.context)
    with _decision_span() as note:
        found, problem = await turn.clock.wait_for_model(
            "decision", deciding, seconds=turn.file.decision_seconds
        )
        note(found)
    return found, problem


def assess_decision(turn: TurnContext, decision: RoutingDecision) -> Verdict:
    """Assess what a decision of the model allows.

    An unsure decision becomes a question; so does a flow with side effects that the message only names:
    「我不请假了」 starts no leave, however sure the model is.
    """
    is_sure = decision.confidence >= turn.file.confidence
    match decision.action:
        case "flow":
            flow = _flow_of(turn, decision)
            doubted = flow in turn.match.hints and turn.runtime.has_side_effects(flow)
            return "offer" if doubted or not (is_sure or flow.confirm == "never") else "begin"
        case "skill" | "tool" if is_sure:
            return "work" if can_use_skills(turn, decision) else "respond"
        case "respond":
            return "respond"
        case _:
            return "clarify"


async def apply_decision(
    turn: TurnContext,
    decision: RoutingDecision,
    found: KnowledgePrefetch,
    *,
    how: Literal["rules", "model"] = "model",
) -> TurnOutcome:
    """Carry out a decision, by default of the model."""
    route = replace(route_by_model(decision), how=how)
    match assess_decision(turn, decision):
        case "begin":
            return await _begin(turn, decision, route)
        case "offer":
            flow, route = _flow_of(turn, decision), replace(route, action="clarify")
            return ask_which_flow(turn, [flow], route, parameters=decision.parameters)
        case "work":
            return await begin_skill_run(turn, decision, route)
        case "respond":
            return await respond(turn, found, replace(route, action="respond"))
        case "clarify":
            text = decision.question.strip() or turn.phrases.explain
            return TurnOutcome(route=replace(route, action="clarify"), text=text)


def _flow_of(turn: TurnContext, decision: RoutingDecision) -> FlowConfig:
    return next(each for each in turn.runtime.flows if each.flow_id == decision.target)


async def _begin(turn: TurnContext, decision: RoutingDecision, route: RoutingOutcome) -> TurnOutcome:
    flow = _flow_of(turn, decision)
    unsure = bool(decision.inferred) and flow.confirm == "model" and turn.runtime.has_side_effects(flow)
    return await begin_flow(
        turn,
        flow,
        decision.parameters,
        route=route,
        confirm=True if unsure else None,
        reason=turn.phrases.begin.format(flow=turn.file.counterpart_of(flow).title) if unsure else "",
    )


def flows_to_ask_about(match: RouteMatch) -> Sequence[FlowConfig]:
    """Return the flows to ask about if there is no model; empty if the message is answered."""
    if match.kind == "ambiguous":
        return match.flows
    return () if any(each.negation == "question" for each in match.matches) else match.hints


async def _without_model(turn: TurnContext, found: KnowledgePrefetch, problem: str) -> TurnOutcome:
    match = turn.match
    route = replace(route_by_rules(match), action="clarify", problem=problem)
    if asked := flows_to_ask_about(match):
        return ask_which_flow(turn, asked, route)
    known = await ask_sources(turn, found)
    if not known.items and not match.hints and (run := await find_run_asked_about(turn)) is not None:
        return status_outcome(turn, run)
    answer = turn.runtime.answerer.answer_without_model(known, turn.phrases)
    route = replace(route, action="respond").with_problem(known.problem)
    if not match.hints:
        route = replace(route, how="none")
        return TurnOutcome(route=route, text=answer.text, citations=answer.citations)
    offered = ask_which_flow(turn, match.hints, route, text=answer.text if known.items else "")
    return replace(offered, citations=answer.citations)


def route_by_rules(match: RouteMatch) -> RoutingOutcome:
    """Return the route of a match by rules."""
    first = next(iter(match.matches), None)
    return RoutingOutcome(
        action="flow",
        how="rules",
        flow_id=match.flow.flow_id if match.flow else "",
        pattern=first.pattern if first else "",
        start=first.start if first else 0,
        end=first.end if first else 0,
        candidates=tuple(flow.flow_id for flow in (match.flows or match.hints)),
    )


def route_by_model(decision: RoutingDecision) -> RoutingOutcome:
    """Return the route of a decision by a model."""
    return RoutingOutcome(
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


@contextmanager
def _decision_span() -> Generator[Callable[[RoutingDecision | None], None]]:
    """Start the span of a decision; yield a function that records the decision or its absence."""
    with span(FLOW_DECISION) as started:

        def note(decision: RoutingDecision | None) -> None:
            if decision is None:
                record_failure(started, "no_decision")
                return
            started.set_attribute("loom.flow.action", decision.action)
            started.set_attribute("loom.flow.confidence", decision.confidence)
            if decision.action == "flow":
                started.set_attribute("gen_ai.workflow.name", decision.target)
            if decision.problem:
                record_failure(started, "unreadable")

        yield note
