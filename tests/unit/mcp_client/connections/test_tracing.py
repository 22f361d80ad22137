from __future__ import annotations

import httpx2
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import get_tracer

from loom_core.mcp_client.connections.tracing import trace_http_request, trace_stdio_request
from loom_core.observability.propagation import inject_context
from loom_core.observability.spans import MCP_CLIENT


def posted(url: str = "https://港口.example/mcp") -> httpx2.Request:
    return httpx2.Request("POST", url, headers={"mcp-session-id": "s1", "mcp-protocol-version": "2025-11-25"})


def test_a_request_over_http_says_where_it_goes_and_carries_the_trace(spans: list[ReadableSpan]):
    request = posted()
    with get_tracer("mcp-python-sdk").start_as_current_span("MCP send tools/call query"):
        trace_http_request(request, server="kb")
        assert request.headers["traceparent"] == inject_context()["traceparent"]
    (span,) = spans
    attributes = dict(span.attributes or {})
    assert set(attributes) <= set(MCP_CLIENT.attributes)
    assert attributes == {
        "loom.mcp.server": "kb",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "server.address": request.url.host,
        "server.port": 443,
        "mcp.session.id": "s1",
        "mcp.protocol.version": "2025-11-25",
    }


def test_a_request_through_a_pipe_says_so(spans: list[ReadableSpan]):
    with get_tracer("mcp-python-sdk").start_as_current_span("MCP send tools/list"):
        trace_stdio_request(server="kb")
    assert dict(spans[0].attributes or {}) == {"loom.mcp.server": "kb", "network.transport": "pipe"}


def test_a_span_of_the_program_s_own_is_left_as_it_is(spans: list[ReadableSpan]):
    with get_tracer("test").start_as_current_span("the user's program"):
        trace_http_request(posted("http://127.0.0.1:8765/mcp"), server="kb")
        trace_stdio_request(server="kb")
    assert not spans[0].attributes


def test_without_a_trace_nothing_is_sent():
    request = posted()
    trace_http_request(request, server="kb")
    assert "traceparent" not in request.headers
