from __future__ import annotations

import gc
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import httpx2
import pytest
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import JSONResponse

from loom_core.errors import ConfigError, InvalidInputError, LLMError
from loom_core.llm.chat_completions.client import ChatCompletionsClient
from loom_core.llm.interface import ChatRequest, StreamChunk, ToolSpec, Usage
from loom_core.llm.messages import ImagePart, Message, TextPart, ToolMessage, UserMessage
from loom_core.llm.transport.protocol import Connection
from loom_core.llm.vendors import DEEPSEEK, OPENAI, VENDORS, ProviderSpec
from tests.fixtures.vendors.app import FakeVendors
from tests.fixtures.vendors.script import Call, Recorded, Tokens, Turn

_USER = UserMessage((TextPart("你好"),))
_ASK = ChatRequest(messages=(_USER,))
_LOOK = ToolSpec("look", "Look it up.", {"type": "object", "properties": {"q": {"type": "string"}}})


@asynccontextmanager
async def _client(
    fake: FakeVendors, spec: ProviderSpec = DEEPSEEK, *, key: str | None = None, **options: Any
) -> AsyncGenerator[ChatCompletionsClient]:
    async with fake.http_client() as http_client:
        yield ChatCompletionsClient(
            Connection(
                spec=spec,
                model=spec.model,
                base_url=fake.base_url(spec.name),
                api_key=SecretStr(fake.key if key is None else key),
                http_client=http_client,
            ),
            **options,
        )


async def _streamed(client: ChatCompletionsClient, request: ChatRequest = _ASK) -> list[StreamChunk]:
    return [piece async for piece in client.stream(request)]


_VENDORS = [spec for spec in VENDORS.values() if spec.wire == "chat_completions" and spec.model]


@pytest.mark.parametrize("spec", _VENDORS, ids=lambda spec: spec.name)
async def test_every_vendor_answers_calls_tools_and_takes_its_own_answers_back(spec: ProviderSpec) -> None:
    calling = Turn(
        text="看看。", reasoning="想一想", calls=(Call("look", {"q": "猫"}), Call("look", {"q": "狗"}))
    )
    fake = FakeVendors([calling, Turn(text="一只猫", reasoning="嗯")] * 2)
    spec = spec.for_model(spec.model)
    async with _client(fake, spec) as client:
        for streaming in (False, True):
            history: list[Message] = [_USER]
            request = ChatRequest(messages=(_USER,), tools=(_LOOK,), effort="high")
            if streaming:
                last = (await _streamed(client, request))[-1].response
            else:
                last = await client.complete(request)
            assert last is not None
            assert last.finish == "tool_calls"
            assert last.content == "看看。"
            assert [call.arguments for call in last.message.tool_calls] == [{"q": "猫"}, {"q": "狗"}]
            history += [last.message, *(ToolMessage(call.id, ()) for call in last.message.tool_calls)]

            answer = await client.complete(replace(request, messages=tuple(history)))

            assert answer.content == "一只猫"
            assert answer.message.provider == spec.name
            assert answer.usage == Usage(10, 20)
    assert fake.turns_left == 0


async def test_a_conversation_goes_on_from_vendor_to_vendor() -> None:
    def turn(request: Recorded) -> Turn:
        answered = request.body["messages"][-1]["role"] == "tool"
        return Turn(text="一只猫", reasoning="嗯", calls=() if answered else (Call("look"), Call("look")))

    fake = FakeVendors(turn)
    history: list[Message] = []
    for spec in (*_VENDORS, *_VENDORS):
        async with _client(fake, spec.for_model(spec.model)) as client:
            history.append(_USER)
            called = (await client.complete(ChatRequest(messages=tuple(history), tools=(_LOOK,)))).message
            history += [called, *(ToolMessage(call.id, (TextPart("喵"),)) for call in called.tool_calls)]
            pieces = await _streamed(client, ChatRequest(messages=tuple(history), tools=(_LOOK,)))
            response = pieces[-1].response
            assert response is not None
            history.append(response.message)
    assert len(history) == 5 * 2 * len(_VENDORS)


async def test_a_stream_ends_with_its_usage_and_the_whole_answer() -> None:
    async with _client(
        FakeVendors([Turn(text="你好，世界", usage=Tokens(3, 4, 2, 1)), Turn(usage=None)])
    ) as client:
        *pieces, usage, done = await _streamed(client)

        assert "".join(piece.text for piece in pieces) == "你好，世界"
        assert usage == StreamChunk("usage", usage=Usage(3, 4, 2, 1))
        assert done.response is not None
        assert done.response.content == "你好，世界"
        (only,) = await _streamed(client)
        assert only.response is not None
        assert only.response.usage == Usage(estimated=True)


async def test_a_model_that_only_streams_is_collected() -> None:
    spec = replace(VENDORS["qwen"].for_model("qwq-plus"), model="qwq-plus")
    fake = FakeVendors([Turn(text="好")])
    async with _client(fake, spec) as client:
        assert (await client.complete(_ASK)).content == "好"
    assert fake.requests[0].body["stream"] is True


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (400, "invalid_request"),
        (401, "authentication"),
        (404, "not_found"),
        (408, "timeout"),
        (413, "too_long"),
        (429, "rate_limit"),
        (500, "server"),
        (503, "overloaded"),
        (529, "overloaded"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
async def test_errors_of_a_vendor_say_what_happened(status: int, failure: str, streaming: bool) -> None:
    fake = FakeVendors([Turn(status=status, headers={"retry-after": "7"})])
    async with _client(fake) as client:
        with pytest.raises(LLMError, match="DeepSeek") as caught:
            await (_streamed(client) if streaming else client.complete(_ASK))
    assert (caught.value.failure, caught.value.status) == (failure, status)
    assert caught.value.retry_after == 7.0
    assert len(fake.requests) == 1
    assert fake.key not in repr(caught.value)


_BODIES: dict[str, tuple[bytes, str]] = {
    "cut JSON": (b'{"choices": [', "unreadable"),
    "no JSON": (b"<html>Bad gateway</html>", "unreadable"),
    "no UTF-8": (b'{"a": "\xff"}', "unreadable"),
    "too deep": (b"[" * 100_000, "unreadable"),
    "a number without end": (b"1" * 5_000, "unreadable"),
    "no object": (b"[1]", "unreadable"),
    "no choices": (b'{"choices": []}', "unreadable"),
    "an empty choice": (b'{"choices": [{}]}', "unreadable"),
    "an unknown error": (b'{"error": {"message": "oops"}}', "server"),
    "a known error": (b'{"error": {"code": "insufficient_quota", "message": "no money"}}', "quota"),
    "a status in a code": (b'{"error": {"code": 429, "message": "slow down"}}', "rate_limit"),
    "a status in a text": (
        b'{"error": {"code": "402", "message": "\xe8\xaf\xb7\xe5\x85\x85\xe5\x80\xbc"}}',
        "quota",
    ),
    "an error of MiniMax": (
        b'{"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}',
        "quota",
    ),
}


@pytest.mark.parametrize(("body", "failure"), _BODIES.values(), ids=_BODIES.keys())
async def test_a_body_that_is_no_answer_is_an_error(body: bytes, failure: str) -> None:
    async with _client(FakeVendors([Turn(body=body)])) as client:
        with pytest.raises(LLMError) as caught:
            await client.complete(_ASK)
    assert caught.value.failure == failure


_START = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'

_EVENTS: dict[str, tuple[bytes, str]] = {
    "cut JSON": (b'data: {"choices": [\n\n', "unreadable"),
    "no JSON": (b"data: <html>\n\n", "unreadable"),
    "no UTF-8": (b"data: \xff\n\n", "unreadable"),
    "too deep": (b"data: " + b"[" * 100_000 + b"\n\n", "unreadable"),
    "no object": (b"data: 3\n\n", "unreadable"),
    "an unknown error": (b'data: {"error": {"message": "oops"}}\n\n', "server"),
    "a known error": (b'data: {"error": {"type": "overloaded_error", "message": "later"}}\n\n', "overloaded"),
    "a status in a code": (b'data: {"error": {"code": 429, "message": "later"}}\n\n', "rate_limit"),
    "nothing more": (b"", "connection"),
    "the end too early": (b"data: [DONE]\n\n", "connection"),
}


@pytest.mark.parametrize(("events", "failure"), _EVENTS.values(), ids=_EVENTS.keys())
async def test_a_stream_that_cannot_be_read_is_an_error(events: bytes, failure: str) -> None:
    async with _client(FakeVendors([Turn(body=_START + events)])) as client:
        pieces = client.stream(_ASK)
        assert await anext(pieces) == StreamChunk("text", text="a")
        with pytest.raises(LLMError) as caught:
            await anext(pieces)
    assert caught.value.failure == failure


@pytest.mark.parametrize("streaming", [False, True])
async def test_an_answer_without_end_is_given_up(streaming: bool) -> None:
    fake = FakeVendors([Turn(text="很" * 5_000)])
    async with _client(fake, max_length=1_000) as client:
        with pytest.raises(LLMError, match="more than 1000 ") as caught:
            await (_streamed(client) if streaming else client.complete(_ASK))
    assert caught.value.failure == "unreadable"
    assert fake.disconnects == streaming  # what comes whole comes in one piece


async def test_an_event_without_end_is_given_up() -> None:
    fake = FakeVendors([Turn(body=b"data: " + b"x" * 5_000)])
    async with _client(fake, max_length=1_000) as client:
        with pytest.raises(LLMError, match="1000 byte limit") as caught:
            await _streamed(client)
    assert caught.value.failure == "unreadable"


async def test_closing_the_stream_closes_the_connection() -> None:
    fake = FakeVendors([Turn(text="很长的回答" * 50, hang_after=2_000)])
    async with _client(fake) as client:
        async with aclosing(client.stream(_ASK)) as pieces:
            assert (await anext(pieces)).text
        assert fake.disconnects == 1
    gc.collect()  # what was left open would warn here


@pytest.mark.parametrize("streaming", [False, True])
async def test_cancelling_closes_the_connection(streaming: bool) -> None:
    arrived = anyio.Event()

    def hang(_: Recorded) -> Turn:
        arrived.set()
        return Turn(text="很长的回答" * 50, hang_after=300)

    fake = FakeVendors(hang)
    async with _client(fake) as client, anyio.create_task_group() as tasks:
        if streaming:
            tasks.start_soon(_streamed, client)
        else:
            tasks.start_soon(client.complete, _ASK)
        await arrived.wait()
        tasks.cancel_scope.cancel()
    assert fake.disconnects == 1


async def test_a_vendor_that_says_nothing_any_more_is_left() -> None:
    fake = FakeVendors([Turn(text="很长的回答" * 50, hang_after=300)])
    async with fake.http_client() as http_client:
        client = ChatCompletionsClient(
            Connection(
                spec=DEEPSEEK,
                model=DEEPSEEK.model,
                base_url=fake.base_url("deepseek"),
                api_key=SecretStr(fake.key),
                timeout=0.05,
                http_client=http_client,
            )
        )
        with pytest.raises(LLMError) as caught:
            await _streamed(client)
    assert caught.value.failure == "timeout"


async def test_a_wrong_key_is_told_of_without_the_key() -> None:
    async with _client(FakeVendors([]), key="sk-not-the-right-one") as client:
        with pytest.raises(LLMError, match="DEEPSEEK_API_KEY") as caught:
            await client.complete(_ASK)
    assert caught.value.failure == "authentication"
    assert "not-the-right-one" not in repr(caught.value) + repr(client)


async def test_what_cannot_be_asked_is_not_asked() -> None:
    fake = FakeVendors([])
    async with _client(fake) as client:
        with pytest.raises(InvalidInputError, match="takes no images"):
            await client.complete(ChatRequest(messages=(UserMessage((ImagePart(b"x"),)),)))
    assert fake.requests == []


async def test_a_server_that_does_not_stream_is_understood() -> None:
    message = {
        "content": "好",
        "reasoning_content": "想",
        "tool_calls": [{"id": "c", "function": {"name": "look", "arguments": '{"q":"猫"}'}}],
    }

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await Request(scope, receive).json())["stream"] is True
        await JSONResponse({"choices": [{"message": message, "finish_reason": "tool_calls"}]})(
            scope, receive, send
        )

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as http_client:
        client = ChatCompletionsClient(
            Connection(spec=DEEPSEEK, model="m", base_url="http://fake", http_client=http_client)
        )
        pieces = await _streamed(client)
    assert [piece.kind for piece in pieces] == ["reasoning", "text", "tool_call", "done"]


async def _headers_sent(spec: ProviderSpec, **options: Any) -> dict[str, str]:
    sent: dict[str, str] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        sent.update(request.headers)
        assert request.url.path == "/v9/chat/completions"
        await JSONResponse({"choices": [{"message": {"content": "好"}}]})(scope, receive, send)

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as http_client:
        connection = Connection(
            spec=spec, model="m", base_url="http://fake/v9/", http_client=http_client, **options
        )
        await ChatCompletionsClient(connection).complete(_ASK)
    return sent


@pytest.fixture
def _environment_of_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin-of-openai")
    monkeypatch.setenv("OPENAI_ORG_ID", "org")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project")
    monkeypatch.setenv(
        "OPENAI_CUSTOM_HEADERS", "Authorization: Bearer sk-of-openai\nX-Team: team\nX-Ours: theirs"
    )


@pytest.mark.usefixtures("_environment_of_openai")
async def test_nothing_that_is_meant_for_openai_goes_to_another_vendor() -> None:
    sent = await _headers_sent(DEEPSEEK)
    assert "authorization" not in sent
    assert not {"openai-organization", "openai-project", "x-team"} & set(sent)
    assert "openai" not in sent.values()

    sent = await _headers_sent(DEEPSEEK, api_key=SecretStr("sk-mine"), headers={"X-Ours": "ours"})
    assert (sent["authorization"], sent["x-ours"]) == ("Bearer sk-mine", "ours")


@pytest.mark.usefixtures("_environment_of_openai")
async def test_openai_gets_the_headers_that_its_users_set_for_it() -> None:
    sent = await _headers_sent(OPENAI, api_key=SecretStr("sk-mine"))

    assert (sent["authorization"], sent["openai-organization"]) == ("Bearer sk-mine", "org")
    assert sent["x-team"] == "team"


async def test_a_header_of_ones_own_replaces_the_key() -> None:
    spec = replace(DEEPSEEK, headers={"X-Spec": "spec"})

    sent = await _headers_sent(spec, api_key=SecretStr("sk-mine"), headers={"authorization": "Basic xyz"})

    assert (sent["authorization"], sent["x-spec"]) == ("Basic xyz", "spec")


async def test_a_client_opens_its_own_connections_again_after_it_was_closed() -> None:
    client = ChatCompletionsClient(
        Connection(spec=DEEPSEEK, model="m", base_url="http://127.0.0.1:9", api_key=SecretStr("k"))
    )
    for _ in range(2):
        with pytest.raises(LLMError) as caught:
            await client.complete(_ASK)
        assert caught.value.failure == "connection"
        await client.aclose()
    await client.aclose()


async def test_a_client_that_was_given_stays_open() -> None:
    fake = FakeVendors([Turn(text="一"), Turn(text="二")])
    async with _client(fake) as client:
        assert (await client.complete(_ASK)).content == "一"
        await client.aclose()
        assert (await client.complete(_ASK)).content == "二"


async def test_without_the_sdk_there_is_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    client = ChatCompletionsClient(Connection(spec=DEEPSEEK, model="m", base_url="http://fake"))

    with pytest.raises(ConfigError, match=r"pip install 'loom-mcp-core\[openai\]'"):
        await client.complete(_ASK)


def test_the_sdk_is_not_imported_before_it_is_needed() -> None:
    import subprocess

    code = (
        "import sys, loom_core.llm.chat_completions.client as c; "
        "print([m for m in ('openai', 'httpx2', 'pydantic') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout.replace("'", '"')) == []
