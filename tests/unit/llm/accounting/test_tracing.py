from __future__ import annotations

import json
from contextlib import aclosing

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from loom_core.errors import LLMError
from loom_core.llm.accounting.prices import Prices
from loom_core.llm.hosted.provider import HostedProvider
from loom_core.llm.interface import LLMResponse, OutputSchema, StreamChunk, Usage
from loom_core.llm.messages import AssistantMessage, TextPart
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.llm.vendors import GEMINI
from loom_core.net.retry import RetryPolicy
from loom_core.observability.spans import CHAT
from tests.fixtures.scripted_wire import ScriptedWire

QUESTION = [{"role": "user", "content": "港长是谁？ My key is sk-of-a-span-0123456789."}]
ANSWER = LLMResponse(
    AssistantMessage((TextPart("李明"),), provider="gemini", model="gemini-x-001"),
    usage=Usage(input_tokens=10, output_tokens=4, reasoning_tokens=2, cache_read_tokens=3),
)
PIECES = (StreamChunk("text", text="李明"), StreamChunk("done", response=ANSWER))


def hosted(*steps) -> HostedProvider:
    return HostedProvider(
        GEMINI,
        model="gemini-x",
        retry=RetryPolicy(attempts=2, base=0.0),
        prices=Prices(input=1.0, output=1.0),
        wire=ScriptedWire(*steps),
    )


def only(spans: list[ReadableSpan]) -> tuple[ReadableSpan, dict]:
    (made,) = spans
    attributes = dict(made.attributes or {})
    assert set(attributes) <= set(CHAT.attributes)
    return made, attributes


async def test_an_answer_is_a_span_with_what_it_took(spans: list[ReadableSpan]):
    schema = OutputSchema("answer", {"type": "object"})
    await hosted(ANSWER).chat(QUESTION, max_tokens=100, temperature=0.0, output=schema)
    made, attributes = only(spans)
    assert made.name == "chat gemini-x"
    assert made.kind is SpanKind.CLIENT
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "gemini-x",
        "gen_ai.request.stream": False,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.output.type": "json",
        "gen_ai.response.model": "gemini-x-001",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.reasoning.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "loom.usage.estimated": False,
        "loom.usage.cost": attributes["loom.usage.cost"],
    }


async def test_all_attempts_are_one_span(spans: list[ReadableSpan]):
    busy = LLMError("busy 港长", failure="overloaded")
    await hosted(busy, ANSWER).chat(QUESTION)
    made, _ = only(spans)
    assert made.status.status_code is StatusCode.UNSET


async def test_a_failure_is_told_by_its_kind(spans: list[ReadableSpan]):
    with pytest.raises(LLMError):
        await hosted(LLMError("no, 港长", failure="authentication")).chat(QUESTION)
    made, attributes = only(spans)
    assert attributes["error.type"] == "authentication"
    assert made.status.status_code is StatusCode.ERROR
    assert "\\u6e2f" not in made.to_json()
    assert "港" not in made.to_json()


async def test_a_stream_is_a_span_to_its_end_and_not_the_current_one_between_two_pieces(
    spans: list[ReadableSpan],
):
    before = get_current_span()
    async with aclosing(hosted(PIECES).chat_stream(QUESTION)) as stream:
        async for _ in stream:
            assert get_current_span() is before
    _, attributes = only(spans)
    assert attributes["gen_ai.request.stream"] is True
    assert attributes["gen_ai.response.time_to_first_chunk"] >= 0
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)


async def test_a_stream_that_is_left_early_is_no_error(spans: list[ReadableSpan]):
    async with aclosing(hosted(PIECES).chat_stream(QUESTION)) as stream:
        async for _ in stream:
            break
    made, attributes = only(spans)
    assert made.status.status_code is StatusCode.UNSET
    assert attributes["loom.usage.estimated"] is True


async def test_a_stream_that_breaks_off_is_one(spans: list[ReadableSpan]):
    model = MockProvider([MockAnswer("eins zwei drei vier", cut_after=1)])
    with pytest.raises(LLMError):
        async for _ in model.chat_stream(QUESTION):
            pass
    _, attributes = only(spans)
    assert attributes["error.type"] == "interrupted"


async def test_content_is_told_on_request_only_and_without_secrets(
    spans: list[ReadableSpan], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LOOM_TRACE_CONTENT", "1")
    await hosted(ANSWER).chat(QUESTION)
    _, attributes = only(spans)
    (asked,) = json.loads(attributes["gen_ai.input.messages"])
    (answered,) = json.loads(attributes["gen_ai.output.messages"])
    assert asked["parts"] == [{"text": "港长是谁？ My key is [secret]."}]
    assert answered["parts"] == [{"text": "李明"}]
