from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, get_current_span

from loom_core.observability import span


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter: InMemorySpanExporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider.get_tracer("test")


def test_a_span_has_its_attributes_and_is_the_current_one(tracer, exporter: InMemorySpanExporter):
    with span("WORK", scope="loom_core.test", tracer=tracer, attributes={"a": 1}) as current:
        assert get_current_span() is current
        current.set_attribute("b", True)
    (finished,) = exporter.get_finished_spans()
    assert finished.name == "WORK"
    assert dict(finished.attributes or {}) == {"a": 1, "b": True}
    assert finished.status.status_code is StatusCode.UNSET


def test_an_error_is_recorded_and_goes_on(tracer, exporter: InMemorySpanExporter):
    with pytest.raises(ValueError, match="wrong"), span("WORK", scope="loom_core.test", tracer=tracer):
        raise ValueError("wrong")
    (finished,) = exporter.get_finished_spans()
    assert finished.status.status_code is StatusCode.ERROR
    (event,) = finished.events
    assert dict(event.attributes or {})["exception.type"] == "ValueError"


def test_being_cancelled_is_no_error(tracer, exporter: InMemorySpanExporter):
    with pytest.raises(asyncio.CancelledError), span("WORK", scope="loom_core.test", tracer=tracer):
        raise asyncio.CancelledError
    (finished,) = exporter.get_finished_spans()
    assert finished.status.status_code is StatusCode.UNSET
    assert not finished.events


def test_without_an_sdk_a_span_records_nothing():
    with span("WORK", scope="loom_core.test") as current:
        assert not current.is_recording()
