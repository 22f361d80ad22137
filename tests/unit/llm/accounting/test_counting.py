"""Requests to models, counted wherever they are made."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest

from loom_core.errors import LLMError
from loom_core.llm.accounting.prices import Prices
from loom_core.llm.fallback import FallbackProvider
from loom_core.llm.hosted.provider import HostedProvider
from loom_core.llm.interface import LLMResponse, StreamChunk, Usage
from loom_core.llm.messages import AssistantMessage, TextPart
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.llm.vendors import DEEPSEEK
from loom_core.net.retry import RetryPolicy
from loom_core.observability.families import LLM_CALLS, LLM_COST, LLM_FAILURES, LLM_SECONDS, LLM_TOKENS
from tests.fixtures.scripted_wire import ScriptedWire, Step

ASKED = [{"role": "user", "content": "灯塔在哪里？"}]


async def test_an_answer_is_a_call_with_its_tokens(counted: Any) -> None:
    llm = MockProvider(["在青岛", "在青岛"], model="深思")
    response = await llm.chat(ASKED)
    async with aclosing(llm.chat_stream(ASKED)) as pieces:
        assert [piece.kind async for piece in pieces][-1] == "done"
    assert counted.samples(LLM_CALLS) == {(): 2}
    assert counted.samples(LLM_SECONDS) == {("mock", "深思"): 2}
    assert counted.samples(LLM_TOKENS) == {
        ("mock", "深思", "input"): 2 * response.usage.input_tokens,
        ("mock", "深思", "output"): 2 * response.usage.output_tokens,
    }
    assert counted.samples(LLM_COST) == {}


async def test_a_failure_is_counted_by_its_kind_and_the_next_model_is_a_call_of_its_own(counted: Any) -> None:
    first = MockProvider([LLMError("down", failure="server")], model="a")
    llm = FallbackProvider([first, MockProvider(["done"], model="b")])
    await llm.chat(ASKED)
    assert counted.samples(LLM_CALLS) == {(): 2}
    assert counted.samples(LLM_FAILURES) == {("mock", "a", "server"): 1}


async def test_a_stream_that_breaks_off_has_failed_and_one_that_is_left_has_not(counted: Any) -> None:
    llm = MockProvider([MockAnswer("a long answer", cut_after=1), "another long answer"])
    async with aclosing(llm.chat_stream(ASKED)) as pieces:
        await anext(pieces)
        with pytest.raises(LLMError):
            await anext(pieces)
    async with aclosing(llm.chat_stream(ASKED)) as pieces:
        async for _ in pieces:
            break
    assert counted.samples(LLM_CALLS) == {(): 2}
    assert counted.samples(LLM_FAILURES) == {("mock", "mock", "interrupted"): 1}


def hosted(*steps: Step) -> HostedProvider:
    async def at_once(_seconds: float) -> None:
        pass

    retry = RetryPolicy(attempts=3, sleep=at_once, random=lambda: 0.0)
    return HostedProvider(
        DEEPSEEK, wire=ScriptedWire(*steps), retry=retry, prices=Prices(input=1.0, output=5.0)
    )


def answer(**usage: Any) -> LLMResponse:
    message = AssistantMessage((TextPart("在青岛"),), provider="deepseek", model="deepseek-flash")
    return LLMResponse(message, usage=Usage(**usage))


async def test_what_is_tried_again_is_one_call_with_what_its_answer_took_and_cost(counted: Any) -> None:
    took = {"input_tokens": 20, "output_tokens": 6, "reasoning_tokens": 4, "cache_read_tokens": 12}
    llm = hosted(LLMError("full", failure="overloaded"), answer(**took))
    await llm.chat(ASKED)
    whose = (llm.name, llm.model)
    assert counted.samples(LLM_CALLS) == {(): 1}
    assert counted.samples(LLM_FAILURES) == {}
    assert counted.samples(LLM_TOKENS) == {
        (*whose, "input"): 20,
        (*whose, "output"): 6,
        (*whose, "reasoning"): 4,
        (*whose, "cache_read"): 12,
    }
    assert counted.samples(LLM_COST) == {whose: pytest.approx(50e-6)}


async def test_a_stream_counts_once_and_what_was_left_of_one_is_estimated(counted: Any) -> None:
    pieces = [StreamChunk("text", text="在青岛"), StreamChunk("done", response=answer(input_tokens=20))]
    llm = hosted(pieces, pieces)
    async with aclosing(llm.chat_stream(ASKED)) as stream:
        assert [piece.kind async for piece in stream] == ["text", "usage", "done"]
    assert counted.samples(LLM_TOKENS) == {(llm.name, llm.model, "input"): 20}
    async with aclosing(llm.chat_stream(ASKED)) as stream:
        await anext(stream)
    assert counted.samples(LLM_CALLS) == {(): 2}
    assert counted.samples(LLM_FAILURES) == {}
    assert counted.samples(LLM_TOKENS)[llm.name, llm.model, "output"] > 0
