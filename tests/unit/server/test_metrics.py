"""Numbers in the text format of Prometheus."""

from __future__ import annotations

import re

from loom_core.server.metrics import Metrics

_LINE = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [-+.e0-9]+')


def test_calls_are_counted_and_their_durations_put_into_buckets():
    metrics = Metrics()
    metrics.called("query", "ok", 0.02)
    metrics.called("query", "ok", 0.025)
    metrics.called("query", "cancelled", 100.0)
    text = metrics.text()
    assert 'loom_tool_calls_total{tool="query",outcome="ok"} 2' in text
    assert 'loom_tool_calls_total{tool="query",outcome="cancelled"} 1' in text
    assert 'loom_tool_seconds_bucket{tool="query",le="0.01"} 0' in text
    assert 'loom_tool_seconds_bucket{tool="query",le="0.025"} 2' in text
    assert 'loom_tool_seconds_bucket{tool="query",le="60"} 2' in text
    assert 'loom_tool_seconds_bucket{tool="query",le="+Inf"} 3' in text
    assert 'loom_tool_seconds_count{tool="query"} 3' in text
    assert 'loom_tool_seconds_sum{tool="query"} 100.04' in text


def test_refusals_and_gauges_are_told():
    metrics = Metrics()
    metrics.refused("host")
    metrics.refused("host")
    sessions = ["one"]
    metrics.gauge("loom_http_sessions", "Sessions.", lambda: len(sessions))
    assert 'loom_http_refused_total{reason="host"} 2' in metrics.text()
    assert "# TYPE loom_http_sessions gauge\nloom_http_sessions 1\n" in metrics.text()
    sessions.append("two")
    assert "loom_http_sessions 2\n" in metrics.text()


def test_every_line_is_of_the_format_also_without_any_number():
    metrics = Metrics()
    assert metrics.text().endswith("\n")
    metrics.called("query", "ok", 0.1)
    metrics.refused("rate")
    for line in metrics.text().splitlines():
        assert line.startswith(("# HELP ", "# TYPE ")) or _LINE.fullmatch(line), line
