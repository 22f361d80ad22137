"""Requests of a flow file as operators see them: a span each, counted, and told of their trace by choice."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode, format_trace_id

from loom_core.errors import NetError
from loom_core.flow.expressions import ExpressionValues
from loom_core.observability.families import FLOW_REQUEST_SECONDS, FLOW_REQUESTS
from loom_core.observability.spans import FLOW_REQUEST, FLOW_STEP
from loom_core.observability.tracing import span


def told(spans: list[ReadableSpan]) -> tuple[ReadableSpan, dict[str, Any]]:
    (found,) = [each for each in spans if each.name.startswith(FLOW_REQUEST.name)]
    attributes = dict(found.attributes or {})
    assert set(attributes) <= set(FLOW_REQUEST.attributes)
    return found, attributes


async def test_a_request_is_one_span_with_all_its_attempts(api, caller, endpoint, spans, counted) -> None:
    url = api.on("/orders/secret", 503, {"ok": True})
    await caller.call(endpoint(f"{url}?card=4711", "GET"), ExpressionValues(), run_id="run_1")

    found, attributes = told(spans)
    port = int(api.url("").rpartition(":")[2].strip("/"))
    assert found.name == "HTTP GET"
    assert attributes == {
        "http.request.method": "GET",
        "http.request.resend_count": 1,
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": port,
        "loom.run.id": "run_1",
    }
    assert counted.samples(FLOW_REQUESTS) == {("GET", "2xx"): 1}
    assert set(counted.sums(FLOW_REQUEST_SECONDS)) == {("GET",)}


@pytest.mark.parametrize(("status", "counts_as"), [(404, "4xx"), (500, "5xx"), (999, "other")])
async def test_a_refusal_is_an_error_with_its_status(
    status: int, counts_as: str, api, caller, endpoint, spans, counted
) -> None:
    await caller.call(endpoint(api.on("/pay", status), "POST"), ExpressionValues())
    found, attributes = told(spans)
    assert (attributes["error.type"], found.status.status_code) == (str(status), StatusCode.ERROR)
    assert found.status.description is None
    assert counted.samples(FLOW_REQUESTS) == {("POST", counts_as): 1}


async def test_no_answer_is_told_by_its_failure(callers, endpoint, spans, counted) -> None:
    async with callers(net={"only": ["api.example"]}) as caller:
        with pytest.raises(NetError):
            await caller.call(endpoint("http://127.0.0.1:9/内部", "DELETE"), ExpressionValues())
    _, attributes = told(spans)
    assert attributes["error.type"] == "refused"
    assert "http.response.status_code" not in attributes
    assert counted.samples(FLOW_REQUESTS) == {("DELETE", "refused"): 1}


async def test_what_no_one_waits_for_any_more_has_not_failed(api, caller, endpoint, spans, counted) -> None:
    came, wanted = anyio.Event(), endpoint(api.url("/slow"), "GET")

    def never(asked, connection) -> None:
        anyio.from_thread.run_sync(came.set, token=token)
        connection.recv(1)
        raise OSError("closed")

    token = anyio.lowlevel.current_token()
    api.on("/slow", never)
    async with anyio.create_task_group() as group:
        group.start_soon(caller.call, wanted, ExpressionValues())
        with anyio.fail_after(30):
            await came.wait()
        group.cancel_scope.cancel()
    found, attributes = told(spans)
    assert "error.type" not in attributes
    assert found.status.status_code is StatusCode.UNSET
    assert counted.samples(FLOW_REQUESTS) == {("GET", "cancelled"): 1}


@pytest.mark.parametrize("written", ["127.0.0.1", "*.0.0.1"])
async def test_a_host_that_the_file_names_is_told_the_trace(
    written: str, api, callers, endpoint, spans
) -> None:
    url = api.on("/orders", 503, {"ok": True})
    async with callers(net={"trace": [written]}) as caller:
        with span(FLOW_STEP) as outer:
            await caller.call(endpoint(url, "GET"), ExpressionValues())
    found, _ = told(spans)
    trace = format_trace_id(outer.get_span_context().trace_id)
    parent = f"00-{trace}-{found.get_span_context().span_id:016x}"
    assert [each.headers["traceparent"].rpartition("-")[0] for each in api.asked] == [parent, parent]


async def test_no_other_host_is_told_and_what_the_file_writes_itself_stays(
    api, callers, endpoint, spans
) -> None:
    url = api.on("/orders", {"ok": True})
    own = {"TraceParent": "00-mine"}
    async with (
        callers(net={"trace": ["api.example", "*.example.org"]}) as caller,
        callers(net={"trace": ["127.0.0.1"]}) as telling,
    ):
        with span(FLOW_STEP):
            await caller.call(endpoint(url, "GET"), ExpressionValues())
            await telling.call(endpoint(url, "GET", headers=own), ExpressionValues())
    assert [each.headers.get("traceparent") for each in api.asked] == [None, "00-mine"]
    assert all("tracestate" not in each.headers for each in api.asked)
