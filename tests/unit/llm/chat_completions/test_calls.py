from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.llm.chat_completions.reading import ToolCalls
from loom_core.llm.interface import ToolCallDelta


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
    assert [tuple(call) for call in together.values()] == [
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
@given(st.lists(st.lists(_SCRAPS, max_size=3), max_size=5))
def test_no_rubbish_breaks_it(chunks: list[list[object]]) -> None:
    _put_together(*chunks)
