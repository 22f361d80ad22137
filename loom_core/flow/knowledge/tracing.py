"""What operators are told of a question to the knowledge of a flow file: its span, and what is counted."""

from __future__ import annotations

from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from loom_core.observability.families import FLOW_KNOWLEDGE as QUESTIONS
from loom_core.observability.families import FLOW_KNOWLEDGE_SECONDS
from loom_core.observability.metrics import process_metrics
from loom_core.observability.spans import FLOW_KNOWLEDGE
from loom_core.observability.tracing import failed, span

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.trace import Span

    from loom_core.knowledge.context import ContextOutcome

__all__ = ["QuestionSpan", "note_known", "question_span"]

_OPERATION = {"gen_ai.operation.name": "retrieval"}
_FAILED: frozenset[ContextOutcome] = frozenset({"failed", "late"})


class QuestionSpan:
    """What the span of a question is told.

    Attributes:
        outcome: what came of it; `dropped` as long as nothing has.
    """

    def __init__(self, started: Span) -> None:
        self.outcome: ContextOutcome | Literal["dropped"] = "dropped"
        self._span = started

    def ended(self, outcome: ContextOutcome, *, found: int) -> None:
        """Note what came of it, and how many passages were found."""
        self.outcome = outcome
        self._span.set_attribute("retrieval.result_count", found)
        if outcome in _FAILED:
            failed(self._span, outcome)


@contextmanager
def question_span() -> Generator[QuestionSpan]:
    """The span of a question that a source is asked."""
    began = perf_counter()
    with span(FLOW_KNOWLEDGE, _OPERATION) as started:
        told = QuestionSpan(started)
        try:
            yield told
        finally:
            started.set_attribute("loom.flow.knowledge", told.outcome)
            process_metrics.add(QUESTIONS, told.outcome)
            process_metrics.observe(FLOW_KNOWLEDGE_SECONDS, perf_counter() - began)


def note_known(how: Literal["cached", "shared"]) -> None:
    """Note a question that no source had to be asked: what it finds is kept, or was asked for already."""
    with span(FLOW_KNOWLEDGE, {**_OPERATION, "loom.flow.knowledge": how}):
        process_metrics.add(QUESTIONS, how)
