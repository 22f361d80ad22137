from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.agent.compaction.compaction import HistorySplit, newest_start, split_history
from loom_core.agent.compaction.summary import is_summary, summary_message
from loom_core.llm.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from loom_core.llm.transport.replay import pair_tool_results
from tests.fixtures.conversations import conversations

_SYSTEM = SystemMessage("You are an agent.")
_SUMMARY = summary_message("## Results\nx", goal="", pinned=(), before=1, after=1, at=0, chinese=False)


def _user(text: str) -> UserMessage:
    return UserMessage((TextPart(text),))


def _answer(text: str) -> AssistantMessage:
    return AssistantMessage((TextPart(text),))


def _asks(id_: str) -> AssistantMessage:
    return AssistantMessage((ToolCallPart(id_, "look", {}),))


def _result(id_: str) -> ToolMessage:
    return ToolMessage(id_, (TextPart("seen"),))


def _work(*ids: str) -> list[Message]:
    return [message for id_ in ids for message in (_asks(id_), _result(id_))]


def _parts(history: list[Message], *, goal: str, room: float) -> HistorySplit | None:
    return split_history(history, [1] * len(history), goal=goal, room=room)


_TURNS: list[Message] = [
    _SYSTEM,
    *(_user("one"), _answer("1")),
    *(_user("two"), *_work("a"), _answer("2")),
    *(_user("三"), *_work("b", "c")),
]


@pytest.mark.parametrize(
    ("room", "kept"),
    [(100, 9), (9, 9), (8, 5), (5, 5), (4, 4), (3, 2), (2, 2), (0, 2)],
)
def test_as_much_is_kept_as_there_is_room_for(room: int, kept: int):
    parts = _parts(_TURNS, goal="三", room=room)

    assert parts is not None
    assert len(parts.kept) == kept
    assert list(parts.kept) == _TURNS[-kept:]


def test_where_the_goal_fits_whole_the_cut_is_before_a_message_of_the_user():
    parts = _parts(_TURNS, goal="三", room=8)

    assert parts == HistorySplit((_SYSTEM,), tuple(_TURNS[1:7]), tuple(_TURNS[7:]))


def test_where_the_goal_alone_is_too_much_it_stays_in_front_and_the_cut_is_within():
    parts = _parts(_TURNS, goal="三", room=2)

    assert parts == HistorySplit((_SYSTEM, _TURNS[7]), (*_TURNS[1:7], *_TURNS[8:10]), tuple(_TURNS[10:]))


def test_what_the_user_said_meanwhile_does_not_begin_another_turn():
    history = [_user("goal"), *_work("a"), _user("also this"), *_work("b")]

    parts = _parts(history, goal="goal", room=3)

    assert parts is not None
    assert parts.lead == (history[0],)
    assert parts.kept == tuple(history[4:])


def test_a_goal_that_is_in_no_message_means_the_last_turn_of_the_user():
    parts = _parts(_TURNS, goal="something else", room=8)

    assert parts is not None
    assert parts.kept == tuple(_TURNS[7:])
    inside = _parts(_TURNS, goal="something else", room=2)
    assert inside is not None
    assert inside.lead == (_SYSTEM,)


def test_a_short_goal_is_not_found_in_other_words_but_a_long_one_is_found_among_them():
    long = "summarise the annual report of the company in Chinese"
    history = [_user(f"{long}\nThe report: …"), *_work("a", "b"), _user("test it again"), *_work("c")]

    short = _parts(history, goal="test", room=2)
    found = _parts(history, goal=long, room=2)

    assert short is not None
    assert short.lead == ()
    assert found is not None
    assert found.lead == (history[0],)


def test_what_the_program_says_stays_wherever_it_stands():
    history = [_SYSTEM, _user("one"), SystemMessage("Be brief."), _answer("1"), _user("two"), _answer("2")]

    parts = _parts(history, goal="two", room=2)

    assert parts == HistorySplit((_SYSTEM, history[2]), (history[1], history[3]), (history[4], history[5]))


def test_an_earlier_summary_is_always_in_what_is_summarised():
    history = [_user("old"), _SUMMARY, *_work("a"), _answer("1"), _user("new"), _answer("2")]

    parts = _parts(history, goal="new", room=100)

    assert parts is not None
    assert _SUMMARY in parts.dropped


@pytest.mark.parametrize(
    "history",
    [
        [],
        [_SYSTEM],
        [_SYSTEM, _user("goal")],
        [_SYSTEM, _SUMMARY, _user("goal")],
        [_user("goal"), _answer("1")],
        [_user("goal"), _SUMMARY, _answer("1")],
        [_answer("goal")],
    ],
)
def test_where_nothing_can_be_cut_off_there_is_no_cut(history: list[Message]):
    assert _parts(history, goal="goal", room=0) is None


def test_results_that_came_late_stay_with_their_calls():
    history = [_user("one"), _asks("a"), _user("hurry"), _result("a"), _user("goal"), _answer("x")]

    for room in range(2, 7):
        parts = _parts(history, goal="goal", room=room)
        assert parts is not None
        assert parts.kept == tuple(history[4:])


def test_the_newest_part_begins_at_an_answer():
    sizes = [1] * len(_TURNS)

    assert newest_start(_TURNS, sizes, room=3) == len(_TURNS) - 2
    assert newest_start(_TURNS, sizes, room=0) == len(_TURNS) - 2
    assert newest_start(_TURNS, sizes, room=100) == 2
    assert newest_start([_SYSTEM, _user("x")], [1, 1], room=100) == 2


@pytest.mark.slow
@given(history=conversations(), room=st.floats(0, 30), last=st.booleans())
def test_in_any_conversation_no_call_is_parted_from_its_result(
    history: tuple[Message, ...], room: float, *, last: bool
):
    goal = history[-1].text if last and isinstance(history[-1], UserMessage) else "整理文档"
    parts = split_history(history, [1] * len(history), goal=goal, room=room)

    if parts is None:
        return
    assert len(parts.lead) + len(parts.dropped) + len(parts.kept) == len(history)
    assert parts.kept == history[len(history) - len(parts.kept) :]
    assert parts.dropped
    assert not any(isinstance(message, SystemMessage) for message in parts.dropped)
    whole, kept = pair_tool_results(history), pair_tool_results(parts.kept)
    # What is answered in the whole conversation is answered in the kept part, by the same words.
    answers = [message.text for message in kept if isinstance(message, ToolMessage)]
    assert (
        answers
        == [message.text for message in whole if isinstance(message, ToolMessage)][
            -len(answers) or len(whole) :
        ]
    )
    assert not any(map(is_summary, parts.kept))
