from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from loom_core.observability.export import export_traces, is_export_wanted
from tests.fixtures.collector import Collector

pytestmark = pytest.mark.slow

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PROGRAM = """
import json, logging, sys, time
from loom_core.observability.export import export_traces
from loom_core.observability.spans import KNOWLEDGE_SEARCH
from loom_core.observability.tracing import span
logging.basicConfig(stream=sys.stderr, format="%(message)s")
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None
began = time.monotonic()
with export_traces("loom-kb", version="1.2", flush_seconds=0.5):
    with span(KNOWLEDGE_SEARCH):
        pass
    loaded = "opentelemetry.sdk.trace" in sys.modules
    began = time.monotonic()
print(json.dumps([time.monotonic() - began, loaded]))
"""

SDK_PROGRAM = """
from loom_core.observability.export import export_traces
from opentelemetry.trace import StatusCode, get_tracer
with export_traces("loom-kb"):
    said = "Hunter2-Quartz-99x 港口"
    given = {"jsonrpc.request.id": "Hunter2-Quartz-99x", "n": 5}
    name = "tools/call Hunter2-Quartz-99x"
    with get_tracer("mcp-python-sdk").start_as_current_span(name, attributes=given) as span:
        span.record_exception(ValueError(said))
        span.set_status(StatusCode.ERROR, said)
print("[0, true]")
"""


@pytest.fixture
def collectors() -> Iterator[Callable[..., Any]]:
    with closing(Collector()) as answering, closing(Collector(silent=True)) as silent:
        yield {"answering": answering, "silent": silent}.__getitem__


def ran(
    missing: tuple[str, ...] = (), *, program: str = PROGRAM, **variables: str
) -> tuple[float, bool, str]:
    """Seconds that the end took, whether the SDK was loaded, and the log of a program of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(missing)],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    seconds, loaded = json.loads(done.stdout)
    return seconds, loaded, done.stderr


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({ENDPOINT: "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({ENDPOINT: "http://collector:4318", "OTEL_SDK_DISABLED": "True"}, False),
        ({ENDPOINT: "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({ENDPOINT: " "}, False),
    ],
)
def test_the_standard_variables_say_whether_spans_are_sent(environment: dict[str, str], wanted: bool):
    assert is_export_wanted(environment) is wanted


def test_spans_reach_the_collector_with_the_name_of_the_server(collectors):
    collector = collectors("answering")
    ran(**collector.environment)
    (span,) = collector.spans
    assert (span.service, span.name, span.scope) == ("loom-kb", "KNOWLEDGE_SEARCH", "loom_core.knowledge")


@pytest.mark.hostile("secrets")
@pytest.mark.parametrize("content", ["", "1"])
def test_what_the_sdk_of_mcp_writes_into_spans_is_sent_without_secrets(collectors, content: str):
    collector = collectors("answering")
    ran(
        program=SDK_PROGRAM,
        SHOP_PASSWORD="Hunter2-Quartz-99x",
        LOOM_TRACE_CONTENT=content,
        **collector.environment,
    )
    (span,) = collector.spans
    assert (span.name, span.failed) == ("tools/call [secret]", True)
    assert span.attributes == {"jsonrpc.request.id": "[secret]", "n": 5}
    assert "ValueError" in span.said
    assert ("港口" in span.said) == bool(content)
    assert "Hunter2" not in span.said


@pytest.mark.parametrize(
    "variables", [{"OTEL_SERVICE_NAME": "港口"}, {"OTEL_RESOURCE_ATTRIBUTES": "service.name=港口,team=a"}]
)
def test_the_operator_may_name_the_service_otherwise(collectors, variables: dict[str, str]):
    collector = collectors("answering")
    ran(**collector.environment, **variables)
    assert [span.service for span in collector.spans] == ["港口"]


def test_without_a_collector_nothing_is_loaded():
    _, loaded, log = ran()
    assert not loaded
    assert log == ""


def test_a_silent_collector_is_not_waited_for_at_the_end(collectors):
    seconds, _, log = ran(**collectors("silent").environment)
    assert seconds < 2
    assert "did not reach the collector within 0.5 s" in log


@pytest.mark.parametrize(
    ("variables", "missing", "told"),
    [
        ({}, ("opentelemetry.exporter.otlp.proto.http.trace_exporter",), "pip install 'loom-kb[otel]'"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, (), "speaks http/protobuf to collectors, not grpc"),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "1"}, (), "a variable OTEL_… cannot be used"),
    ],
)
def test_what_stands_in_the_way_is_a_warning(variables, missing: tuple[str, ...], told: str):
    _, _, log = ran(missing, **{ENDPOINT: "http://127.0.0.1:9", "PYTHONUTF8": "1"}, **variables)
    assert told in log
    assert "Traceback" not in log


def test_a_provider_of_the_program_s_own_is_left_in_place(spans, collectors, monkeypatch, caplog):
    for name, value in collectors("silent").environment.items():
        monkeypatch.setenv(name, value)
    with caplog.at_level(logging.WARNING), export_traces("loom-kb"):
        pass
    assert caplog.records == []
    assert collectors("silent").asked == 0
