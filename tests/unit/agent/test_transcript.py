from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.agent.compaction.summarizer import transcript
from loom_core.agent.compaction.summary import summary_message
from loom_core.llm.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from loom_core.tokens import estimate_tokens
from tests.fixtures.conversations import conversations


def test_who_said_and_did_what_is_there_in_order():
    messages: list[Message] = [
        SystemMessage("Be brief."),
        UserMessage((TextPart("看看这张图"), ImagePart(b"png"))),
        AssistantMessage((ReasoningPart("hm"), TextPart("好"), ToolCallPart("c", "查询", {"q": "图"}))),
        ToolMessage("c", (TextPart("没有"),), failed=True),
        AssistantMessage((ToolCallPart("d", "find", unreadable='{"q": '),)),
        ToolMessage("d", (TextPart("found"),)),
        ToolMessage("lost", (TextPart("?"),)),
    ]

    assert transcript(messages, most_tokens=1000) == [
        "\n\n".join(
            [
                "[system] Be brief.",
                "[user] 看看这张图(an image)",
                "[assistant] 好",
                '[call] 查询 {"q": "图"}',
                "[failure of 查询] 没有",
                '[call] find {"q":',
                "[result of find] found",
                "[result of a tool] ?",
            ]
        )
    ]


def test_long_results_are_shown_by_their_ends_with_where_the_whole_is():
    address = "loom://runs/run_1/blobs/1"
    result = "begin " + "x" * 5000 + f" (whole: {address}) " + "y" * 5000 + " end"

    (text,) = transcript([ToolMessage("c", (TextPart(result),))], most_tokens=5000)

    assert text.startswith("[result of a tool] begin x")
    assert "characters left out" in text
    assert text.endswith(f"end (whole: {address})")
    assert len(text) < 2200


def test_an_entry_that_is_too_long_by_itself_is_cut():
    said = [UserMessage((TextPart("first"),)), UserMessage((TextPart("很长" * 500),))]

    (text,) = transcript(said, most_tokens=100)

    assert text.startswith("[user] first\n\n[user] 很长")
    assert "characters left out" in text


def test_earlier_summaries_are_left_out():
    earlier = summary_message("## Results\nx", goal="", pinned=(), before=1, after=1, at=0, chinese=False)

    assert transcript([earlier, UserMessage((TextPart("more"),))], most_tokens=100) == ["[user] more"]
    assert transcript([earlier], most_tokens=100) == []


@settings(max_examples=30)
@given(
    messages=conversations(), most=st.integers(60, 400), long=st.sampled_from(["", "长" * 900, "x" * 9000])
)
def test_no_part_is_longer_than_allowed(messages: tuple[Message, ...], most: int, long: str):
    for part in transcript((*messages, UserMessage((TextPart(long),))), most_tokens=most):
        assert estimate_tokens(part) <= most
