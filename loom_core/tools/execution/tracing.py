"""The span of a call, by the semantic conventions for generative AI."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from loom_core.observability.content import content_json, hidden, records_content
from loom_core.observability.spans import EXECUTE_TOOL
from loom_core.observability.tracing import failed, span
from loom_core.tools.redaction import redacted_arguments

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.trace import Span

    from loom_core.tools.calls import CallStatus, PlannedCall
    from loom_core.tools.interface import ToolOutput

__all__ = ["CallSpan", "call_span"]


class CallSpan:
    """What the span of a call is told."""

    def __init__(self, started: Span) -> None:
        self._span = started

    def ended(self, status: CallStatus, output: ToolOutput, *, waited: float) -> None:
        """What came of it.

        Args:
            status: how it ended.
            output: what the tool answered.
            waited: seconds before it began.
        """
        if not self._span.is_recording():
            return
        self._span.set_attribute("loom.tool.status", status)
        self._span.set_attribute("loom.tool.waited_ms", 1000 * waited)
        if status in {"error", "timeout"}:
            failed(self._span, "timeout" if status == "timeout" else "tool_error")
        if records_content():
            self._span.set_attribute("gen_ai.tool.call.result", hidden(output.text))


@contextmanager
def call_span(planned: PlannedCall, *, run_id: str) -> Generator[CallSpan]:
    """The span of a call that may run.

    Args:
        planned: the call.
        run_id: whose it is.
    """
    attributes = {
        "gen_ai.operation.name": EXECUTE_TOOL.name,
        "gen_ai.tool.name": planned.name,
        "gen_ai.tool.call.id": planned.call.id,
        "loom.run.id": run_id or None,
    }
    with span(EXECUTE_TOOL, attributes) as started:
        if started.is_recording() and records_content():
            told = content_json(redacted_arguments(planned.arguments))
            started.set_attribute("gen_ai.tool.call.arguments", told)
        yield CallSpan(started)
