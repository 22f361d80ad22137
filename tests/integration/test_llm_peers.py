"""Language models as others imitate them: Loom's providers speak with servers that know nothing of Loom.

mock-ai-api and llm-katan read the two interfaces in their own way and fail when they are told to. Where they
differ from the vendors, they do what any self-made server may do.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import pytest
from anyio import to_thread
from pydantic import BaseModel

from loom_core.errors import LLMError, ModelFailure
from loom_core.llm.fallback import FallbackProvider
from loom_core.llm.hosted.limits import CircuitBreaker, RateLimits
from loom_core.llm.hosted.providers import AnthropicProvider, OpenAICompatibleProvider, OpenAIProvider
from loom_core.llm.interface import LLMProvider, StreamChunk, ToolSpec
from loom_core.llm.messages import Message, SystemMessage, TextPart, ToolMessage, UserMessage
from loom_core.llm.structured import generate
from loom_core.net.retry import RetryPolicy

if TYPE_CHECKING:
    from tests.fixtures.peers import Peer

pytestmark = pytest.mark.slow

AT_ONCE = RetryPolicy(base=0.0)
ONCE = RetryPolicy(attempts=1)
ASK: list[Message] = [SystemMessage("Answer briefly."), UserMessage((TextPart("你好，world"),))]
WRITE = ToolSpec(
    "Write",
    "Writes a file.",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "contents": {"type": "string"}},
        "required": ["path", "contents"],
    },
)
KEY = "open-sesame-please"  # which looks like no vendor's key

both = pytest.mark.parametrize("interface", ["openai", "anthropic"])


class Client:
    """An HTTP client that counts what is asked.

    Attributes:
        asked: how many requests were made.
        asking: set with the first of them.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.asking = anyio.Event()
        # Without the system's certificates, which take a while to load and are not asked for here.
        self.http = httpx2.AsyncClient(event_hooks={"request": [self._count]}, verify=False)

    async def _count(self, _: httpx2.Request) -> None:
        self.asked += 1
        self.asking.set()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client()
    async with client.http:
        yield client


@pytest.fixture
def mock_model(mock_ai_api: dict[str, str], client: Client) -> Callable[..., LLMProvider]:
    """A model of mock-ai-api that answers as the scenario says: `mock_model("openai", "mock-503")`."""

    def provider(interface: str, scenario: str, **options: Any) -> LLMProvider:
        options = {"api_key": KEY, "retry": AT_ONCE, "http_client": client.http, **options}
        if interface == "openai":
            return OpenAIProvider(
                model=f"gpt-4.1:{scenario}", base_url=f"{mock_ai_api['openai']}/v1", **options
            )
        return AnthropicProvider(
            model=f"claude-sonnet-4-20250514:{scenario}", base_url=mock_ai_api["anthropic"], **options
        )

    return provider


def katan_model(
    peer: Peer, client: Client, interface: str = "openai", *, key: str = "", **options: Any
) -> LLMProvider:
    """The model of llm-katan, in one of its interfaces."""
    key = key or f"llm-katan-{interface}-key"
    options = {"model": "katan", "api_key": key, "retry": AT_ONCE, "http_client": client.http, **options}
    if interface == "openai":
        return OpenAICompatibleProvider(base_url=f"{peer.url}/v1", **options)
    # It wants the key where older versions of the interface had it.
    return AnthropicProvider(base_url=peer.url, headers={"x-api-key": key}, **options)


async def read(provider: LLMProvider, **options: Any) -> list[StreamChunk]:
    return [chunk async for chunk in provider.chat_stream(ASK, **options)]


async def failure(provider: LLMProvider, *, stream: bool = False) -> LLMError:
    with pytest.raises(LLMError) as caught:
        await (read(provider) if stream else provider.chat(ASK))
    return caught.value


@both
async def test_text_comes_whole_and_in_pieces(interface: str, mock_model: Callable[..., LLMProvider]) -> None:
    provider = mock_model(interface, "mock-text")
    response = await provider.chat(ASK)
    assert response.content == "Hello. It's nice to meet you."
    assert (response.finish, response.usage.output_tokens, response.usage.estimated) == ("stop", 12, False)
    assert response.message.provider == interface
    *chunks, last = await read(provider)
    assert "".join(chunk.text for chunk in chunks if chunk.kind == "text") == response.content
    assert last.response is not None
    assert last.response.message.parts == response.message.parts
    assert last.response.usage == response.usage


@both
async def test_chinese_arrives_as_it_was_sent(interface: str, mock_model: Callable[..., LLMProvider]) -> None:
    response = await mock_model(interface, "mock-echo").chat(ASK)
    assert response.content.endswith("你好，world")


@pytest.mark.parametrize(
    ("interface", "scenario", "stream"),
    [
        ("openai", "mock-tool-call", False),
        ("openai", "mock-tool-stream", True),
        ("anthropic", "mock-tool-use", False),
        ("anthropic", "mock-tool-stream", True),
    ],
)
async def test_a_tool_is_called_and_its_result_goes_back(
    interface: str, scenario: str, stream: bool, mock_model: Callable[..., LLMProvider]
) -> None:
    provider = mock_model(interface, scenario)
    if stream:
        response = (await read(provider, tools=[WRITE]))[-1].response
        assert response is not None
    else:
        response = await provider.chat(ASK, tools=[WRITE])
    (call,) = response.message.tool_calls
    assert (call.name, response.finish) == ("Write", "tool_calls")
    assert call.arguments == {"path": "tmp/mock-file.txt", "contents": "mock output"}

    result = ToolMessage(call.id, (TextPart("写好了"),))
    again = await mock_model(interface, "mock-text").chat([*ASK, response.message, result], tools=[WRITE])
    assert again.content == "Hello. It's nice to meet you."


async def test_a_call_with_broken_arguments_is_kept_and_can_be_sent_back(
    mock_model: Callable[..., LLMProvider],
) -> None:
    response = await mock_model("openai", "mock-bad-tool-json").chat(ASK, tools=[WRITE])
    (call,) = response.message.tool_calls
    assert call.unreadable == '{"path":"tmp/mock-file.txt","contents":"unterminated"'
    result = ToolMessage(call.id, (TextPart("These arguments cannot be read."),), failed=True)
    conversation = [*ASK, response.message, result]
    assert (await mock_model("openai", "mock-text").chat(conversation, tools=[WRITE])).finish == "stop"


@both
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("scenario", "expected", "attempts"),
    [
        ("mock-400", "invalid_request", 1),
        ("mock-401", "authentication", 1),
        ("mock-429", "rate_limit", 4),
        ("mock-500", "server", 4),
        ("mock-503", "overloaded", 4),
    ],
)
async def test_what_may_pass_is_tried_again_and_the_rest_is_not(
    interface: str,
    stream: bool,
    scenario: str,
    expected: ModelFailure,
    attempts: int,
    mock_model: Callable[..., LLMProvider],
    client: Client,
) -> None:
    error = await failure(mock_model(interface, scenario), stream=stream)
    assert (error.failure, error.provider, error.status) == (expected, interface, int(scenario[-3:]))
    assert client.asked == attempts
    assert error.advice
    assert KEY not in f"{error!r} {error}"


async def test_an_error_inside_a_stream_before_its_first_piece_is_tried_again(
    mock_model: Callable[..., LLMProvider], client: Client
) -> None:
    error = await failure(mock_model("anthropic", "mock-stream-error"), stream=True)
    assert (error.failure, client.asked) == ("server", 4)


@both
async def test_a_vendor_that_is_silent_for_too_long_is_left(
    interface: str, mock_model: Callable[..., LLMProvider], client: Client
) -> None:
    patient = await read(mock_model(interface, "mock-delay"))
    assert patient[-1].kind == "done"
    error = await failure(mock_model(interface, "mock-delay", timeout=0.05), stream=True)
    assert (error.failure, client.asked) == ("timeout", 1 + 4)


@both
async def test_a_model_that_repeats_is_understood_whole_and_in_pieces(
    interface: str, katan: Peer, client: Client
) -> None:
    provider = katan_model(katan, client, interface)
    response = await provider.chat(ASK)
    assert response.content.endswith("User: 你好，world")
    assert response.usage.input_tokens > 0
    chunks = await read(provider)
    assert len([chunk for chunk in chunks if chunk.kind == "text"]) > 10
    assert "".join(chunk.text for chunk in chunks if chunk.kind == "text").endswith("User: 你好，world")

    called = await provider.chat(ASK, tools=[WRITE])
    assert called.message.tool_calls[0].arguments == {"path": "test_path", "contents": "test_contents"}


@both
async def test_a_key_that_the_vendor_repeats_is_in_no_error(
    interface: str, katan: Peer, client: Client
) -> None:
    provider = katan_model(katan, client, interface, key=KEY)
    error = await failure(provider)
    assert (error.failure, client.asked) == ("authentication", 1)
    assert KEY not in f"{error!r} {error}"


async def test_a_whole_answer_where_a_stream_was_asked_for_is_read_all_the_same(
    katan: Peer, client: Client
) -> None:
    # So llm-katan answers where there are tools.
    *_, last = await read(katan_model(katan, client), tools=[WRITE])
    assert last.response is not None
    assert [call.name for call in last.response.message.tool_calls] == ["Write"]
    assert (last.response.finish, last.response.usage.estimated) == ("tool_calls", False)


async def test_json_is_asked_for_and_read(katan: Peer, client: Client) -> None:
    class Said(BaseModel):
        response: str

    answer = await generate(katan_model(katan, client), ASK, schema=Said)
    assert "你好，world" in answer.value.response


async def test_a_vendor_with_room_for_one_request_answers_all_if_they_come_one_by_one(
    start_katan: Callable[..., Peer], client: Client
) -> None:
    peer = start_katan("--max-inflight", "1", "--latency-ms", "300")

    async def outcomes(provider: LLMProvider) -> list[str]:
        found: list[str] = []

        async def ask() -> None:
            try:
                found.append((await provider.chat(ASK)).finish)
            except LLMError as error:
                found.append(error.failure)

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(ask)
        return found

    crowded = await outcomes(katan_model(peer, client, retry=ONCE))
    assert set(crowded) == {"stop", "overloaded"}
    client.asked = 0
    assert await outcomes(katan_model(peer, client, limits=RateLimits(concurrency=1))) == ["stop"] * 4
    assert client.asked == 4


async def test_a_vendor_that_has_had_enough_is_asked_again_and_then_told_of(
    start_katan: Callable[..., Peer], client: Client
) -> None:
    provider = katan_model(start_katan("--rate-limit-after", "1"), client)
    assert (await provider.chat(ASK)).finish == "stop"
    error = await failure(provider)
    assert (error.failure, error.status, client.asked) == ("rate_limit", 429, 1 + 4)


async def test_another_model_answers_where_one_has_no_more_room(
    start_katan: Callable[..., Peer], client: Client, mock_model: Callable[..., LLMProvider]
) -> None:
    full = katan_model(start_katan("--rate-limit-after", "1"), client)
    chain = FallbackProvider([full, mock_model("anthropic", "mock-text")])
    assert (await chain.chat(ASK)).message.provider == "openai_compatible"
    assert (await chain.chat(ASK)).message.provider == "anthropic"
    assert (await read(chain))[-1].kind == "done"


async def test_a_vendor_that_fails_half_of_the_time_answers_every_request(
    start_katan: Callable[..., Peer], client: Client
) -> None:
    provider = katan_model(
        start_katan("--error-rate", "0.5"),
        client,
        retry=RetryPolicy(attempts=40, base=0.0),
        breaker=CircuitBreaker(failures=40),
    )
    for _ in range(20):
        assert (await provider.chat(ASK)).finish == "stop"
    assert client.asked > 20


async def test_a_vendor_that_always_fails_is_left_alone(
    start_katan: Callable[..., Peer], client: Client
) -> None:
    provider = katan_model(start_katan("--error-rate", "1"), client, breaker=CircuitBreaker(failures=5))
    assert [(await failure(provider)).failure for _ in range(3)] == ["server", "unavailable", "unavailable"]
    assert client.asked == 5


async def test_a_gateway_that_waits_in_vain_is_told_of(
    start_katan: Callable[..., Peer], client: Client
) -> None:
    provider = katan_model(start_katan("--timeout-after", "1"), client)
    await provider.chat(ASK)
    error = await failure(provider)
    assert (error.status, error.is_transient, client.asked) == (504, True, 1 + 4)


async def test_the_deadline_holds_for_all_attempts_together(
    katan: Peer, start_katan: Callable[..., Peer], client: Client
) -> None:
    await katan_model(katan, client).chat(ASK)  # now the SDK is loaded, which takes its time, too
    peer = start_katan("--latency-ms", "30000")
    client.asked = 0
    retry = RetryPolicy(base=0.0, attempts=100, deadline=1.0)
    with anyio.fail_after(10):
        error = await failure(katan_model(peer, client, timeout=0.2, retry=retry))
    assert error.failure == "timeout"
    assert 1 < client.asked < 10


async def test_a_request_that_is_cancelled_ends_at_once(
    start_katan: Callable[..., Peer], client: Client
) -> None:
    provider = katan_model(start_katan("--latency-ms", "30000"), client)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(provider.chat, ASK)
            await client.asking.wait()
            tasks.cancel_scope.cancel()
    assert client.asked == 1


async def test_a_stream_that_is_left_ends_at_the_vendor_too(
    start_katan: Callable[..., Peer], client: Client
) -> None:
    peer = start_katan("--itl-ms", "10")
    provider = katan_model(peer, client)
    async with aclosing(provider.chat_stream(ASK)) as chunks:
        assert (await anext(chunks)).kind == "text"
    # A longer one, read to its end: by then the first one would have ended, too, and been logged before it.
    longer = UserMessage((TextPart("a few words more " * 8),))
    *_, last = [chunk async for chunk in provider.chat_stream([longer])]
    assert last.response is not None
    usage = last.response.usage
    logged = re.compile(r"200 \| stream \| (\d+) tokens")
    found = await to_thread.run_sync(lambda: peer.wait_for_output(logged))
    assert int(found[1]) == usage.input_tokens + usage.output_tokens
