from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loom_core.errors import LLMError
from loom_core.llm.chat_completions.reading import AnswerReader, ToolCalls
from loom_core.llm.chat_completions.thinking import CAME_IN_TAGS
from loom_core.llm.interface import LLMResponse, StreamChunk, ToolCallDelta, Usage
from loom_core.llm.messages import AssistantMessage, ReasoningPart, TextPart, ToolCallPart
from loom_core.llm.vendors import DEEPSEEK, GEMINI, MINIMAX, OPENAI_COMPATIBLE, VLLM, ProviderSpec
from loom_core.sdk_errors import NoAnswerError

_PLAIN = ProviderSpec(name="here", title="Here")


def _chunk(finish: object = None, **delta: Any) -> dict[str, Any]:
    return {"model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _read(
    *chunks: object, spec: ProviderSpec = _PLAIN, **options: Any
) -> tuple[LLMResponse, list[StreamChunk]]:
    reader = AnswerReader(spec, model="m", **options)
    pieces = [piece for chunk in chunks for piece in reader.feed(chunk)] + reader.flush()
    return reader.response(), pieces


def _parts(*chunks: object, spec: ProviderSpec = _PLAIN, **options: Any) -> tuple[object, ...]:
    return _read(*chunks, spec=spec, **options)[0].message.parts


_STOP = _chunk("stop")


def test_a_stream_becomes_pieces_and_an_answer() -> None:
    response, pieces = _read(
        _chunk(role="assistant", content=""),
        _chunk(reasoning_content="想"),
        _chunk(reasoning_content="一想", content=None),
        _chunk(content="你", reasoning_content=None),
        _chunk(content="好"),
        _chunk(tool_calls=[{"index": 0, "id": "c", "function": {"name": "look", "arguments": "{}"}}]),
        _chunk("tool_calls"),
    )

    assert pieces == [
        StreamChunk("reasoning", text="想"),
        StreamChunk("reasoning", text="一想"),
        StreamChunk("text", text="你"),
        StreamChunk("text", text="好"),
        StreamChunk("tool_call", tool_call=ToolCallDelta(0, "c", "look", "{}")),
    ]
    assert response == LLMResponse(
        AssistantMessage(
            (ReasoningPart("想一想", "reasoning_content"), TextPart("你好"), ToolCallPart("c", "look")),
            provider="here",
            model="m-1",
        ),
        finish="tool_calls",
        usage=Usage(estimated=True),
    )


def test_a_whole_answer_is_read_in_the_same_way() -> None:
    response, _ = _read(
        {
            "choices": [
                {
                    "message": {
                        "role": "assistant",
                        "content": "你好",
                        "reasoning": "想",
                        "tool_calls": [{"id": "c", "function": {"name": "look", "arguments": '{"q":"猫"}'}}],
                    },
                    "finish_reason": "tool_calls",
                }
            ]
        }
    )

    assert response.message.parts == (
        ReasoningPart("想", "reasoning"),
        TextPart("你好"),
        ToolCallPart("c", "look", {"q": "猫"}),
    )
    assert response.model == "m"


def test_a_whole_answer_needs_no_reason_for_its_end() -> None:
    assert _read({"choices": [{"message": {"content": "ok"}}]})[0].finish == "stop"


def test_a_stream_that_ends_with_the_whole_message_once_more_says_it_once() -> None:
    last = {"choices": [{"message": {"content": "你好"}, "finish_reason": "stop"}]}

    assert _parts(_chunk(content="你好"), last) == (TextPart("你好"),)


def test_reasoning_and_text_in_turns_stay_in_turns() -> None:
    chunks = (_chunk(reasoning="a"), _chunk(content="b"), _chunk(reasoning="c"), _chunk(content="d"), _STOP)

    assert _parts(*chunks) == (
        ReasoningPart("a", "reasoning"),
        TextPart("b"),
        ReasoningPart("c", "reasoning"),
        TextPart("d"),
    )


def test_blocks_of_reasoning_are_kept_whole() -> None:
    def piece(text: str, index: int = 0, **more: object) -> dict[str, Any]:
        return _chunk(reasoning_details=[{"type": "reasoning.text", "index": index, "text": text, **more}])

    response, pieces = _read(
        piece("想", id="r1"),
        piece("一想", signature="s"),
        piece("再想", 1),
        _chunk("stop", content="好"),
        spec=MINIMAX,
    )

    assert [piece.text for piece in pieces] == ["想", "一想", "再想", "好"]
    assert response.message.parts == (
        ReasoningPart(
            "想一想再想",
            "reasoning_details",
            {
                "reasoning_details": [
                    {"type": "reasoning.text", "index": 0, "text": "想一想", "id": "r1", "signature": "s"},
                    {"type": "reasoning.text", "index": 1, "text": "再想"},
                ]
            },
        ),
        TextPart("好"),
    )


def test_blocks_of_reasoning_that_no_one_can_read_are_kept_too() -> None:
    secret = {"type": "reasoning.encrypted", "data": "…"}

    assert _parts(_chunk("stop", reasoning_details=[secret, "?"], content="好"), spec=MINIMAX) == (
        ReasoningPart("", "reasoning_details", {"reasoning_details": [secret]}),
        TextPart("好"),
    )


def test_reasoning_in_tags_is_told_from_the_text_also_where_a_tag_is_cut() -> None:
    chunks = [_chunk(content=letter) for letter in "<think>想\n</think>\n\n你好 <think>"]

    response, pieces = _read(*chunks, _STOP, spec=VLLM)

    assert response.message.parts == (ReasoningPart("想\n", CAME_IN_TAGS), TextPart("你好 <think>"))
    assert "".join(piece.text for piece in pieces if piece.kind == "text") == "你好 <think>"
    assert _parts(*chunks, _STOP) == (TextPart("<think>想\n</think>\n\n你好 <think>"),)


def test_a_thought_that_the_limit_cut_off_is_no_text() -> None:
    response, _ = _read(_chunk("length", content="<think>想 </thi"), spec=VLLM)

    assert response.message.parts == (ReasoningPart("想 </thi", CAME_IN_TAGS),)
    assert response.finish == "length"


def test_white_space_without_text_is_no_text() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}

    assert _parts(_chunk(content="\n\n"), _chunk("tool_calls", tool_calls=[call])) == (
        ToolCallPart("c", "f"),
    )
    assert _parts(_chunk(content="\n"), _chunk(reasoning="想"), _chunk("stop", content="好")) == (
        ReasoningPart("想", "reasoning"),
        TextPart("好"),
    )
    assert _parts(_chunk(content=" "), _chunk("stop", content=" 好 ")) == (TextPart("  好 "),)


def test_text_in_blocks_is_text() -> None:
    assert _parts(_chunk("stop", content=[{"type": "text", "text": "你"}, {"text": "好"}, "?"])) == (
        TextPart("你好"),
    )


def test_a_refusal_is_text_of_an_answer_that_was_refused() -> None:
    response, _ = _read(_chunk(refusal="I can"), _chunk("stop", refusal="not."))

    assert (response.content, response.finish) == ("I cannot.", "refused")


def test_signatures_stay_with_their_calls() -> None:
    signed = {"google": {"thought_signature": "s"}}
    call = {"index": 0, "id": "c", "extra_content": signed, "function": {"name": "f", "arguments": "{}"}}

    assert _parts(_chunk("stop", tool_calls=[call]), spec=GEMINI) == (
        ToolCallPart("c", "f", opaque={"extra_content": signed}),
    )


def test_the_arguments_of_the_tool_that_takes_the_answer_are_its_text() -> None:
    def call(index: int, name: str, arguments: str) -> dict[str, Any]:
        return {"index": index, "id": f"c{index}", "function": {"name": name, "arguments": arguments}}

    response, pieces = _read(
        _chunk(content="Here it is: "),
        _chunk(reasoning="想"),
        _chunk(tool_calls=[call(0, "city", "")]),
        _chunk(tool_calls=[call(0, "", '{"name":')]),
        _chunk(tool_calls=[call(0, "", '"北京"}')]),
        _chunk(tool_calls=[call(1, "city", '{"name":"Paris"}')]),
        _chunk("tool_calls"),
        output_tool="city",
    )

    assert response.content == '{"name":"北京"}'
    assert response.message.parts == (ReasoningPart("想", "reasoning"), TextPart('{"name":"北京"}'))
    assert response.finish == "stop"
    assert [piece.kind for piece in pieces] == ["text", "reasoning", "text", "text", "text"]
    assert (
        len(
            _parts(
                _chunk("stop", tool_calls=[call(0, "city", "{}"), call(1, "look", "{}")]), output_tool="city"
            )
        )
        == 2
    )


def test_a_call_without_a_name_is_a_call() -> None:
    call = {"index": 0, "id": "c", "function": {"arguments": "{}"}}

    response, pieces = _read(_chunk("stop", tool_calls=[call]))

    assert response.message.parts == (ToolCallPart("c", ""),)
    assert pieces == [StreamChunk("tool_call", tool_call=ToolCallDelta(0, "c", "", "{}"))]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("tool_calls", "stop"),
        ("function_call", "stop"),
        ("content_filter", "refused"),
        ("sensitive", "refused"),
        ("model_context_window_exceeded", "too_long"),
        ("repetition_truncation", "other"),
        ("whatever", "other"),
    ],
)
def test_reasons_for_the_end_are_those_of_the_vendors(reason: str, finish: str) -> None:
    assert _read(_chunk(reason, content="x"))[0].finish == finish


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "function_call"])
def test_an_answer_with_calls_ended_to_have_them_called(reason: str) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}

    assert _read(_chunk(reason, tool_calls=[call]))[0].finish == "tool_calls"
    assert _read(_chunk("length", tool_calls=[call]))[0].finish == "length"


@pytest.mark.parametrize(
    ("reason", "failure"),
    [("insufficient_system_resource", "overloaded"), ("network_error", "server"), ("error", "server")],
)
def test_an_answer_that_was_given_up_is_none(reason: str, failure: str) -> None:
    with pytest.raises(LLMError, match=f"Here gave up the answer of m. It says '{reason}'") as caught:
        _read(_chunk(content="hal"), _chunk(reason))
    assert caught.value.failure == failure
    assert caught.value.is_transient


_SAID = {"prompt_tokens": 10, "completion_tokens": 20}


@pytest.mark.parametrize(
    ("said", "usage"),
    [
        (_SAID, Usage(10, 20)),
        (
            _SAID
            | {
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5},
                "completion_tokens_details": {"reasoning_tokens": 7},
            },
            Usage(10, 20, 7, 4, 5),
        ),
        (_SAID | {"prompt_tokens_details": None, "prompt_cache_hit_tokens": 6}, Usage(10, 20, 0, 6)),
        (_SAID | {"cached_tokens": 5}, Usage(10, 20, 0, 5)),
        ({"prompt_tokens": 10.0, "completion_tokens": "?", "prompt_cache_hit_tokens": -1}, Usage(10)),
        ({"prompt_tokens": float("inf"), "completion_tokens": float("nan")}, Usage()),
        ({"prompt_tokens": 10**400, "completion_tokens": 1e300}, Usage()),
    ],
)
def test_usage_is_what_the_vendor_says(said: dict[str, Any], usage: Usage) -> None:
    assert _read(_chunk("stop", content="x"), {"choices": [], "usage": said})[0].usage == usage
    assert _read({**_chunk("stop", content="x"), "usage": said})[0].usage == usage


def test_usage_may_come_in_the_choice_and_again_and_again() -> None:
    in_choice = {"choices": [{"delta": {}, "finish_reason": "stop", "usage": _SAID}]}
    assert _read(_chunk(content="x"), in_choice)[0].usage == Usage(10, 20)

    early = {**_chunk(content="x"), "usage": {"prompt_tokens": 10, "completion_tokens": 1}}
    assert _read(early, {**_STOP, "usage": _SAID}, {**_STOP, "usage": None})[0].usage == Usage(10, 20)


@pytest.mark.hostile("answers of models")
@pytest.mark.parametrize("chunks", [(), (_chunk(content="half"),), ({"usage": _SAID, "choices": []},)])
def test_a_stream_that_ends_early_is_a_broken_connection(chunks: tuple[object, ...]) -> None:
    with pytest.raises(LLMError, match="Here sent an incomplete response of m") as caught:
        _read(*chunks)
    assert (caught.value.failure, caught.value.provider) == ("connection", "here")


@pytest.mark.parametrize("chunk", [None, 3, "text", [], {"choices": []}])
def test_what_is_no_answer_cannot_be_read(chunk: object) -> None:
    with pytest.raises(LLMError, match="sent an unreadable response of m") as caught:
        _read(chunk)
    assert caught.value.failure == "unreadable"


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no"}, "choices": None},
        {"error": {"code": 502}, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]},
        {"base_resp": {"status_code": 1004}, "choices": None},
        {"detail": "Not Found"},
    ],
)
def test_an_error_instead_of_an_answer_is_handed_on(body: dict[str, Any]) -> None:
    with pytest.raises(NoAnswerError) as caught:
        _read(body)
    assert caught.value.body == body


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "x" * 60},
        {"reasoning_content": "x" * 60},
        {"tool_calls": [{"index": 0, "function": {"arguments": "x" * 60}}]},
    ],
)
def test_an_answer_without_end_is_given_up(delta: dict[str, Any]) -> None:
    reader = AnswerReader(_PLAIN, model="m", max_length=100)
    reader.feed(_chunk(**delta))

    with pytest.raises(LLMError, match="more than 100 characters") as caught:
        reader.feed(_chunk(**delta))
    assert caught.value.failure == "unreadable"


_PIECES = st.lists(
    st.tuples(st.sampled_from(["content", "reasoning_content"]), st.text("<>/think 想\n", max_size=8)),
    max_size=9,
)


@given(_PIECES, st.sampled_from([_PLAIN, DEEPSEEK, OPENAI_COMPATIBLE]))
def test_the_pieces_of_a_stream_are_the_parts_of_the_answer(
    deltas: list[tuple[str, str]], spec: ProviderSpec
) -> None:
    response, pieces = _read(*(_chunk(**{name: text}) for name, text in deltas), _STOP, spec=spec)

    assert "".join(piece.text for piece in pieces if piece.kind == "text") == response.content
    assert "".join(piece.text for piece in pieces if piece.kind == "reasoning") == response.message.reasoning
    assert all(piece.text for piece in pieces)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                "choices delta message content reasoning_content tool_calls usage finish_reason error "
                "prompt_tokens prompt_tokens_details function refusal reasoning_details".split()
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@pytest.mark.slow
@pytest.mark.hostile("answers of models")
@given(st.lists(_JSON, max_size=4), st.booleans())
def test_no_answer_is_so_odd_that_it_breaks_the_reader(chunks: list[object], tags: bool) -> None:
    try:
        response, _ = _read(*chunks, spec=replace(MINIMAX, think_tags=tags))
    except (LLMError, NoAnswerError):
        return
    assert response.message.provider == "minimax"


def _piece(
    arguments: object = None, *, id_: str | None = None, name: str | None = None, index: object = None
) -> dict[str, Any]:
    piece: dict[str, Any] = {"function": {"arguments": arguments}}
    if id_ is not None:
        piece["id"] = id_
    if name is not None:
        piece["function"]["name"] = name
    if index is not None:
        piece["index"] = index
    return piece


def _put_together(*chunks: list[object]) -> list[tuple[str, str, str]]:
    """Index, name and arguments of the calls, as their pieces say; which has to be what the parts say."""
    calls = ToolCalls()
    deltas = [delta for chunk in chunks for delta in calls.feed(chunk)] + calls.finish()
    together: dict[int, list[str]] = {}
    for delta in deltas:
        if delta.index not in together:
            assert delta.id
            together[delta.index] = [delta.id, delta.name, delta.arguments]
        else:
            assert not delta.id
            assert not delta.name
            together[delta.index][2] += delta.arguments
    assert [tuple(together[index]) for index in sorted(together)] == [
        (call.id, call.name, call.text) for call in calls.calls
    ]
    assert len({call.id for call in calls.calls}) == len(calls.calls)
    return [(call.came_as or "made up", call.name, call.text) for call in calls.calls]


_F = ("a", "f", '{"x":1}')
_G = ("b", "g", '{"y":"二"}')

_STREAMS: dict[str, tuple[list[list[object]], list[tuple[str, str, str]]]] = {
    "as the format has it": (
        [
            [_piece("", id_="a", name="f", index=0)],
            [_piece('{"x"', index=0)],
            [_piece(":1}", index=0)],
            [_piece("", id_="b", name="g", index=1)],
            [_piece('{"y":"二"}', index=1)],
        ],
        [_F, _G],
    ),
    "two calls in turns": (
        [
            [_piece("", id_="a", name="f", index=0), _piece("", id_="b", name="g", index=1)],
            [_piece('{"x"', index=0), _piece('{"y":', index=1)],
            [_piece('"二"}', index=1), _piece(":1}", index=0)],
        ],
        [_F, _G],
    ),
    "no index, whole calls": (
        [[_piece('{"x":1}', id_="a", name="f")], [_piece('{"y":"二"}', id_="b", name="g")]],
        [_F, _G],
    ),
    "no index, whole calls at once": (
        [[_piece('{"x":1}', id_="a", name="f"), _piece('{"y":"二"}', id_="b", name="g")]],
        [_F, _G],
    ),
    "no index, in pieces": (
        [
            [_piece("", id_="a", name="f")],
            [_piece('{"x":1}')],
            [_piece("", id_="b", name="g")],
            [_piece('{"y":"二"}')],
        ],
        [_F, _G],
    ),
    "index 0 for all": (
        [[_piece('{"x":1}', id_="a", name="f", index=0)], [_piece('{"y":"二"}', id_="b", name="g", index=0)]],
        [_F, _G],
    ),
    "id and name with every piece": (
        [
            [_piece('{"x"', id_="a", name="f", index=0)],
            [_piece(":1}", id_="a", name="f", index=0)],
            [_piece("", id_="a", name="f", index=0)],
        ],
        [_F],
    ),
    "a new id with every piece": (
        [[_piece('{"x"', id_="a", name="f", index=0)], [_piece(":1}", id_="zzz", name="f", index=0)]],
        [_F],
    ),
    "a new id without a name goes on": (
        [[_piece('{"x":1}', id_="a", name="f", index=0)], [_piece("", id_="zzz", index=0)]],
        [_F],
    ),
    "the same id for two calls": (
        [[_piece('{"x":1}', id_="a", name="f", index=0)], [_piece('{"y":"二"}', id_="a", name="g", index=1)]],
        [_F, ("a", "g", '{"y":"二"}')],
    ),
    "no ids": (
        [[_piece('{"x":1}', name="f")], [_piece('{"y":"二"}', name="g")]],
        [("made up", "f", '{"x":1}'), ("made up", "g", '{"y":"二"}')],
    ),
    "no ids and no index at once": (
        [[_piece('{"x":1}', name="f"), _piece('{"x":1}', name="f")]],
        [("made up", "f", '{"x":1}')] * 2,
    ),
    "the id comes late": (
        [[_piece("", name="f", index=0)], [_piece('{"x":1}', id_="a", index=0)]],
        [_F],
    ),
    "the name in pieces": (
        [
            [_piece("", id_="a", name="get_", index=0)],
            [_piece("", name="it", index=0)],
            [_piece("{}", index=0)],
        ],
        [("a", "get_it", "{}")],
    ),
    "the name after the arguments": (
        [[_piece("{", id_="a", index=0)], [_piece("}", name="f", index=0)]],
        [("a", "f", "{}")],
    ),
    "no arguments": (
        [[_piece("", id_="a", name="f", index=0)], [_piece(None, id_="b", name="g", index=0)]],
        [("a", "f", ""), ("b", "g", "")],
    ),
    "arguments as an object": ([[_piece({"y": "二"}, id_="b", name="g")]], [("b", "g", '{"y": "二"}')]),
    "what is no call": ([["?", {"id": "a", "function": 3, "index": "0"}]], [("a", "", "")]),
}


@pytest.mark.parametrize(("chunks", "calls"), _STREAMS.values(), ids=_STREAMS.keys())
def test_calls_are_put_together_however_servers_send_them(
    chunks: list[list[object]], calls: list[tuple[str, str, str]]
) -> None:
    assert _put_together(*chunks) == calls


def test_each_call_of_a_whole_message_is_one_of_its_own() -> None:
    calls = ToolCalls()

    deltas = calls.feed([_piece("{}", id_="a", name="f")] * 2, whole=True)

    assert [delta.index for delta in deltas] == [0, 1]
    assert deltas[0] == ToolCallDelta(0, "a", "f", "{}")
    assert deltas[1].id.startswith("call_")


def test_what_came_with_a_call_is_kept_where_the_vendor_wants_it_back() -> None:
    calls = ToolCalls(extras=("extra_content",))
    signed = {"google": {"thought_signature": "s"}}

    calls.feed([{**_piece("{}", id_="a", name="f", index=0), "extra_content": signed, "other": 1}])

    assert calls.calls[0].as_part().opaque == {"extra_content": signed}


def test_arguments_that_are_no_object_are_kept_as_they_are() -> None:
    calls = ToolCalls()

    calls.feed([_piece('{"x": tru', id_="a", name="f", index=0)])

    assert calls.calls[0].as_part().unreadable == '{"x": tru'


@given(
    st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=9), max_size=2), min_size=1, max_size=4),
    st.integers(1, 7),
)
def test_arguments_cut_anywhere_come_out_whole(arguments: list[dict[str, str]], size: int) -> None:
    texts = [json.dumps(each, ensure_ascii=False) for each in arguments]
    chunks: list[list[object]] = []
    for number, text in enumerate(texts):
        chunks.append([_piece("", id_=f"c{number}", name="f", index=number)])
        chunks += [[_piece(text[at : at + size], index=number)] for at in range(0, len(text), size)]

    assert _put_together(*chunks) == [(f"c{number}", "f", text) for number, text in enumerate(texts)]


_SCRAPS = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["", "a", "b", "{}", '{"x":']),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["id", "index", "function", "name", "arguments"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@pytest.mark.slow
@example([[{"id": None}, {"function": {"name": "a", "arguments": False}}]])  # the second is told first
@given(st.lists(st.lists(_SCRAPS, max_size=3), max_size=5))
def test_no_rubbish_breaks_it(chunks: list[list[object]]) -> None:
    _put_together(*chunks)
