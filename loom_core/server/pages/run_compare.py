"""Steps of runs for the page of runs, which shows two runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom_core.agent.steps import AgentStep, read_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.runs.events import StreamEvent

__all__ = ["steps_data"]


def steps_data(events: Sequence[StreamEvent], *, last_seq: int) -> list[dict[str, Any]]:
    """Return the steps of a run for the page's script, which has their texts in the events.

    Args:
        events: the events of the run that are on the page.
        last_seq: the seq of its last event: with some events left out, no step can be numbered.
    """
    return [_step_data(step) for step in read_steps(events)] if len(events) == last_seq else []


def _step_data(step: AgentStep) -> dict[str, Any]:
    return {
        "number": step.number,
        "kind": step.kind,
        "seq": step.seq,
        "calls": [call.id for call in step.calls],
        "status": step.status,
        "tokens": step.tokens,
        "cost": step.cost,
        "seconds": round(step.seconds, 4),
        "copied": step.is_inherited,
        "given": step.is_given,
    }
