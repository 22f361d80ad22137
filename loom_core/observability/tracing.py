"""Tracing of Loom's work with the program's OpenTelemetry SDK.

Without an SDK a span costs some microseconds and is dropped. Error messages are not recorded, as they may
quote texts of people; error types are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from loom_core.redaction import Redaction, redact_log_text

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer, TracerProvider
    from opentelemetry.trace import SpanKind as OtelKind

    from loom_core.observability.spans import SpanForm, SpanKind

__all__ = [
    "CONTENT_VARIABLE",
    "AttributeValue",
    "LoomTracer",
    "content_json",
    "record_failure",
    "records_content",
    "redact_content",
    "span",
    "start_span",
]

AttributeValue: TypeAlias = str | bool | int | float | Sequence[str]
"""Type of an attribute's value."""


class LoomTracer:
    """Creates spans of one agent, to distinguish them or to export them elsewhere.

        tracer = LoomTracer(agent_id="agent-1")
        kb = GraphRAGKnowledgeBase.from_config(tracer=tracer)

    Args:
        agent_id: value of `gen_ai.agent.id` in its spans; empty for no agent.
        provider: the tracer provider; by default the program's.
    """

    def __init__(self, agent_id: str = "", *, provider: TracerProvider | None = None) -> None:
        self._agent_id = agent_id
        self._provider = provider

    @property
    def agent_id(self) -> str:
        """The agent of the spans."""
        return self._agent_id

    @contextmanager
    def span(
        self, form: SpanForm, attributes: Mapping[str, AttributeValue | None] | None = None
    ) -> Generator[Span]:
        """Run a block in a span; see `span`."""
        with span(form, attributes, tracer=self) as started:
            yield started

    def otel(self, scope: str) -> Tracer:
        """Return OpenTelemetry's tracer for a part of Loom."""
        return _program_tracer(scope) if self._provider is None else self._provider.get_tracer(scope)


@contextmanager
def span(
    form: SpanForm,
    attributes: Mapping[str, AttributeValue | None] | None = None,
    *,
    tracer: LoomTracer | None = None,
    parent: Context | None = None,
    links: Sequence[Context] = (),
) -> Generator[Span]:
    """Run a block in a span, as the current span.

    An `Exception` that leaves the block sets the span's status; it is not caught. A cancelled block ends
    without a status, as it did not fail.

    Args:
        form: kind of the span.
        attributes: attributes known at its start; None values are left out.
        tracer: the tracer, instead of the program's provider.
        parent: its parent; by default the current span.
        links: its links.
    """
    from opentelemetry.trace import use_span

    started = start_span(form, attributes, tracer=tracer, parent=parent, links=links)
    with use_span(started, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield started
        except Exception as error:
            record_failure(started, error)
            raise


def start_span(
    form: SpanForm,
    attributes: Mapping[str, AttributeValue | None] | None = None,
    *,
    tracer: LoomTracer | None = None,
    parent: Context | None = None,
    links: Sequence[Context] = (),
) -> Span:
    """Start a span that is not the current one; the caller ends it. For work in pieces; else see `span`.

    Args:
        form: as for `span`, as all others.
        attributes: see there.
        tracer: see there.
        parent: see there.
        links: see there.
    """
    given = {name: value for name, value in (attributes or {}).items() if value is not None}
    name = form.name
    if form.target and (target := given.get(form.target)):
        name = f"{name} {target}"
    if tracer is not None and tracer.agent_id:
        given["gen_ai.agent.id"] = tracer.agent_id
    maker = _program_tracer(form.scope) if tracer is None else tracer.otel(form.scope)
    return maker.start_span(
        name, context=parent, kind=_kinds()[form.kind], attributes=given, links=_links(links)
    )


def record_failure(started: Span, error: Exception | str) -> None:
    """Record a failure in a span.

    Args:
        started: the span.
        error: the exception, or the kind of failure.
    """
    if not started.is_recording():
        return
    from opentelemetry.trace import StatusCode

    told = error if isinstance(error, str) else _kind(error)
    started.set_attribute("error.type", told)
    said = redact_content(str(error)) if isinstance(error, Exception) and records_content() else None
    started.set_status(StatusCode.ERROR, said)


def _kind(error: Exception) -> str:
    failure: object = getattr(error, "failure", "")
    return failure if isinstance(failure, str) and failure else type(error).__qualname__


@cache
def _program_tracer(scope: str) -> Tracer:
    """Return a tracer; it uses the program's provider, also one that is set later."""
    from opentelemetry.trace import get_tracer

    return get_tracer(scope)


@cache
def _kinds() -> Mapping[SpanKind, OtelKind]:
    from opentelemetry.trace import SpanKind as OtelKind

    return {"internal": OtelKind.INTERNAL, "client": OtelKind.CLIENT, "server": OtelKind.SERVER}


def _links(contexts: Sequence[Context]) -> list[Link] | None:
    if not contexts:
        return None
    from opentelemetry.trace import Link, get_current_span

    return [Link(get_current_span(context).get_span_context()) for context in contexts]


CONTENT_VARIABLE = "LOOM_TRACE_CONTENT"
"""Environment variable: set to 1, spans record prompts and responses."""

_LONGEST = 20_000  # characters of an attribute


def records_content() -> bool:
    """Return whether the operator enabled content in traces."""
    return os.environ.get(CONTENT_VARIABLE, "") == "1"


def redact_content(text: str) -> str:
    """Redact a text: secrets of the environment, and anything that looks like a token; truncate it.

    This is best-effort: if traces must never have secrets, do not record content.
    """
    return _truncate(redact_log_text(text))


def content_json(value: object) -> str:
    """Serialize a value as JSON without secrets; other values than JSON's are written as their `repr`."""
    plain: object = json.loads(json.dumps(value, ensure_ascii=False, default=repr))
    # Text by text: in escaped form a secret would not be found.
    return _truncate(json.dumps(Redaction.now(assigned=True).value(plain), ensure_ascii=False))


def _truncate(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… [{len(text):,} characters]"
