"""Answers of a hosted provider in pieces: tried again before the first, counted when they break off."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest

from loom_core.errors import LLMError
from loom_core.llm.accounting.metering import UsageTotals
from loom_core.llm.accounting.prices import Prices
from loom_core.llm.hosted.limits import CircuitBreaker, RateLimits
from loom_core.llm.hosted.provider import HostedProvider
from loom_core.llm.interface import StreamChunk, Usage
from tests.fixtures.scripted_provider import (
    QUESTION,
    answer_of,
    pieces_of,
    retry_policy,
    scripted,
    vendor_error,
)
from tests.fixtures.scripted_wire import Step


def _text(text: str) -> StreamChunk:
    return StreamChunk("text", text=text)


def _used(tokens: int) -> StreamChunk:
    return StreamChunk("usage", usage=Usage(input_tokens=tokens))


def _done(text: str = "事实之网。", usage: Usage | None = None) -> StreamChunk:
    return StreamChunk("done", response=answer_of(text, usage))


async def _broken(provider: HostedProvider, why: str) -> tuple[LLMError, str]:
    """The error that a stream ends with, and the text that came before."""
    came = ""
    with pytest.raises(LLMError, match=why) as caught:  # noqa: PT012 - what came before the error is wanted, too
        async for piece in provider.chat_stream(QUESTION):
            came += piece.text
    return caught.value, came


async def test_a_stream_hands_on_pieces_then_one_usage_then_the_answer():
    usage = Usage(input_tokens=20, output_tokens=6)
    provider, wire = scripted(
        [_used(20), _text("事实"), _used(20), _text("之网。"), _used(26), _done(usage=usage)],
        prices=Prices(input=1.0, output=5.0),
    )
    pieces = await pieces_of(provider)
    assert [piece.kind for piece in pieces] == ["text", "text", "usage", "done"]
    assert "".join(piece.text for piece in pieces) == "事实之网。"
    response = pieces[-1].response
    assert response is not None
    assert (
        response.usage
        == pieces[-2].usage
        == Usage(input_tokens=20, output_tokens=6, cost=pytest.approx(5e-5))
    )
    assert (provider.spent.requests, wire.open) == (1, 0)


async def test_a_stream_of_nothing_is_an_answer():
    provider, _ = scripted([_done("")])
    assert [piece.kind for piece in await pieces_of(provider)] == ["usage", "done"]


async def test_a_stream_whose_usage_is_not_reported_is_estimated():
    provider, _ = scripted([_text("事实之网。"), _done(usage=Usage(estimated=True))])
    usage = (await pieces_of(provider))[-2].usage
    assert usage is not None
    assert usage.estimated
    assert usage.input_tokens == provider.estimate(QUESTION)
    assert usage.output_tokens > 0


async def test_a_stream_is_tried_again_until_its_first_piece():
    waits: list[float] = []
    provider, wire = scripted(
        vendor_error(),
        [_used(5), vendor_error("server")],
        [],
        [_text("好"), _done("好")],
        retry=retry_policy(waits),
    )
    pieces = await pieces_of(provider)
    assert [piece.kind for piece in pieces] == ["text", "usage", "done"]
    assert (len(wire.requests), wire.open, len(waits)) == (4, 0, 3)
    assert provider.spent.requests == 1


async def test_a_stream_that_never_begins_fails_as_a_whole_answer_does():
    provider, wire = scripted(vendor_error("authentication"))
    with pytest.raises(LLMError) as caught:
        await pieces_of(provider)
    assert (caught.value.failure, wire.open) == ("authentication", 0)


@pytest.mark.parametrize("last", [[vendor_error("connection")], [], ["silence"]])
async def test_a_stream_that_breaks_later_is_interrupted_and_counts_with_what_came(last: list[object]):
    provider, wire = scripted([_text("事实之网" * 10), *last], retry=retry_policy(deadline=0.3))  # type: ignore[list-item]
    error, came = await _broken(provider, r"The answer of DeepSeek broke off\. ")
    assert came == "事实之网" * 10
    assert (error.failure, error.is_transient) == ("interrupted", False)
    assert (len(wire.requests), wire.open) == (1, 0)
    assert provider.spent.output_tokens == 27


async def test_streams_that_break_open_the_breaker():
    breaker = CircuitBreaker(failures=2)
    provider, _ = scripted(*([_text("a"), vendor_error("connection")] for _ in range(2)), breaker=breaker)
    for _ in range(2):
        with pytest.raises(LLMError, match="broke off"):
            await pieces_of(provider)
    assert breaker.state == "open"


async def test_a_stream_that_begins_lets_others_through_again():
    clock = [0.0]
    breaker = CircuitBreaker(failures=1, now=lambda: clock[0])
    steps: list[Step] = [vendor_error(), [_text("好"), "silence"], answer_of()]
    provider, _ = scripted(*steps, breaker=breaker, retry=retry_policy(attempts=1))
    with pytest.raises(LLMError):
        await provider.chat(QUESTION)
    clock[0] += 30
    async with aclosing(provider.chat_stream(QUESTION)) as stream:  # type: ignore[type-var]
        await anext(stream)
        assert (await provider.chat(QUESTION)).content


async def test_a_stream_that_is_left_early_is_closed_and_counts_with_what_came():
    limits = RateLimits(concurrency=1, rpm=100)
    breaker = CircuitBreaker(failures=1)
    provider, wire = scripted(
        [_used(50), _text("一二三"), "silence"], answer_of(), limits=limits, breaker=breaker
    )
    async with aclosing(provider.chat_stream(QUESTION)) as stream:  # type: ignore[type-var]
        assert (await anext(stream)).text == "一二三"
        assert wire.open == 1
    assert (wire.open, breaker.state) == (0, "closed")
    assert provider.spent == UsageTotals(requests=1, input_tokens=50, output_tokens=2)
    with anyio.fail_after(30):
        await provider.chat(QUESTION)


async def test_a_stream_that_is_cancelled_is_closed_and_counts_with_what_came():
    provider, wire = scripted([_text("一二三"), "silence"])
    with anyio.CancelScope() as scope:
        async for _ in provider.chat_stream(QUESTION):
            scope.cancel()
    assert scope.cancelled_caught
    assert (wire.open, provider.spent.requests, provider.spent.output_tokens) == (0, 1, 2)


async def test_a_stream_ends_at_the_deadline_even_while_pieces_come():
    provider, wire = scripted([_text("字")] * 100_000, retry=retry_policy(deadline=0.3))
    error, came = await _broken(provider, "did not finish its answer before the deadline")
    assert 0 < len(came) < 100_000
    assert (error.failure, wire.open) == ("interrupted", 0)


async def test_answers_that_are_too_long_for_the_deadline_do_not_open_the_breaker():
    breaker = CircuitBreaker(failures=1)
    provider, _ = scripted([_text("字"), "silence"], retry=retry_policy(deadline=0.3), breaker=breaker)
    await _broken(provider, "before the deadline")
    assert breaker.state == "closed"
