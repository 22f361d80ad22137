from __future__ import annotations

import pytest

from loom_core.agent.compaction.compaction import ContextUsage, TokenCounts, TokenScale, tokens_after
from loom_core.llm.interface import Usage
from loom_core.llm.messages import AssistantMessage, ReasoningPart, TextPart, UserMessage


def _user(text: str) -> UserMessage:
    return UserMessage((TextPart(text),))


def test_how_full_it_is_is_a_part_of_the_room():
    assert ContextUsage(46, 50).ratio == 0.92
    assert ContextUsage(100, 50).ratio == 2.0


@pytest.mark.parametrize(("used", "half"), [(1000, 500), (1400, 900), (500, 250)])
def test_what_is_left_when_half_of_the_messages_are_gone(used: int, half: int):
    scale = TokenScale.of([400, 600], ContextUsage(used, 2000))

    assert scale.before == used
    assert scale.tokens(1000) == used
    assert scale.tokens(500) == half
    assert scale.estimate(scale.tokens(500)) == 500


def test_without_a_measure_the_estimate_counts():
    assert TokenScale.of([400, 600], None) == TokenScale(1000, 1.0, 0.0)
    assert TokenScale.of([], ContextUsage(500, 2000)).before == 0


def test_a_history_whose_messages_have_changed_is_measured_again():
    sizes, first = TokenCounts(), [_user("a" * 40), _user("b" * 400), _user("c" * 4000)]

    assert sizes.of(first) == [14, 104, 1004]
    assert sizes.of([first[0], _user("d" * 80), first[2]]) == [14, 24, 1004]
    assert sizes.of(first[:1]) == [14]
    assert sizes.of([]) == []


def test_what_came_after_the_reported_answer_is_estimated():
    history = [_user("a"), AssistantMessage((ReasoningPart("hm"), TextPart("b"))), _user("c" * 400)]
    sizes = [5, 6, 104]

    assert (
        tokens_after(history, sizes, Usage(input_tokens=900, output_tokens=80, reasoning_tokens=30)) == 1084
    )
    assert tokens_after(history[:1], sizes[:1], Usage(input_tokens=900)) is None
