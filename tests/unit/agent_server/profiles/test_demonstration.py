"""The demonstration: rules that stand in for a model, the same each time."""

from __future__ import annotations

import json

import anyio
import pytest
from loom_agent.profiles.demonstration import MODEL, demonstration_model, demonstration_tools

from loom_core.agent.agent import Agent
from loom_core.agent.compaction.compaction import Compactor
from loom_core.llm.interface import ToolSpec
from loom_core.llm.messages import AssistantMessage, TextPart, ToolCallPart, ToolMessage, UserMessage

SPECS = [tool.spec() for tool in demonstration_tools()]


async def answer(goal, *since, tools=SPECS):
    messages = [UserMessage((TextPart(goal),)), *since]
    return (await demonstration_model().chat(messages, tools=tools)).message


@pytest.mark.parametrize(
    ("goal", "calls"),
    [
        ("What time is it?", [("clock", {})]),
        ("现在几点？", [("clock", {})]),
        ("Please write that down", [("keep_note", {"text": "Please write that down"})]),
        ("请记下来", [("keep_note", {"text": "请记下来"})]),
        ("wait 2.5", [("wait_for", {"seconds": 2.5})]),
        ("等待 3 秒", [("wait_for", {"seconds": 3.0})]),
        ("问我的名字", [("ask_user", {"question": "问我的名字"})]),
        ('use fs:read {"path": "a"} and use clock', [("fs:read", {"path": "a"}), ("clock", {})]),
        ('使用 读取 {"路径": "甲"}', [("读取", {"路径": "甲"})]),
        ("use clock {broken", [("clock", {})]),
    ],
)
async def test_the_goal_says_which_tools_are_called(goal, calls):
    message = await answer(goal)
    assert [(call.name, dict(call.arguments)) for call in message.tool_calls] == calls
    assert message.text
    again = await answer(goal)
    assert message == again


async def test_knowledge_is_looked_into_where_there_is_some():
    message = await answer("青岛港的港长是谁", tools=[*SPECS, ToolSpec("search_documents")])
    assert [call.name for call in message.tool_calls] == ["search_documents"]


@pytest.mark.parametrize("goal", ["What time is it?", "Tell me the date", "现在几点？", "今天几号？"])
async def test_what_time_it_is_is_read_off_the_clock_whatever_else_there_is(goal):
    message = await answer(goal, tools=[*SPECS, ToolSpec("search_documents"), ToolSpec("list_files")])
    assert [call.name for call in message.tool_calls] == ["clock"]


async def test_files_are_listed_where_there_are_some():
    message = await answer("有什么文件？", tools=[*SPECS, ToolSpec("list_files")])
    assert [call.name for call in message.tool_calls] == ["list_files"]


@pytest.mark.parametrize("goal", ["Where is it?", "它在哪里？"])
async def test_it_lets_a_long_conversation_be_made_shorter(goal):
    said = [UserMessage((TextPart(f"{goal} {number} " + "灯塔在青岛。" * 40),)) for number in range(9)]
    history = [part for each in said for part in (each, AssistantMessage((TextPart("好。"),)))]
    made = await Compactor(demonstration_model(), window=2000).compact(history, goal=goal)
    assert made.after < made.before


async def test_it_answers_with_what_the_tools_said_and_that_it_is_no_model():
    called = AssistantMessage((ToolCallPart("a", "clock", {}),))
    result = ToolMessage("a", (TextPart("twelve"),))
    message = await answer("What time is it?", called, result)
    assert message.text.startswith("The tools say: twelve")
    assert "without a language model" in message.text
    assert message.model == MODEL
    chinese = await answer("几点了？", called, result)
    assert chinese.text.startswith("工具的结果：twelve")
    assert "没有语言模型" in chinese.text
    nothing = await answer("What time is it?", tools=[])
    assert nothing.text.startswith("No tool was called.")


@pytest.mark.slow
async def test_a_structured_answer_has_the_properties_that_are_wanted():
    agent = Agent(demonstration_model(), tools=demonstration_tools(), permissions="allow")
    schema = {
        "type": "object",
        "properties": {"said": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["said", "count"],
    }
    async with agent:
        result = await agent.run("What time is it?", output_schema=schema)
    assert result.or_raise().structured == json.loads(result.output)
    assert result.structured["count"] == 0
    assert result.structured["said"].startswith("The tools say: 20")


@pytest.mark.slow
@pytest.mark.parametrize("goal", ["目标" * 20_000, "What time is it there? " * 2000])
async def test_a_long_text_streams_about_as_quickly_as_a_short_one(goal):
    stream = demonstration_model().chat_stream([UserMessage((TextPart(goal),))], tools=SPECS)
    with anyio.fail_after(10):
        pieces = [chunk.text async for chunk in stream if chunk.kind == "reasoning"]
    assert "".join(pieces).endswith(goal)
    assert len(pieces) <= 50
