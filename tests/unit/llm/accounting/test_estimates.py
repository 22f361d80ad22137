from __future__ import annotations

import pytest

from loom_core.llm.accounting.metering import estimate_answer, estimate_json, estimate_message, estimate_tool
from loom_core.llm.interface import ToolSpec
from loom_core.llm.messages import (
    AssistantMessage,
    ImagePart,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)


def test_a_chinese_character_counts_for_more_than_a_letter():
    assert estimate_message(UserMessage((TextPart("知识图谱" * 30),))) == 84
    assert estimate_message(SystemMessage("word" * 30)) == 34


def test_images_count_wherever_they_stand():
    assert estimate_message(UserMessage((ImagePart(b"png"), TextPart("what?")))) == 1006
    assert estimate_message(ToolMessage("c", (ImagePart(url="https://example.com/a.png"),))) == 1004


def test_reasoning_and_calls_count_as_what_is_sent_of_them():
    call = ToolCallPart("a", "search", {"查询": "知识"})
    unreadable = ToolCallPart("a", "search", unreadable="x" * 400)

    assert estimate_answer([ReasoningPart("think" * 8)]) == 10
    assert estimate_answer([call]) == 4 + 2 + estimate_json({"查询": "知识"})
    assert estimate_answer([unreadable]) == 4 + 2 + 100
    assert estimate_message(AssistantMessage((TextPart("yes "), call))) == 4 + 1 + estimate_answer([call])


@pytest.mark.parametrize("value", [{"n": float("nan")}, {"a": {"b": [1, None]}}, {"half": "\ud800"}])
def test_what_models_write_has_a_size(value: dict[str, object]):
    assert estimate_json(value) > 0


def test_a_tool_counts_with_its_schema():
    schema = {"type": "object", "properties": {"query": {"type": "string"}}}

    assert estimate_tool(ToolSpec("find", "Finds things.", schema)) > estimate_tool(
        ToolSpec("find", "Finds things.")
    )
