from __future__ import annotations

import sys

import httpx2
import pytest
from mcp import Client
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import get_tracer

from loom_core.observability.propagation import inject_context
from loom_core.observability.spans import MCP_SERVER
from tests.fixtures.serving import serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals"),
]

PROTOCOL = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADER = f"00-{TRACE}-00f067aa0ba902b7-01"


def served_of(spans: list[ReadableSpan], method: str) -> ReadableSpan:
    (found,) = [span for span in spans if span.name == method]
    assert set(found.attributes or {}) <= set(MCP_SERVER.attributes)
    return found


async def call(url: str, method: str, params: dict[str, object], **fields: str) -> None:
    """Send a request of the modern era whatever it says; the answer may be an error."""
    message = {
        "jsonrpc": "2.0",
        "id": fields.get("id", 1),
        "method": method,
        "params": {**params, "_meta": {PROTOCOL: "2026-07-28", CAPABILITIES: {}}},
    }
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
    }
    if isinstance(name := params.get("name", params.get("uri")), str):
        headers["Mcp-Name"] = name
    async with httpx2.AsyncClient() as client:
        await client.post(url, json=message, headers=headers)


async def post(url: str, *, meta: dict[str, str], traceparent: str) -> None:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/list",
        "params": {"_meta": {PROTOCOL: "2026-07-28", CAPABILITIES: {}, **meta}},
    }
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/list",
        "traceparent": traceparent,
    }
    async with httpx2.AsyncClient() as client:
        (await client.post(url, json=message, headers=headers)).raise_for_status()


async def test_a_client_that_sends_headers_only_is_understood(sample, spans: list[ReadableSpan]):
    async with serving(sample) as url:
        await post(url, meta={}, traceparent=HEADER)
    span = served_of(spans, "tools/list")
    assert f"{span.context.trace_id:032x}" == TRACE
    attributes = dict(span.attributes or {})
    assert attributes["network.transport"] == "tcp"
    assert attributes["network.protocol.name"] == "http"


async def test_what_meta_says_counts_and_the_headers_are_linked(sample, spans: list[ReadableSpan]):
    with get_tracer("test").start_as_current_span("the client") as client:
        meta = inject_context()
    async with serving(sample) as url:
        await post(url, meta=meta, traceparent=HEADER)
    span = served_of(spans, "tools/list")
    assert span.context.trace_id == client.get_span_context().trace_id
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [TRACE]


@pytest.mark.hostile("HTTP requests")
@pytest.mark.parametrize("header", ["", "nonsense", f"{HEADER}é", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
async def test_nonsense_in_the_headers_is_passed_over(sample, spans: list[ReadableSpan], header: str):
    async with serving(sample) as url:
        await post(url, meta={}, traceparent=header.encode("latin-1"))  # type: ignore[arg-type]
    assert served_of(spans, "tools/list").parent is None


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_session_is_named_in_its_era_and_the_chain_holds_in_both(
    sample, spans: list[ReadableSpan], mode
):
    async with serving(sample) as url, Client(url, mode=mode) as client:
        with get_tracer("test").start_as_current_span("the client") as outer:
            await client.list_tools()
    span = served_of(spans, "tools/list")
    assert span.context.trace_id == outer.get_span_context().trace_id
    session = (span.attributes or {}).get("mcp.session.id", "")
    assert len(str(session)) == (12 if mode == "legacy" else 0)  # of a hash: the id itself lets others in


@pytest.mark.hostile("secrets")
@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "Hunter2-Quartz-99x", "arguments": {}}, "tools/call unknown"),
        ("prompts/get", {"name": "Hunter2-Quartz-99x"}, "prompts/get unknown"),
        ("Hunter2-Quartz-99x/do", {"name": "Hunter2-Quartz-99x"}, "unknown"),
    ],
)
async def test_what_there_is_not_is_unknown_in_a_span(
    sample, spans: list[ReadableSpan], monkeypatch: pytest.MonkeyPatch, method, params, name
):
    monkeypatch.setenv("SHOP_PASSWORD", "Hunter2-Quartz-99x")
    async with serving(sample) as url:
        await call(url, method, params, id="id-Hunter2-Quartz-99x" + "长" * 1000)
    span = served_of(spans, name)
    attributes = dict(span.attributes or {})
    assert "Hunter2" not in str(attributes)
    assert str(attributes["jsonrpc.request.id"]).startswith("id-[secret]长")
    assert len(str(attributes["jsonrpc.request.id"])) <= 300


@pytest.mark.hostile("secrets")
async def test_the_address_of_a_resource_has_no_secret(
    sample, spans: list[ReadableSpan], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHOP_PASSWORD", "Hunter2-Quartz-99x")
    async with serving(sample) as url:
        await call(url, "resources/read", {"uri": "loom://docs/Hunter2-Quartz-99x?token=abc778950&page=2"})
    attributes = dict(served_of(spans, "resources/read").attributes or {})
    assert attributes["mcp.resource.uri"] == "loom://docs/[secret]?token=[secret]&page=2"
