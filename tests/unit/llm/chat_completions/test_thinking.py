from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.llm.chat_completions.thinking import ThinkTags, wrap_in_tags


def _parted(pieces: list[str]) -> tuple[str, str]:
    tags = ThinkTags()
    fed = [*map(tags.feed, pieces), tags.finish()]
    return "".join(reasoning for reasoning, _ in fed), "".join(text for _, text in fed)


@pytest.mark.parametrize(
    ("content", "reasoning", "text"),
    [
        ("你好", "", "你好"),
        ("<think>想</think>答", "想", "答"),
        (" \n<think>想</think>答", "想", "答"),
        ("<think></think>答", "", "答"),
        ("<think>cut by the limit", "cut by the limit", ""),
        ("<think>cut </thi", "cut </thi", ""),
        ("<think>1 < 2 </ 3</think>yes", "1 < 2 </ 3", "yes"),
        ("<thin", "", "<thin"),
        ("<b>bold</b>", "", "<b>bold</b>"),
        ("later <think>x</think>", "", "later <think>x</think>"),
        ("no opening</think>答", "", "no opening</think>答"),
        ("", "", ""),
    ],
)
def test_tags_at_the_beginning_part_reasoning_from_the_answer_wherever_the_pieces_are_cut(
    content: str, reasoning: str, text: str
) -> None:
    assert _parted([content]) == (reasoning, text)
    assert _parted(list(content)) == (reasoning, text)


def test_all_that_comes_after_the_tags_is_let_through() -> None:
    tags = ThinkTags()
    assert not tags.done

    tags.feed("<think>a</think>")

    assert tags.done
    assert tags.feed("<think>b</think>") == ("", "<think>b</think>")


@given(st.text(alphabet="<>/think 想\n"), st.text(alphabet="<>/think 答\n"), st.integers(1, 9))
def test_what_is_put_into_tags_comes_out_of_them(reasoning: str, text: str, size: int) -> None:
    reasoning = reasoning.replace("</think>", "")
    content = wrap_in_tags(reasoning) + text

    parted = _parted([content[start : start + size] for start in range(0, len(content), size)])

    assert parted == (reasoning, f"\n\n{text}")
