"""Streams of both wires, cut and divided at every byte, and slow to begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
from pydantic import SecretStr

from loom_core.errors import LLMError
from loom_core.llm.anthropic_messages.client import AnthropicMessagesClient
from loom_core.llm.chat_completions.client import ChatCompletionsClient
from loom_core.llm.interface import ChatRequest, StreamChunk
from loom_core.llm.messages import TextPart, UserMessage
from loom_core.llm.transport.protocol import Connection, WireClient
from loom_core.llm.vendors import VENDORS
from tests.fixtures.streaming_transport import StreamingASGITransport
from tests.fixtures.vendors.app import FakeVendors
from tests.fixtures.vendors.script import Turn

pytestmark = pytest.mark.slow

_BOTH_WIRES = pytest.mark.parametrize("vendor", ["deepseek", "anthropic"])
_REQUEST = ChatRequest(messages=(UserMessage((TextPart("你好"),)),))
_EVENTS: dict[str, tuple[str, ...]] = {
    "deepseek": (
        '{"choices":[{"delta":{"reasoning_content":"想"}}]}',
        '{"choices":[{"delta":{"content":"看😀"}}]}',
        '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"look","arguments":"{"}}]}}]}',
        '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]},"finish_reason":"stop"}]}',
        "[DONE]",
    ),
    "anthropic": (
        '{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"想"}}',
        '{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"看😀"}}',
        '{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"c","name":"look"}}',
        '{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{}"}}',
        '{"type":"message_stop"}',
    ),
}
_BODIES = {
    vendor: "".join(f"data: {event}\n\n" for event in events).encode() for vendor, events in _EVENTS.items()
}


def _client(vendor: str, fake: FakeVendors, http_client: httpx2.AsyncClient) -> WireClient:
    spec = VENDORS[vendor]
    connection = Connection(
        spec=spec,
        model=spec.model,
        base_url=fake.base_url(vendor),
        api_key=SecretStr(fake.key),
        http_client=http_client,
    )
    if spec.wire == "chat_completions":
        return ChatCompletionsClient(connection)
    return AnthropicMessagesClient(connection)


async def _read(vendor: str, *pieces: bytes) -> list[StreamChunk]:
    """Return the chunks parsed from a stream that arrives in these pieces."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        head = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async with httpx2.AsyncClient(transport=StreamingASGITransport(app)) as http_client:
        return [chunk async for chunk in _client(vendor, FakeVendors(), http_client).stream(_REQUEST)]


async def _into(chunks: list[StreamChunk], client: WireClient) -> None:
    """Read a stream; what came before an error is there, too."""
    async for chunk in client.stream(_REQUEST):
        chunks.append(chunk)  # noqa: PERF401 - a comprehension would lose them


def _said(chunks: Sequence[StreamChunk]) -> str:
    return "".join(chunk.tool_call.arguments if chunk.tool_call else chunk.text for chunk in chunks)


@_BOTH_WIRES
async def test_a_stream_cut_at_any_byte_gives_the_beginning_of_the_answer_and_then_an_error(vendor: str):
    body = _BODIES[vendor]
    whole = _said(await _read(vendor, body))
    fake = FakeVendors([Turn(body=body, cut_after=cut) for cut in range(len(body) + 1)])
    came = ""
    async with fake.http_client() as http_client:
        client = _client(vendor, fake, http_client)
        for _ in range(len(body)):
            chunks: list[StreamChunk] = []
            with pytest.raises(LLMError) as caught:
                await _into(chunks, client)
            assert caught.value.failure == "connection"
            assert all(chunk.kind != "done" for chunk in chunks)
            assert _said(chunks).startswith(came)  # a later cut gives the same, or more
            came = _said(chunks)
        assert came == whole
        chunks = []
        await _into(chunks, client)  # the cut is behind the last event
    assert chunks[-1].response is not None
    assert _said(chunks) == whole


@_BOTH_WIRES
async def test_a_stream_that_comes_byte_by_byte_is_the_same(vendor: str):
    body = _BODIES[vendor]
    chunks = await _read(vendor, *(body[place : place + 1] for place in range(len(body))))
    assert "😀" in _said(chunks)
    assert chunks == await _read(vendor, body)


@_BOTH_WIRES
async def test_a_first_token_that_is_slow_is_waited_for(vendor: str):
    go = anyio.Event()
    fake = FakeVendors([Turn(text="好", wait=go)])
    chunks: list[StreamChunk] = []
    async with fake.http_client() as http_client, anyio.create_task_group() as tasks:
        tasks.start_soon(_into, chunks, _client(vendor, fake, http_client))
        with anyio.fail_after(30):
            while not fake.requests:
                await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert chunks == []
        go.set()
    assert _said(chunks) == "好"
    assert fake.disconnects == 0
