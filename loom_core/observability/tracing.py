"""Spans of Loom's own work, for whichever OpenTelemetry SDK the program around it has set up.

Without one a span costs some microseconds and goes nowhere. What an error says is not recorded, as it may
quote what people wrote: its kind is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from loom_core.observability.content import records_content, redact_content

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer, TracerProvider
    from opentelemetry.trace import SpanKind as OtelKind

    from loom_core.observability.spans import SpanForm, SpanKind

__all__ = ["AttributeValue", "LoomTracer", "record_failure", "span", "start_span"]

AttributeValue: TypeAlias = str | bool | int | float | Sequence[str]
"""Type of an attribute's value."""


class LoomTracer:
    """Makes spans in the name of an agent, where a program wants them told apart or sent elsewhere.

        tracer = LoomTracer(agent_id="agent-1")
        kb = GraphRAGKnowledgeBase.from_config(tracer=tracer)

    Args:
        agent_id: stands in its spans as `gen_ai.agent.id`; empty for no agent.
        provider: where they go; by default the program's own OpenTelemetry provider.
    """

    def __init__(self, agent_id: str = "", *, provider: TracerProvider | None = None) -> None:
        self._agent_id = agent_id
        self._provider = provider

    @property
    def agent_id(self) -> str:
        """Whose spans these are."""
        return self._agent_id

    @contextmanager
    def span(
        self, form: SpanForm, attributes: Mapping[str, AttributeValue | None] | None = None
    ) -> Generator[Span]:
        """A span around a block; see `span`."""
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
    """A span around a block, the current one while the block runs.

    An `Exception` that leaves the block sets the span's status; it is not caught. A block that is cancelled
    ends without a status: nothing went wrong in it.

    Args:
        form: what is done.
        attributes: what is known before the work begins; what is None is left out.
        tracer: makes it instead of the program's own provider.
        parent: what it belongs to; by default the current span.
        links: what else it has to do with.
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
    """A span that is not the current one, for who ends it: for work that goes on in pieces; else see `span`.

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
    """Write down that the work of a span has failed.

    Args:
        started: the span.
        error: what was raised, or the kind of failure.
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
    """It finds the program's provider by itself, also one that is set up later."""
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
