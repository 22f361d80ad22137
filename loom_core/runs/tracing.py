"""The span of a run that is driven here, in the trace that it was asked for in."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from loom_core.observability.propagation import parent_of, trace_of
from loom_core.observability.spans import INVOKE_AGENT
from loom_core.observability.tracing import AttributeValue, failed, span
from loom_core.runs.run import TRACE

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from loom_core.observability.spans import SpanForm
    from loom_core.runs.run import Run

__all__ = ["RunTold", "run_span"]

RunTold: TypeAlias = "Callable[[Run], None]"
"""Takes down how a run stands when it is let go of."""


@contextmanager
def run_span(form: SpanForm, run: Run) -> Generator[RunTold]:
    """The span of a run, while it is driven here.

    It belongs to what has it driven: the request that started it, the call that it is for. One that is taken
    up without any, such as after a crash, belongs to the trace that it was asked for in; one that another
    trace takes up, such as that of an approval, is linked to it.

    Args:
        form: `INVOKE_AGENT` or `INVOKE_WORKFLOW`.
        run: as it stands.
    """
    asked = parent_of(run.request.metadata.get(TRACE))
    current = trace_of()
    parent = asked if not current else None
    links: Sequence[Context] = [asked] if asked is not None and current not in {0, trace_of(asked)} else ()
    name = "gen_ai.agent.name" if form is INVOKE_AGENT else "gen_ai.workflow.name"
    attributes: dict[str, AttributeValue | None] = {
        "gen_ai.operation.name": form.name,
        name: run.request.profile,
        "gen_ai.conversation.id": run.request.session_id,
        "loom.run.id": run.id,
        "loom.run.depth": run.request.depth,
    }
    with span(form, attributes, parent=parent, links=links) as started:

        def told(ended: Run) -> None:
            if not started.is_recording():
                return
            spent = ended.spent
            said: dict[str, AttributeValue] = {
                "loom.run.status": ended.status,
                "loom.run.tool_calls": spent.tool_calls,
            }
            if form is INVOKE_AGENT:
                said["loom.run.iterations"] = spent.iterations
                said["gen_ai.usage.input_tokens"] = spent.usage.input_tokens
                said["gen_ai.usage.output_tokens"] = spent.usage.output_tokens
                if spent.usage.cost is not None:
                    said["loom.usage.cost"] = spent.usage.cost
            started.set_attributes(said)
            if ended.status == "failed":
                failed(started, "run_failed")

        yield told
