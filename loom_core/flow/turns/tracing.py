"""What operators are told of a message: its span and that of its decision, what is counted, and the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

from loom_core.observability.families import FLOW_MESSAGE_SECONDS, FLOW_ROUTES
from loom_core.observability.log_fields import logging_with
from loom_core.observability.metrics import process_metrics
from loom_core.observability.spans import FLOW_DECISION, FLOW_MESSAGE
from loom_core.observability.tracing import failed, span

if TYPE_CHECKING:
    from collections.abc import Generator

    from loom_core.flow.policy.decision import Decision
    from loom_core.flow.turns.responses import Outcome

__all__ = ["DecisionTold", "MessageTold", "decision_span", "message_span"]

MessageTold: TypeAlias = "Callable[[Outcome], None]"
"""Takes down what came of a message."""

DecisionTold: TypeAlias = "Callable[[Decision | None], None]"
"""Takes down what the model has decided; None where it has not."""


@contextmanager
def message_span(session_id: str, *, timings: Mapping[str, float]) -> Generator[MessageTold]:
    """The span of a message, as far as what it wants is done at once. It is counted by what came of it.

    Args:
        session_id: of its conversation, which every line of the log has.
        timings: seconds that each part takes; looked at in the end.
    """
    began = perf_counter()
    with (
        logging_with({"conversation": session_id}),
        span(FLOW_MESSAGE, {"gen_ai.conversation.id": session_id}) as started,
    ):

        def told(outcome: Outcome) -> None:
            route = outcome.route
            process_metrics.add(FLOW_ROUTES, route.action, route.how)
            for part, seconds in {**timings, "whole": perf_counter() - began}.items():
                process_metrics.observe(FLOW_MESSAGE_SECONDS, seconds, part)
            said = {"gen_ai.workflow.name": route.flow_id, "loom.run.id": outcome.run_id}
            started.set_attributes({"loom.flow.action": route.action, "loom.flow.how": route.how})
            started.set_attributes({name: value for name, value in said.items() if value})

        yield told


@contextmanager
def decision_span() -> Generator[DecisionTold]:
    """The span of a decision by the model."""
    with span(FLOW_DECISION) as started:

        def told(decision: Decision | None) -> None:
            if decision is None:
                failed(started, "no_decision")
                return
            started.set_attribute("loom.flow.action", decision.action)
            started.set_attribute("loom.flow.confidence", decision.confidence)
            if decision.action == "flow":
                started.set_attribute("gen_ai.workflow.name", decision.target)
            if decision.problem:
                failed(started, "unreadable")

        yield told
