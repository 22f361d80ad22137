from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loom_core.llm.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from loom_core.llm.transport.replay import NO_RESULT, paired


def _asks(*ids: str) -> AssistantMessage:
    return AssistantMessage((TextPart("看"), *(ToolCallPart(id_, "look") for id_ in ids)), provider="p")


def _result(id_: str, text: str = "seen") -> ToolMessage:
    return ToolMessage(id_, (TextPart(text),))


_USER = UserMessage((TextPart("你好"),))


def test_a_conversation_that_is_in_order_stays_as_it_is() -> None:
    messages = (SystemMessage("s"), _USER, _asks("a", "b"), _result("a"), _result("b"), _USER)

    assert paired(messages) == messages


def test_results_come_in_the_order_of_the_calls_and_before_what_was_said_meanwhile() -> None:
    messages = (_asks("a", "b"), _USER, _result("b", "B"), _result("a", "A"))

    assert paired(messages) == (_asks("a", "b"), _result("a", "A"), _result("b", "B"), _USER)


def test_a_call_without_a_result_is_answered_by_there_being_none() -> None:
    assert paired((_asks("a"), _USER)) == (
        _asks("a"),
        ToolMessage("a", (TextPart(NO_RESULT),), failed=True),
        _USER,
    )


def test_results_without_a_call_and_second_results_are_left_out() -> None:
    messages = (_result("lost"), _USER, _asks("a"), _result("a"), _result("a", "again"), _result("late"))

    assert paired(messages) == (_USER, _asks("a"), _result("a"))


def test_a_call_whose_id_was_there_before_gets_another_and_so_does_its_result() -> None:
    messages = (_asks("a"), _result("a", "1"), _asks("a", "a"), _result("a", "2"), _result("a", "3"))

    assert paired(messages) == (
        _asks("a"),
        _result("a", "1"),
        _asks("a_2", "a_3"),
        _result("a_2", "2"),
        _result("a_3", "3"),
    )


def test_a_call_without_an_id_gets_one() -> None:
    assert paired((_asks(""), _result(""))) == (_asks("call"), _result("call"))


_IDS = st.sampled_from(["", "a", "b", "a_2", "调用"])
_MESSAGES = st.one_of(
    st.just(_USER),
    st.builds(_result, _IDS),
    st.lists(_IDS, max_size=3).map(lambda ids: _asks(*ids)),
)


@given(st.lists(_MESSAGES, max_size=12))
def test_in_any_conversation_each_call_is_answered_once_right_behind_it(messages: list[Message]) -> None:
    fixed = paired(messages)

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
    assert paired(fixed) == fixed
