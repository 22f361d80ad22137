from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from loom_core.server.protocol.content import Image
from loom_core.server.protocol.results import TOKEN_CAP, TextBudget, estimate_tokens, tool_result


class Note(BaseModel):
    text: str


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("abcd", 1),
        ("abcde", 2),
        ("你好", 2),
        ("你好ab", 3),
        ("カタカナ", 4),
        ("한국어", 3),
        ("，。", 2),
        ("𠀀", 1),
        ("éééé", 1),
    ],
)
def test_a_cjk_character_counts_as_one_token_and_four_others_count_as_one(text, tokens):
    assert estimate_tokens(text) == tokens


def test_a_reply_keeps_text_and_structured_data():
    reply = tool_result("你好", Note(text="你好"))

    assert reply.text == "你好"
    assert reply.structured == Note(text="你好")


def test_all_texts_of_a_reply_together_stay_near_the_cap():
    picture = Image(b"\x89PNG")
    reply = tool_result("字" * 15_000, Note(text="x"), picture, "a" * 8000, "字" * 15_000, "字" * 15_000)

    texts = [part for part in reply.contents if isinstance(part, str)]
    assert reply.text == "字" * 15_000
    assert list(reply.contents[:2]) == [picture, "a" * 8000]
    assert [text.endswith("characters shown; narrow the request]") for text in texts] == [False, True, True]
    assert sum(map(estimate_tokens, [reply.text, *texts])) <= TOKEN_CAP + 60


@pytest.mark.parametrize("text", ["x" * 4 * TOKEN_CAP, "字" * TOKEN_CAP])
def test_a_text_at_the_cap_is_left_alone(text):
    assert tool_result(text, Note(text="")).text == text


@pytest.mark.parametrize("text", ["x" * (4 * TOKEN_CAP + 1), "字" * 30_000, "字x" * 30_000])
def test_a_text_beyond_the_cap_is_cut_and_says_so_in_its_last_line(text):
    capped = tool_result(text, Note(text="")).text

    start, _, note = capped.rpartition("\n\n")
    shown = start.removesuffix(" …")
    assert text.startswith(shown)
    assert note == f"[truncated: {len(shown)} of {len(text)} characters shown; narrow the request]"
    assert TOKEN_CAP - 100 < estimate_tokens(capped) <= TOKEN_CAP


def test_a_budget_that_holds_everything_adds_nothing():
    budget = TextBudget(200, narrow="a smaller `limit`")

    assert all(budget.add(block) for block in ("first", "second", "第三"))
    assert budget.text() == "first\n\nsecond\n\n第三"
    assert budget.shown == 3


def test_an_empty_budget_is_an_empty_text():
    assert TextBudget(narrow="nothing").text() == ""


def test_the_last_line_says_how_many_blocks_are_missing_and_what_to_do():
    budget = TextBudget(200, narrow="a smaller `limit`")

    taken = [budget.add("字" * 60) for _ in range(4)]

    assert taken == [True, True, False, False]
    assert budget.shown == 2
    assert budget.text().endswith("\n\n[truncated: 2 of 4 shown; narrow with a smaller `limit`]")


def test_a_shorter_block_of_lower_rank_does_not_slip_in():
    budget = TextBudget(200, narrow="a smaller `limit`")

    assert [budget.add("字" * 100), budget.add("字" * 100), budget.add("字")] == [True, False, False]


def test_the_caller_may_know_of_more_than_were_offered():
    budget = TextBudget(narrow="`cursor`", separator="\n")
    budget.add("one")

    assert budget.text(total=7) == "one\n[truncated: 1 of 7 shown; narrow with `cursor`]"


def test_a_first_block_that_is_too_long_is_cut_instead_of_left_out():
    budget = TextBudget(200, narrow="a smaller `limit`")

    assert budget.add("字" * 1000)
    assert not budget.add("x")
    text = budget.text()
    assert text.startswith("字" * 100)
    assert "字 …\n\n" in text
    assert text.endswith("[truncated: 1 of 2 shown, the first in part; narrow with a smaller `limit`]")


@given(
    blocks=st.lists(st.text(alphabet=st.sampled_from("ab 字🙂é\n"), max_size=400), max_size=12),
    tokens=st.integers(100, 300),
)
def test_a_budget_is_never_exceeded(blocks, tokens):
    budget = TextBudget(tokens, narrow="a smaller `limit` or one `source`")
    taken = [budget.add(block) for block in blocks]

    assert estimate_tokens(budget.text(total=10**9)) <= tokens
    assert taken == sorted(taken, reverse=True)
    assert budget.shown == sum(taken)
    assert not blocks or budget.shown
