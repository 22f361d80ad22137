from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode, get_current_span

from loom_core.errors import LLMError
from loom_core.observability import LoomTracer, span
from loom_core.observability.propagation import extract_context, inject_context
from loom_core.observability.spans import CHAT, KNOWLEDGE_SEARCH
from loom_core.observability.tracing import record_failure, start_span

MODEL = {"gen_ai.request.model": "深思"}


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter: InMemorySpanExporter) -> LoomTracer:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return LoomTracer(agent_id="agent-1", provider=provider)


@pytest.fixture
def finished(exporter: InMemorySpanExporter) -> Iterator[ReadableSpan]:
    def ended() -> Iterator[ReadableSpan]:
        while True:
            (only,) = exporter.get_finished_spans()
            yield only

    return ended()


def test_a_span_has_its_form_and_is_the_current_one(tracer: LoomTracer, finished):
    with tracer.span(CHAT, {**MODEL, "gen_ai.request.temperature": None}) as current:
        assert get_current_span() is current
        current.set_attribute("gen_ai.usage.input_tokens", 3)
    made = next(finished)
    assert made.name == "chat 深思"
    assert made.kind is SpanKind.CLIENT
    assert made.instrumentation_scope.name == "loom_core.llm"
    assert dict(made.attributes or {}) == {
        **MODEL,
        "gen_ai.agent.id": "agent-1",
        "gen_ai.usage.input_tokens": 3,
    }
    assert made.status.status_code is StatusCode.UNSET


def test_a_span_whose_target_is_not_known_has_the_plain_name(tracer: LoomTracer, finished):
    with tracer.span(CHAT, {"gen_ai.request.model": ""}):
        pass
    assert next(finished).name == "chat"


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ValueError("geheim"), "ValueError"), (LLMError("geheim", failure="timeout"), "timeout")],
)
def test_the_kind_of_an_error_is_recorded_and_not_what_it_says(
    tracer: LoomTracer, finished, error: Exception, kind: str
):
    with pytest.raises(type(error)), tracer.span(KNOWLEDGE_SEARCH):
        raise error
    made = next(finished)
    assert made.status.status_code is StatusCode.ERROR
    assert (made.attributes or {})["error.type"] == kind
    assert "geheim" not in made.to_json()


def test_what_an_error_says_is_recorded_where_the_operator_wants_content(
    tracer: LoomTracer, finished, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LOOM_TRACE_CONTENT", "1")
    with pytest.raises(ValueError), tracer.span(KNOWLEDGE_SEARCH):
        raise ValueError("no key sk-abcdefghijklmnop1234 of mine")
    assert next(finished).status.description == "no key [secret] of mine"


def test_being_cancelled_is_no_error(tracer: LoomTracer, finished):
    with pytest.raises(asyncio.CancelledError), tracer.span(KNOWLEDGE_SEARCH):
        raise asyncio.CancelledError
    made = next(finished)
    assert made.status.status_code is StatusCode.UNSET
    assert "error.type" not in (made.attributes or {})


def test_a_span_that_is_started_alone_is_not_the_current_one(tracer: LoomTracer, finished):
    before = get_current_span()
    started = start_span(CHAT, MODEL, tracer=tracer)
    assert get_current_span() is before
    record_failure(started, "gone")
    started.end()
    assert (next(finished).attributes or {})["error.type"] == "gone"


def test_a_span_may_go_on_with_what_was_carried_and_be_linked_to_more(tracer: LoomTracer, finished, exporter):
    with tracer.span(KNOWLEDGE_SEARCH) as one:
        carrier = inject_context()
    with tracer.span(KNOWLEDGE_SEARCH) as two:
        other = inject_context()
    exporter.clear()
    with span(CHAT, MODEL, tracer=tracer, parent=extract_context(carrier), links=[extract_context(other)]):
        pass
    made = next(finished)
    assert made.parent is not None
    assert made.parent.span_id == one.get_span_context().span_id
    assert [link.context.span_id for link in made.links] == [two.get_span_context().span_id]


def test_without_an_sdk_a_span_records_nothing():
    nowhere = LoomTracer(provider=NoOpTracerProvider())
    with nowhere.span(CHAT, MODEL) as current:
        assert not current.is_recording()
        record_failure(current, ValueError("nothing"))
