"""Hosted providers over the real SDKs, against servers as strict as the vendors'."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import anyio
import pytest
import uvicorn

from loom_core.errors import LLMError
from loom_core.llm.fallback import FallbackProvider
from loom_core.llm.hosted.provider import HostedProvider
from loom_core.llm.vendors import VENDORS
from loom_core.net.retry import RetryPolicy
from tests.fixtures.vendors.app import FakeVendors
from tests.fixtures.vendors.script import Tokens, Turn

_QUESTION = [{"role": "user", "content": "什么是知识图谱？"}]
_TEXT = "知识图谱是由事实组成的网。A graph of facts."
_BOTH_WIRES = pytest.mark.parametrize("vendor", ["deepseek", "anthropic"])


@pytest.fixture(autouse=True, scope="module")
def _sdks() -> None:
    """Both SDKs are there before the clock runs: their first import takes seconds."""
    import anthropic
    import openai

    assert anthropic.__version__
    assert openai.__version__


async def _at_once(_: float) -> None:
    """Sleep for no time."""


@asynccontextmanager
async def _provider(
    vendor: str,
    turns: Sequence[Turn],
    *,
    api_key: str | None = None,
    silence: float = 5.0,
    deadline: float = 120.0,
) -> AsyncIterator[tuple[HostedProvider, FakeVendors]]:
    fake = FakeVendors(turns)
    retry = RetryPolicy(deadline=deadline, sleep=_at_once)
    async with (
        fake.http_client() as http_client,
        HostedProvider(
            VENDORS[vendor],
            base_url=fake.base_url(vendor),
            api_key=api_key or fake.key,
            timeout=silence,
            retry=retry,
            http_client=http_client,
        ) as provider,
    ):
        yield provider, fake


@_BOTH_WIRES
async def test_what_passes_is_tried_again_until_there_is_an_answer_with_its_price(vendor: str):
    turns = [
        Turn(status=429, headers={"retry-after": "1"}),
        Turn(status=503),
        Turn(text=_TEXT, usage=Tokens(input=1000, output=200)),
    ]
    async with _provider(vendor, turns) as (provider, fake):
        response = await provider.chat(_QUESTION)
        assert (response.content, response.message.provider) == (_TEXT, vendor)
        assert (response.usage.input_tokens, response.usage.output_tokens) == (1000, 200)
        assert response.usage.cost
        assert (provider.spent.requests, provider.spent.cost) == (1, response.usage.cost)
        assert len(fake.requests) == 3


@_BOTH_WIRES
async def test_a_stream_that_fails_before_its_first_piece_is_tried_again(vendor: str):
    async with _provider(vendor, [Turn(status=500), Turn(text=_TEXT)]) as (provider, fake):
        pieces = [piece async for piece in provider.chat_stream(_QUESTION)]
        assert "".join(piece.text for piece in pieces if piece.kind == "text") == _TEXT
        assert [piece.kind for piece in pieces][-2:] == ["usage", "done"]
        assert sum(piece.kind == "usage" for piece in pieces) == 1
        assert pieces[-1].response is not None
        assert pieces[-2].usage == pieces[-1].response.usage
        assert len(fake.requests) == 2


@_BOTH_WIRES
async def test_a_stream_that_breaks_later_is_interrupted_and_not_tried_again(vendor: str):
    turns = [Turn(text=_TEXT * 20, stream_error="Overloaded"), Turn(text="no")]
    async with _provider(vendor, turns) as (provider, fake):
        stream = provider.chat_stream(_QUESTION)
        came = (await anext(stream)).text
        with pytest.raises(LLMError, match="broke off") as caught:  # noqa: PT012 - what came before is wanted, too
            async for piece in stream:
                came += piece.text
        assert (_TEXT * 20).startswith(came)
        assert caught.value.failure == "interrupted"
        assert len(fake.requests) == 1
        assert provider.spent.output_tokens > 0


@pytest.mark.slow
@_BOTH_WIRES
async def test_a_vendor_that_falls_silent_is_given_up_after_the_timeout(vendor: str):
    async with _provider(vendor, [Turn(text=_TEXT * 50, hang_after=4000)], silence=0.5) as (provider, fake):
        stream = provider.chat_stream(_QUESTION)
        await anext(stream)
        with pytest.raises(LLMError) as caught:
            async for _ in stream:
                pass
        assert caught.value.failure == "interrupted"
        assert len(fake.requests) == 1


@pytest.mark.slow
async def test_signs_of_life_without_an_answer_do_not_outlast_the_deadline():
    async with _provider("deepseek", [Turn(text=_TEXT, wait=anyio.Event())], deadline=1.0) as (
        provider,
        fake,
    ):
        with pytest.raises(LLMError, match=r"no answer within 1 s") as caught:
            await anext(provider.chat_stream(_QUESTION))
        assert caught.value.failure == "timeout"
        assert len(fake.requests) == 1


@_BOTH_WIRES
async def test_who_leaves_a_stream_early_ends_the_answer_at_the_vendor(vendor: str):
    async with _provider(vendor, [Turn(text=_TEXT * 50, hang_after=4000)]) as (provider, fake):
        async with aclosing(provider.chat_stream(_QUESTION)) as stream:  # type: ignore[type-var]
            await anext(stream)
        assert fake.disconnects == 1
        assert provider.spent.requests == 1


@_BOTH_WIRES
async def test_a_wrong_key_is_neither_tried_again_nor_shown(vendor: str, caplog: pytest.LogCaptureFixture):
    async with _provider(vendor, [], api_key="sk-wrong-0123456789") as (provider, fake):
        with caplog.at_level("DEBUG"), pytest.raises(LLMError) as caught:
            await provider.chat(_QUESTION)
        assert (caught.value.failure, caught.value.provider, len(fake.requests)) == (
            "authentication",
            vendor,
            1,
        )
        assert "0123456789" not in f"{caught.value}{caplog.text}{provider!r}"


@_BOTH_WIRES
async def test_the_key_is_found_in_the_environment(vendor: str, monkeypatch: pytest.MonkeyPatch):
    fake = FakeVendors([Turn(text=_TEXT)])
    monkeypatch.setenv(VENDORS[vendor].key_variable, fake.key)
    async with fake.http_client() as http_client:
        provider = HostedProvider(VENDORS[vendor], base_url=fake.base_url(vendor), http_client=http_client)
        assert (await provider.chat(_QUESTION)).content == _TEXT


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # of loops that end before it is closed
@_BOTH_WIRES
def test_one_provider_answers_in_one_event_loop_after_the_other(
    vendor: str, caplog: pytest.LogCaptureFixture
):
    fake = FakeVendors(lambda _: Turn(text=_TEXT))
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(fake, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    path = fake.base_url(vendor).removeprefix("http://fake")
    provider = HostedProvider(
        VENDORS[vendor],
        base_url=f"http://127.0.0.1:{listening.getsockname()[1]}{path}",
        api_key=fake.key,
        retry=RetryPolicy(attempts=1),
    )

    async def ask() -> str:
        return (await provider.chat(_QUESTION)).content

    async def ask_and_close() -> str:
        async with provider:
            return await ask()

    try:
        assert asyncio.run(ask()) == _TEXT
        assert asyncio.run(ask()) == _TEXT
        asyncio.run(provider.aclose())  # in a third one
        assert asyncio.run(ask_and_close()) == _TEXT
        gc.collect()
        assert caplog.messages == []
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()


async def test_another_vendor_goes_on_with_the_conversation_where_one_fails():
    turns = [
        Turn(text="先想想。", reasoning="嗯……"),
        Turn(status=402),
        Turn(text="接着说。"),
    ]
    fake = FakeVendors(turns)
    async with fake.http_client() as http_client:
        models = [
            HostedProvider(
                VENDORS[name], base_url=fake.base_url(name), api_key=fake.key, http_client=http_client
            )
            for name in ("deepseek", "anthropic")
        ]
        async with FallbackProvider(models) as chain:
            first = await chain.chat(_QUESTION)
            second = await chain.chat([*_QUESTION, first.message, {"role": "user", "content": "然后呢？"}])
    assert (first.message.provider, second.message.provider) == ("deepseek", "anthropic")
    assert second.content == "接着说。"
    assert [request.vendor for request in fake.requests] == ["deepseek", "deepseek", "anthropic"]
