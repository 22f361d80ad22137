from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from loom_core.errors import ConfigError, LLMError
from loom_core.llm.anthropic_messages.client import AnthropicMessagesClient
from loom_core.llm.interface import ChatRequest, LLMResponse, OutputSchema, StreamChunk, ToolSpec
from loom_core.llm.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from loom_core.llm.transport.protocol import Connection
from loom_core.llm.vendors import ANTHROPIC, DEEPSEEK, ProviderSpec
from tests.fixtures.streaming_transport import StreamingASGITransport
from tests.fixtures.vendors.anthropic_blocks import REDACTED, anthropic_signature
from tests.fixtures.vendors.app import FakeVendors
from tests.fixtures.vendors.script import Call, Tokens, Turn

_MODELS = (
    "claude-sonnet-5-5",
    "claude-opus-5-5",
    "claude-haiku-5-5",
    "claude-fable-5-1",
    "claude-opus-5",
    "claude-sonnet-5",
    "claude-opus-4-8",
    "claude-haiku-4-5",
)
_QUESTION = UserMessage((TextPart("天气怎么样？"),))
_WEATHER = ToolSpec("weather", "天气", {"type": "object", "properties": {"城市": {"type": "string"}}})


@asynccontextmanager
async def _client(
    fake: FakeVendors, model: str = "claude-sonnet-5-5", *, key: str | None = None, **options: Any
) -> AsyncIterator[AnthropicMessagesClient]:
    async with fake.http_client() as http_client:
        connection = Connection(
            spec=ANTHROPIC.for_model(model),
            model=model,
            base_url=fake.base_url("anthropic"),
            api_key=SecretStr(key or fake.key),
            http_client=http_client,
            timeout=options.pop("timeout", 5.0),
        )
        yield AnthropicMessagesClient(connection, **options)


@asynccontextmanager
async def _client_of(
    app: Callable[..., Any],
    spec: ProviderSpec = ANTHROPIC,
    *,
    key: str | None = "key-of-8",
    base_url: str = "http://fake",
    headers: dict[str, str] | None = None,
    **options: Any,
) -> AsyncIterator[AnthropicMessagesClient]:
    async with httpx2.AsyncClient(transport=StreamingASGITransport(app)) as http_client:
        connection = Connection(
            spec=spec,
            model="m",
            base_url=base_url,
            api_key=None if key is None else SecretStr(key),
            http_client=http_client,
            headers=headers or {},
        )
        yield AnthropicMessagesClient(connection, **options)


def _app(
    body: bytes, content_type: str = "application/json", seen: list[Any] | None = None
) -> Callable[..., Any]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if seen is not None:
            seen.append((scope["path"], {name.decode(): value.decode() for name, value in scope["headers"]}))
        head = [(b"content-type", content_type.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})

    return app


def _request(*messages: Message, **options: Any) -> ChatRequest:
    return ChatRequest(messages=messages or (_QUESTION,), **options)


async def _streamed(client: AnthropicMessagesClient, request: ChatRequest) -> list[StreamChunk]:
    async with aclosing(client.stream(request)) as chunks:
        return [chunk async for chunk in chunks]


def _last(chunks: Sequence[StreamChunk]) -> LLMResponse:
    assert chunks[-1].kind == "done"
    assert chunks[-1].response is not None
    return chunks[-1].response


_ANSWER = json.dumps(
    {
        "type": "message",
        "model": "claude-x",
        "content": [{"type": "text", "text": "晴"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
).encode()


@pytest.mark.parametrize("model", _MODELS)
async def test_a_turn_with_tools_and_thinking_goes_all_the_way(model: str):
    fake = FakeVendors(
        [
            Turn(
                text="我看看", reasoning="先查天气", redacted=True, calls=(Call("weather", {"城市": "北京"}),)
            ),
            Turn(text="晴", usage=Tokens(30, 5, 2, 10)),
        ]
    )
    async with _client(fake, model) as client:
        first = await client.complete(_request(tools=(_WEATHER,), effort="high"))
        assert first.finish == "tool_calls"
        call = first.message.tool_calls[0]
        history = (_QUESTION, first.message, ToolMessage(call.id, (TextPart("晴，25 度"),)))
        chunks = await _streamed(client, _request(*history, tools=(_WEATHER,), effort="high"))
    assert "".join(chunk.text for chunk in chunks) == "晴"
    answer = _last(chunks)
    assert (answer.content, answer.finish, answer.model) == ("晴", "stop", model)
    usage = answer.usage
    assert (usage.input_tokens, usage.output_tokens) == (30, 5)
    assert (usage.reasoning_tokens, usage.cache_read_tokens) == (2, 10)
    sent = fake.requests[1].body["messages"][1]["content"]
    assert [block["type"] for block in sent] == ["thinking", "redacted_thinking", "text", "tool_use"]


async def test_a_stream_and_a_whole_answer_are_the_same():
    turn = Turn(text="你好，世界", reasoning="嗯", calls=(Call("weather", {"城市": "北京"}),))
    fake = FakeVendors([turn, turn])
    async with _client(fake) as client:
        whole = await client.complete(_request(tools=(_WEATHER,)))
        chunks = await _streamed(client, _request(tools=(_WEATHER,)))
    streamed = _last(chunks)
    assert streamed.usage == whole.usage
    assert streamed.message.parts[:2] == whole.message.parts[:2]
    assert streamed.message.tool_calls[0].arguments == whole.message.tool_calls[0].arguments
    assert [chunk.usage for chunk in chunks if chunk.kind == "usage"] == [whole.usage]


async def test_an_answer_of_a_form_comes_as_text():
    schema = {"type": "object", "properties": {"名": {"type": "string"}}, "required": ["名"]}
    request = _request(output=OutputSchema("entity", schema))
    fake = FakeVendors([Turn(text='{"名": "甲"}')])
    async with _client(fake) as client:
        assert (await client.complete(request)).content == '{"名": "甲"}'
    by_tool = json.dumps(
        {
            "content": [{"type": "tool_use", "id": "t", "name": "entity", "input": {"名": "甲"}}],
            "stop_reason": "tool_use",
        }
    ).encode()
    async with _client_of(_app(by_tool), replace(ANTHROPIC.for_model("claude-opus-4-1"))) as client:
        answer = await client.complete(request)
    assert (answer.content, answer.finish) == ('{"名": "甲"}', "stop")


@pytest.mark.parametrize(
    ("turn", "failure"),
    [
        (Turn(status=400), "invalid_request"),
        (Turn(status=401), "authentication"),
        (Turn(status=404), "not_found"),
        (Turn(status=408), "timeout"),
        (Turn(status=413), "too_long"),
        (Turn(status=429, headers={"retry-after": "2"}), "rate_limit"),
        (Turn(status=500), "server"),
        (Turn(status=503), "overloaded"),
        (Turn(status=529), "overloaded"),
        (Turn(body=b"{"), "unreadable"),
        (Turn(body=b"[" * 100_000), "unreadable"),
        (Turn(body=b"[]"), "unreadable"),
        (Turn(body=b"{}"), "unreadable"),
        (Turn(body=b'{"type": "error", "error": {"type": "overloaded_error"}}'), "overloaded"),
        (Turn(body=b'{"type": "error", "error": {"code": 429, "message": "later"}}'), "rate_limit"),
        (Turn(body=b'{"error": {"code": "401", "message": "who?"}}'), "authentication"),
        (Turn(text="好" * 100, cut_after=40), "connection"),
        (Turn(text="好", hang_after=5), "timeout"),
    ],
)
async def test_what_goes_wrong_has_its_failure(turn: Turn, failure: str):
    async with _client(FakeVendors([turn]), timeout=0.2 if failure == "timeout" else 20) as client:
        with pytest.raises(LLMError) as caught:
            await client.complete(_request())
    error = caught.value
    assert (error.failure, error.provider) == (failure, "anthropic")
    assert error.retry_after == (2.0 if turn.status == 429 else None)
    assert error.__suppress_context__ or error.__context__ is None


@pytest.mark.parametrize(
    ("turn", "failure"),
    [
        (Turn(status=429), "rate_limit"),
        (Turn(text="好" * 50, stream_error="Overloaded"), "overloaded"),
        (Turn(body=b"event: message_start\ndata: {nonsense\n\n"), "unreadable"),
        (Turn(body=b"data: []\n\n"), "unreadable"),
        (Turn(body=b"data: {}\n\ndata: [DONE]\n\n"), "connection"),
        (Turn(body=b'data: {"error": {"code": 429, "message": "later"}}\n\n'), "rate_limit"),
        (Turn(body=b'event: error\ndata: {"type": "error", "error": {"code": "402"}}\n\n'), "quota"),
        (Turn(body=b"\xff\xfe"), "connection"),
        (Turn(text="好" * 50, hang_after=500), "timeout"),
    ],
)
async def test_what_goes_wrong_in_a_stream_has_its_failure(turn: Turn, failure: str):
    async with _client(FakeVendors([turn]), timeout=0.2 if failure == "timeout" else 20) as client:
        with pytest.raises(LLMError) as caught:
            await _streamed(client, _request())
    assert caught.value.failure == failure


async def test_who_leaves_a_stream_ends_it_at_the_server():
    fake = FakeVendors([Turn(text="一二三四五六七八九十" * 50, hang_after=900)])
    async with _client(fake) as client:
        async with aclosing(client.stream(_request())) as chunks:
            async for chunk in chunks:
                assert chunk.kind == "text"
                break
        assert fake.disconnects == 1


async def test_who_is_cancelled_ends_the_request_at_the_server():
    arrived = anyio.Event()

    def hang(_request: object) -> Turn:
        arrived.set()
        return Turn(text="好", hang_after=0)

    fake = FakeVendors(hang)
    async with _client(fake) as client, anyio.create_task_group() as group:
        group.start_soon(client.complete, _request())
        await arrived.wait()
        group.cancel_scope.cancel()
    assert fake.disconnects == 1


async def test_a_wrong_key_is_refused_and_not_told():
    fake = FakeVendors([])
    async with _client(fake, key="secret-of-mine-123") as client:
        with pytest.raises(LLMError, match="ANTHROPIC_API_KEY") as caught:
            await client.complete(_request())
    assert caught.value.failure == "authentication"
    assert "secret-of-mine" not in str(caught.value)


@pytest.mark.hostile("HTTP answers")
async def test_an_answer_that_is_too_long_is_refused():
    async with _client_of(_app(_ANSWER), max_length=50) as client:
        with pytest.raises(LLMError, match="more than 50 bytes"):
            await client.complete(_request())
    async with _client(FakeVendors([Turn(text="好" * 600)]), max_length=500) as client:
        with pytest.raises(LLMError, match="more than 500 characters"):
            await _streamed(client, _request())
    endless = _app(b"data: " + b"x" * 10_000, "text/event-stream")
    async with _client_of(endless, max_length=5000) as client:
        with pytest.raises(LLMError) as caught:
            await _streamed(client, _request())
    assert caught.value.failure == "unreadable"


async def test_a_server_that_does_not_stream_is_understood():
    async with _client_of(_app(_ANSWER)) as client:
        chunks = await _streamed(client, _request())
    assert [chunk.kind for chunk in chunks] == ["text", "usage", "done"]
    assert _last(chunks).content == "晴"


async def test_a_server_that_answers_with_a_page_is_unreadable():
    async with _client_of(_app(b"<html>", "text/html")) as client:
        with pytest.raises(LLMError, match="text/html") as caught:
            await _streamed(client, _request())
    assert caught.value.failure == "unreadable"


async def test_events_without_names_and_usage_are_read():
    events = (
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "晴"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    )
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    async with _client_of(_app(body, "text/event-stream; charset=utf-8")) as client:
        chunks = await _streamed(client, _request())
    assert [chunk.kind for chunk in chunks] == ["text", "done"]
    assert _last(chunks).usage.estimated


async def test_what_breaks_behind_the_end_of_an_answer_does_not_matter():
    fake = FakeVendors([Turn(text="晴"), Turn(text="晴")])
    async with _client(fake) as client:
        whole = await _streamed(client, _request())

    async def breaks(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        head = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        delta = {"type": "text_delta", "text": "晴"}
        body = b"data: " + json.dumps({"type": "content_block_delta", "delta": delta}).encode() + b"\n\n"
        await send(
            {
                "type": "http.response.body",
                "body": body + b'data: {"type": "message_stop"}\n\n',
                "more_body": True,
            }
        )

    async with _client_of(breaks) as client:
        assert _last(await _streamed(client, _request())).content == _last(whole).content


async def test_a_model_that_only_streams_is_asked_for_a_stream():
    fake = FakeVendors([Turn(text="晴")])
    async with fake.http_client() as http_client:
        connection = Connection(
            spec=replace(ANTHROPIC, stream_only=True),
            model="claude-opus-5-5",
            base_url=fake.base_url("anthropic"),
            api_key=SecretStr(fake.key),
            http_client=http_client,
        )
        assert (await AnthropicMessagesClient(connection).complete(_request())).content == "晴"
    assert fake.requests[0].body["stream"] is True


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
async def test_other_vendors_are_asked_at_their_own_address_with_their_own_key(
    monkeypatch: pytest.MonkeyPatch, ending: str
):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-not-for-others")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "not-for-others")
    monkeypatch.setenv(
        "ANTHROPIC_CUSTOM_HEADERS", "x-secret: not-for-others\nx-own: not-for-others\nnonsense"
    )
    seen: list[Any] = []
    spec = replace(DEEPSEEK, wire="anthropic_messages", headers={"x-own": "from-spec"})
    address = f"https://api.deepseek.com/anthropic{ending}"
    async with _client_of(_app(_ANSWER, seen=seen), spec, base_url=address, key="deep-key") as client:
        answer = await client.complete(_request())
    assert answer.message.provider == "deepseek"
    path, headers = seen[0]
    assert path == "/anthropic/v1/messages"
    assert headers["authorization"] == "Bearer deep-key"
    assert headers["x-own"] == "from-spec"
    assert "not-for-others" not in str(headers)


async def test_without_a_key_none_is_sent_unless_a_header_holds_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-not-for-others")
    seen: list[Any] = []
    async with _client_of(_app(_ANSWER, seen=seen), key=None) as client:
        await client.complete(_request())
    assert "authorization" not in seen[0][1]
    assert "x-api-key" not in seen[0][1]
    assert "anthropic-beta" in seen[0][1]
    own = {"Authorization": "Bearer mine", "anthropic-beta": "another"}
    async with _client_of(_app(_ANSWER, seen=seen), key=None, headers=own) as client:
        await client.complete(_request())
    assert seen[1][1]["authorization"] == "Bearer mine"
    assert seen[1][1]["anthropic-beta"] == "another"


async def test_the_sdk_is_asked_once_and_does_not_try_again():
    fake = FakeVendors([Turn(status=500), Turn(text="晴")])
    async with _client(fake) as client:
        with pytest.raises(LLMError):
            await client.complete(_request())
    assert fake.turns_left == 1


async def test_a_missing_package_is_told_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "anthropic", None)
    async with _client_of(_app(_ANSWER)) as client:
        with pytest.raises(ConfigError, match=r"pip install 'loom-mcp-core\[anthropic\]'"):
            await client.complete(_request())


async def test_a_client_that_was_closed_opens_new_connections():
    connection = Connection(spec=ANTHROPIC, model="m", base_url="http://127.0.0.1:9", api_key=SecretStr("k"))
    client = AnthropicMessagesClient(connection)
    for _ in range(2):
        with pytest.raises(LLMError) as caught:
            await client.complete(_request())
        assert caught.value.failure == "connection"
        await client.aclose()
    await client.aclose()


async def test_a_client_that_was_given_is_not_closed():
    fake = FakeVendors([Turn(text="晴"), Turn(text="雨")])
    async with _client(fake) as client:
        assert (await client.complete(_request())).content == "晴"
        await client.aclose()
        assert (await client.complete(_request())).content == "雨"


_texts = st.sampled_from(["", " ", "hi", "你好", "半\ud83d", "a\n"])
_text_parts = st.builds(TextPart, _texts)
_ids = st.sampled_from(["", "a", "b", "functions.x:0", "很长" * 50])
_calls = st.builds(
    ToolCallPart,
    id=_ids,
    name=st.sampled_from(["weather", "我的 tool", ""]),
    arguments=st.dictionaries(_texts, st.none() | st.floats() | _texts, max_size=2),
    unreadable=st.sampled_from(["", "", "{"]),
)
_thoughts = st.sampled_from(["", "想", "hm"]).map(
    lambda text: ReasoningPart(text, "thinking", {"signature": anthropic_signature(text)})
) | st.just(ReasoningPart("", "redacted_thinking", {"data": REDACTED}))
_foreign = st.builds(
    AssistantMessage,
    st.lists(
        _text_parts
        | _calls
        | st.just(ReasoningPart("想", "reasoning_content"))
        | st.just(ReasoningPart("", "reasoning_details", {"reasoning_details": [{}]})),
        max_size=4,
    ).map(tuple),
    st.sampled_from(["", "openai", "deepseek"]),
)
_own = st.builds(
    AssistantMessage,
    st.lists(_text_parts | _calls | _thoughts, max_size=4).map(tuple),
    st.just("anthropic"),
)
_images = st.sampled_from([ImagePart(b"x"), ImagePart(url="https://x.cn/a.png")])
_results = st.builds(
    ToolMessage, _ids, st.lists(_text_parts | _images, max_size=2).map(tuple), failed=st.booleans()
)
_users = st.builds(UserMessage, st.lists(_text_parts | _images, max_size=2).map(tuple))
_histories = st.lists(
    st.builds(SystemMessage, _texts) | _users | _own | _foreign | _results, min_size=1, max_size=8
).map(lambda messages: (*messages, _QUESTION) if messages else messages)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    history=_histories,
    cut=st.booleans(),
    model=st.sampled_from(_MODELS),
    effort=st.sampled_from([None, "off", "low", "max"]),
    tools=st.sampled_from([(), (_WEATHER,), (_WEATHER, ToolSpec("b"))]),
    choice=st.sampled_from(["auto", "none", "required", "weather"]),
    limit=st.sampled_from([None, 1, 3000]),
    form=st.booleans(),
)
def test_any_conversation_is_accepted(
    history: tuple[Message, ...],
    cut: bool,
    model: str,
    effort: Any,
    tools: tuple[ToolSpec, ...],
    choice: str,
    limit: int | None,
    form: bool,
):
    schema = {"type": "object", "properties": {"x": {"type": "integer", "minimum": 1}}}
    request = ChatRequest(
        messages=history[:-1] if cut and _says_something(history[:-1]) else history,
        tools=tools,
        tool_choice=choice if tools or choice != "weather" else "auto",
        max_tokens=limit,
        effort=effort,
        temperature=0.5,
        output=OutputSchema("x", schema) if form else None,
        stop=("\n", "完"),
    )

    async def ask() -> LLMResponse:
        async with _client(FakeVendors([Turn(text="晴")]), model) as client:
            return await client.complete(request)

    assert anyio.run(ask).content == "晴"


def _says_something(history: Sequence[Message]) -> bool:
    return any(isinstance(message, UserMessage) and message.text.strip() for message in history)
