"""One message of a conversation: what is planned is done.

First what the conversation waits for: a choice that it has offered, an answer that a run needs. Then the
words: to end something or to try it again, manners, trigger patterns. Then the model, if there is one, while
the knowledge sources are asked beside it; without one, what they know.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from loom_core.flow.policy.disambiguation import Offer
from loom_core.flow.responses.reply import Route
from loom_core.flow.turns.llm_routing import judged, route_by_rules, with_inputs_by_model
from loom_core.flow.turns.multiple_requests import unread_request
from loom_core.flow.turns.plan import Plan, planned
from loom_core.flow.turns.reply_application import polite_again, tell, unclear
from loom_core.flow.turns.responses import Outcome
from loom_core.runs.commands import Abort, Retry

if TYPE_CHECKING:
    from loom_core.flow.turns.turn_context import Acts

__all__ = ["plan_of", "take", "take_further"]


async def plan_of(acts: Acts) -> Plan:
    """What is to be done with a message, as far as that can be said without a model."""
    await acts.look_around()
    return await planned(acts, await acts.read())


async def take(acts: Acts) -> Outcome:
    """Do what is to be done with a message, as far as that can be done at once.

    Raises:
        RecordError: the journal cannot be written.
    """
    plan = await plan_of(acts)
    acts.conversation.offer = None  # what is not chosen from at once is not offered any more
    if plan.run is not None:
        return await _about_run(acts, plan)
    route = route_by_rules(plan.match)
    match plan.kind:
        case "choose" | "begin" if plan.flow is not None:
            if plan.kind == "choose":
                route = Route(action="flow", how="choice", reason=plan.reason)
            given = plan.parameters
            acts.conversation.queue += plan.then
            if plan.kind == "begin" and not plan.then:
                if further := unread_request(acts.message, acts.equipment.router, plan.match):
                    acts.conversation.queue.append(Offer(further, ()))
                given = await with_inputs_by_model(acts, plan.flow, given)
            return await acts.begin(plan.flow, given, route=route, message=plan.message)
        case "decline":
            return Outcome(route=Route(action="cancel", how="choice"), text=acts.phrases.dropped)
        case "cancel":
            return Outcome(route=Route(action="cancel", how="none"), text=acts.phrases.nothing)
        case "manners":
            return Outcome(route=Route(action="greet", how="manners"), text=acts.polite())
        case "ask":
            return acts.offer(plan.match.flows, replace(route, action="clarify"))
        case _:
            return await judged(acts, plan.match)


async def take_further(acts: Acts) -> Outcome | None:
    """See to a further request of an earlier message that no pattern has read; None while something is open.

    Raises:
        RecordError: the journal cannot be written.
    """
    await acts.look_around()
    if acts.unfinished or acts.conversation.offer is not None:
        return None
    acts.conversation.queue.pop(0)
    last = await acts.last_run()
    acts.key = f"after {last.id}" if last is not None else ""  # begun once, whatever dies in between
    outcome = await take(acts)
    if outcome.run_id or outcome.asked is not None:
        return outcome
    about = acts.phrases.further.format(request=acts.message)
    return replace(outcome, text=acts.phrases.space.join((about, outcome.text)))


async def _about_run(acts: Acts, plan: Plan) -> Outcome:
    run, by = plan.run, acts.conversation.caller
    assert run is not None
    match plan.kind:
        case "tell" if plan.said is not None:
            return await tell(acts, run, plan.said, Route(action="answer", how="pending"))
        case "cancel":
            return await acts.order(run, Abort(by=by), route=Route(action="cancel", how="pending"))
        case "retry":
            order = Retry(inputs=plan.parameters, by=by)
            return await acts.order(run, order, route=Route(action="retry", how="pending"))
        case "status":
            return acts.state_of(run)
        case "manners":
            return polite_again(acts, plan, run)
        case _:
            return await unclear(acts, plan, run)
