from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.llm.messages import (
    AssistantMessage,
    Message,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from loom_core.llm.transport.replay import (
    NO_RESULT,
    needs_filler,
    pair_tool_results,
    with_reasoning_to_replay,
)
from loom_core.llm.vendors import DEEPSEEK, KIMI, OPENAI, ProviderSpec, Replay


def _spec(replay: Replay) -> ProviderSpec:
    return ProviderSpec(name="here", title="Here", replay=replay)


def _answer(thought: str, *, provider: str = "here", **more: object) -> AssistantMessage:
    opaque = {"signature": more["signature"]} if "signature" in more else {}
    return AssistantMessage((ReasoningPart(thought, "reasoning", opaque), TextPart("好")), provider=provider)


_TWO_TURNS: tuple[Message, ...] = (
    SystemMessage("规则"),
    UserMessage((TextPart("first"),)),
    _answer("one"),
    UserMessage((TextPart("second"),)),
    AssistantMessage((ReasoningPart("two"), ToolCallPart("c", "look")), provider="here"),
    ToolMessage("c", (TextPart("seen"),)),
    _answer("three"),
)


def _thoughts(messages: tuple[Message, ...]) -> list[str]:
    return [message.reasoning for message in messages if isinstance(message, AssistantMessage)]


@pytest.mark.parametrize(
    ("replay", "tools", "thoughts"),
    [
        ("never", True, ["", "", ""]),
        ("same_turn", False, ["", "two", "three"]),
        ("with_tools", False, ["", "", ""]),
        ("with_tools", True, ["one", "two", "three"]),
        ("always", False, ["one", "two", "three"]),
    ],
)
def test_reasoning_goes_back_as_the_vendor_wants_it(replay: Replay, tools: bool, thoughts: list[str]) -> None:
    kept = with_reasoning_to_replay(_TWO_TURNS, _spec(replay), tools=tools)

    assert _thoughts(kept) == thoughts
    assert len(kept) == len(_TWO_TURNS)
    assert [m.text for m in kept] == [m.text for m in _TWO_TURNS]


def test_without_a_user_message_the_whole_conversation_is_one_turn() -> None:
    assert _thoughts(with_reasoning_to_replay((_answer("one"),), _spec("same_turn"), tools=False)) == ["one"]


def test_what_goes_back_is_the_very_same_message() -> None:
    (kept,) = with_reasoning_to_replay(
        (message := _answer("signed", signature="s"),), _spec("always"), tools=False
    )

    assert kept is message


def test_reasoning_of_another_provider_never_goes_back() -> None:
    messages = (_answer("plain", provider="there"), _answer("signed", provider="there", signature="s"))

    assert _thoughts(with_reasoning_to_replay(messages, _spec("always"), tools=True)) == ["", ""]


def test_reasoning_written_by_hand_goes_back_unless_something_opaque_came_with_it() -> None:
    messages = (_answer("by hand", provider=""), _answer("whose?", provider="", signature="s"))

    assert _thoughts(with_reasoning_to_replay(messages, _spec("always"), tools=True)) == ["by hand", ""]


_PLAIN = AssistantMessage((TextPart("好"),))
_CALLING = AssistantMessage((ToolCallPart("c", "look"),))


@pytest.mark.parametrize(
    ("spec", "message", "tools", "needed"),
    [
        (DEEPSEEK, _PLAIN, True, True),
        (DEEPSEEK, _CALLING, True, True),
        (DEEPSEEK, _CALLING, False, False),
        (KIMI, _PLAIN, True, False),
        (KIMI, _CALLING, True, True),
        (KIMI, _CALLING, False, True),
        (OPENAI, _CALLING, True, False),
    ],
)
def test_a_lack_of_reasoning_is_said_where_the_vendor_asks_for_it(
    spec: ProviderSpec, message: AssistantMessage, tools: bool, needed: bool
) -> None:
    assert needs_filler(message, spec, tools=tools) is needed


def _asks(*ids: str) -> AssistantMessage:
    return AssistantMessage((TextPart("看"), *(ToolCallPart(id_, "look") for id_ in ids)), provider="p")


def _result(id_: str, text: str = "seen") -> ToolMessage:
    return ToolMessage(id_, (TextPart(text),))


_USER = UserMessage((TextPart("你好"),))


def test_a_conversation_that_is_in_order_stays_as_it_is() -> None:
    messages = (SystemMessage("s"), _USER, _asks("a", "b"), _result("a"), _result("b"), _USER)

    assert pair_tool_results(messages) == messages


def test_results_come_in_the_order_of_the_calls_and_before_what_was_said_meanwhile() -> None:
    messages = (_asks("a", "b"), _USER, _result("b", "B"), _result("a", "A"))

    assert pair_tool_results(messages) == (_asks("a", "b"), _result("a", "A"), _result("b", "B"), _USER)


def test_a_call_without_a_result_is_answered_by_there_being_none() -> None:
    assert pair_tool_results((_asks("a"), _USER)) == (
        _asks("a"),
        ToolMessage("a", (TextPart(NO_RESULT),), failed=True),
        _USER,
    )


def test_results_without_a_call_and_second_results_are_left_out() -> None:
    messages = (_result("lost"), _USER, _asks("a"), _result("a"), _result("a", "again"), _result("late"))

    assert pair_tool_results(messages) == (_USER, _asks("a"), _result("a"))


def test_a_call_whose_id_was_there_before_gets_another_and_so_does_its_result() -> None:
    messages = (_asks("a"), _result("a", "1"), _asks("a", "a"), _result("a", "2"), _result("a", "3"))

    assert pair_tool_results(messages) == (
        _asks("a"),
        _result("a", "1"),
        _asks("a_2", "a_3"),
        _result("a_2", "2"),
        _result("a_3", "3"),
    )


def test_a_call_without_an_id_gets_one() -> None:
    assert pair_tool_results((_asks(""), _result(""))) == (_asks("call"), _result("call"))


_IDS = st.sampled_from(["", "a", "b", "a_2", "调用"])
_MESSAGES = st.one_of(
    st.just(_USER),
    st.builds(_result, _IDS),
    st.lists(_IDS, max_size=3).map(lambda ids: _asks(*ids)),
)


@given(st.lists(_MESSAGES, max_size=12))
def test_in_any_conversation_each_call_is_answered_once_right_behind_it(messages: list[Message]) -> None:
    fixed = pair_tool_results(messages)

    ids = [
        call.id for message in fixed if isinstance(message, AssistantMessage) for call in message.tool_calls
    ]
    assert len(set(ids)) == len(ids)
    expected: list[str] = []
    for message in fixed:
        if isinstance(message, ToolMessage):
            assert message.call_id == expected.pop(0)
        else:
            assert expected == []
            if isinstance(message, AssistantMessage):
                expected = [call.id for call in message.tool_calls]
    assert expected == []
    assert pair_tool_results(fixed) == fixed
