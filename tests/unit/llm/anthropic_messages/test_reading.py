from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.errors import LLMError
from loom_core.llm.anthropic_messages.reading import MessageReader
from loom_core.llm.interface import LLMResponse, StreamChunk, Usage
from loom_core.llm.messages import AssistantMessage, ReasoningPart, TextPart, ToolCallPart
from loom_core.llm.vendors import ANTHROPIC
from loom_core.sdk_errors import NoAnswerError


def _reader(**options: Any) -> MessageReader:
    return MessageReader(ANTHROPIC, model="asked", **options)


def _start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _delta(index: int, type_: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": type_, **fields}}


def _end(reason: str | None = "end_turn", **usage: Any) -> list[dict[str, Any]]:
    delta = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
    return [delta, {"type": "message_stop"}]


def _read(*events: Mapping[str, Any], **options: Any) -> tuple[list[StreamChunk], LLMResponse]:
    reader = _reader(**options)
    chunks = [chunk for event in events for chunk in reader.feed(event)]
    return chunks, reader.response()


def _shown(chunks: list[StreamChunk]) -> list[tuple[str, object]]:
    return [
        (chunk.kind, chunk.text or (chunk.tool_call and (chunk.tool_call.index, chunk.tool_call.arguments)))
        for chunk in chunks
    ]


def test_a_stream_becomes_parts_in_their_order():
    chunks, response = _read(
        {"type": "message_start", "message": {"model": "claude-x", "usage": {"input_tokens": 3}}},
        {"type": "ping"},
        _start(0, type="thinking", thinking="", signature=""),
        _delta(0, "thinking_delta", thinking="想"),
        _delta(0, "thinking_delta", thinking="一想"),
        _delta(0, "signature_delta", signature="si"),
        _delta(0, "signature_delta", signature="g"),
        {"type": "content_block_stop", "index": 0},
        _start(1, type="redacted_thinking", data="=="),
        _start(2, type="text", text=""),
        _delta(2, "text_delta", text="好"),
        _delta(2, "citations_delta", citation={}),
        _delta(2, "text_delta", text=""),
        _start(3, type="tool_use", id="t1", name="查询", input={}),
        _delta(3, "input_json_delta", partial_json='{"城市": '),
        _delta(3, "input_json_delta", partial_json='"北京"}'),
        {"type": "content_block_stop", "index": 3},
        _start(4, type="tool_use", id="t2", name="now", input={}),
        {"type": "content_block_stop", "index": 4},
        *_end("tool_use", output_tokens=9),
    )
    assert _shown(chunks) == [
        ("reasoning", "想"),
        ("reasoning", "一想"),
        ("text", "好"),
        ("tool_call", (0, "")),
        ("tool_call", (0, '{"城市": ')),
        ("tool_call", (0, '"北京"}')),
        ("tool_call", (1, "")),
    ]
    assert response == LLMResponse(
        AssistantMessage(
            (
                ReasoningPart("想一想", "thinking", {"signature": "sig"}),
                ReasoningPart("", "redacted_thinking", {"data": "=="}),
                TextPart("好"),
                ToolCallPart("t1", "查询", {"城市": "北京"}),
                ToolCallPart("t2", "now"),
            ),
            "anthropic",
            "claude-x",
        ),
        "tool_calls",
        Usage(input_tokens=3, output_tokens=9),
    )


def test_a_whole_answer_is_read_like_a_stream():
    reader = _reader()
    chunks = reader.feed_whole(
        {
            "model": "claude-x",
            "content": [
                {"type": "thinking", "thinking": "想", "signature": "sig"},
                {"type": "text", "text": "好"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": "甲"}},
            ],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 1, "output_tokens": 2},
        }
    )
    assert _shown(chunks) == [
        ("reasoning", "想"),
        ("text", "好"),
        ("tool_call", (0, "")),
        ("tool_call", (0, '{"a": "甲"}')),
    ]
    assert reader.response().message.parts == (
        ReasoningPart("想", "thinking", {"signature": "sig"}),
        TextPart("好"),
        ToolCallPart("t1", "f", {"a": "甲"}),
    )


def test_blocks_that_are_not_known_are_left_out():
    chunks, response = _read(
        _start(0, type="server_tool_use", id="x", name="web_search", input={"query": "q"}),
        _delta(0, "input_json_delta", partial_json="{}"),
        {"type": "content_block_stop", "index": 0},
        _start(1, type="web_search_tool_result", content=[{"type": "text"}]),
        _delta(1, "from_the_future", text="?"),
        {"type": "something_new"},
        {},
        _start(2, type="text", text="a"),
        *_end(),
    )
    assert _shown(chunks) == [("text", "a")]
    assert response.message.parts == (TextPart("a"),)


def test_blocks_whose_beginning_is_not_told_are_read():
    chunks, response = _read(
        _delta(0, "thinking_delta", thinking="想"), _delta(1, "text_delta", text="好"), *_end()
    )
    assert _shown(chunks) == [("reasoning", "想"), ("text", "好")]
    assert response.message.parts == (ReasoningPart("想", "thinking"), TextPart("好"))


def test_calls_without_an_id_get_one():
    _, response = _read(_start(0, type="tool_use", name="f", input={}), *_end("tool_use"))
    assert response.message.tool_calls[0].id.startswith("call_")


def test_arguments_that_are_cut_off_are_kept_as_they_are():
    _, response = _read(
        _start(0, type="tool_use", id="t", name="f", input={}),
        _delta(0, "input_json_delta", partial_json='{"a'),
        *_end("max_tokens"),
    )
    assert response.message.tool_calls == (ToolCallPart("t", "f", unreadable='{"a'),)
    assert response.finish == "length"


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "stop"),
        ("max_tokens", "length"),
        ("pause_turn", "paused"),
        ("refusal", "refused"),
        ("model_context_window_exceeded", "too_long"),
        ("another", "other"),
        (None, "stop"),
    ],
)
def test_an_answer_tells_why_it_ended(reason: str | None, finish: str):
    assert _read(_start(0, type="text", text="a"), *_end(reason))[1].finish == finish


def test_tokens_of_the_cache_count_as_input():
    usage = {
        "input_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 1,
    }
    _, response = _read(
        {"type": "message_start", "message": {"usage": usage}},
        *_end(output_tokens=30, input_tokens=0, output_tokens_details={"thinking_tokens": 12}),
    )
    assert response.usage == Usage(125, 30, 12, cache_read_tokens=100, cache_write_tokens=20)


def test_usage_that_is_not_told_is_to_be_estimated():
    assert _read(*_end())[1].usage == Usage(estimated=True)
    assert _read(*_end(input_tokens=None, output_tokens=0))[1].usage.estimated
    assert _read(*_end(input_tokens=10**400))[1].usage.estimated


def test_an_answer_by_tool_is_its_text_and_no_other():
    chunks, response = _read(
        _start(0, type="text", text="Here it is:"),
        _start(1, type="tool_use", id="t", name="实体", input={}),
        _delta(1, "input_json_delta", partial_json='{"名": '),
        _delta(1, "input_json_delta", partial_json='"甲"}'),
        _start(2, type="tool_use", id="u", name="实体", input={"again": 1}),
        {"type": "content_block_stop", "index": 2},
        *_end("tool_use"),
        output_tool="实体",
    )
    assert _shown(chunks)[1:3] == [("text", '{"名": '), ("text", '"甲"}')]
    assert response.message.parts == (TextPart('{"名": "甲"}'),)
    assert response.finish == "stop"


def test_an_empty_answer_by_tool_is_an_empty_object():
    call = _start(0, type="tool_use", id="t", name="e", input={})
    assert _read(call, *_end("tool_use"), output_tool="e")[1].content == "{}"


@pytest.mark.hostile("answers of models")
def test_a_stream_that_ends_early_is_a_broken_connection():
    with pytest.raises(LLMError, match="The stream ended early") as caught:
        _read(_start(0, type="text", text="a"))
    assert caught.value.failure == "connection"
    assert caught.value.is_transient


def test_an_error_in_place_of_an_answer_is_told():
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(NoAnswerError) as caught:
        _reader().feed(error)
    assert caught.value.body == error
    with pytest.raises(NoAnswerError):
        _reader().feed_whole(error)


@pytest.mark.parametrize("answer", [[], "text", None, {}, {"content": "text"}])
def test_what_is_no_answer_cannot_be_read(answer: object):
    with pytest.raises(LLMError) as caught:
        _reader().feed_whole(answer)
    assert caught.value.failure == "unreadable"


def test_an_event_that_is_no_object_cannot_be_read():
    with pytest.raises(LLMError, match="not a JSON object"):
        _reader().feed([])


@pytest.mark.parametrize(
    "event",
    [
        _delta(0, "text_delta", text="很长的话"),
        _delta(0, "thinking_delta", thinking="很长的话"),
        _delta(0, "signature_delta", signature="long"),
        _start(0, type="redacted_thinking", data="long"),
        _start(0, type="text", text="很长的话"),
    ],
)
def test_an_answer_has_its_limit(event: dict[str, Any]):
    _reader(max_length=4).feed(event)
    with pytest.raises(LLMError, match="more than 3 characters") as caught:
        _reader(max_length=3).feed(event)
    assert caught.value.failure == "unreadable"


_values = st.sampled_from([None, -1, 0, 2, "", "想", "f", [], ["x"], {}, {"thinking_tokens": "x"}])
_types = st.sampled_from(
    [
        *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
        *("message_delta", "message_stop", "ping", "text_delta", "thinking_delta", "signature_delta"),
        *("input_json_delta", "text", "thinking", "redacted_thinking", "tool_use"),
    ]
)
_inner = st.dictionaries(
    st.sampled_from(
        "text thinking signature partial_json data id name input stop_reason model input_tokens".split()
    ),
    _values,
    max_size=3,
)
_objects = st.builds(lambda type_, fields: {**fields, "type": type_}, _types, _inner)
_events = st.builds(
    lambda type_, index, fields: {**fields, "type": type_, "index": index},
    _types,
    st.sampled_from([0, 1, "0", None]),
    st.dictionaries(
        st.sampled_from(["delta", "content_block", "message", "usage"]), _values | _objects, max_size=3
    ),
)


@pytest.mark.hostile("answers of models")
@settings(max_examples=60)
@given(st.lists(_events, max_size=12))
def test_whatever_is_sent_is_read_or_refused_as_an_error_of_ours(events: list[object]):
    reader = _reader(max_length=100)
    with suppress(LLMError):
        for event in events:
            for chunk in reader.feed(event):
                assert chunk.kind == "tool_call" or chunk.text
        response = reader.response()
        assert response.usage.input_tokens >= 0
        assert response.message.provider == "anthropic"
