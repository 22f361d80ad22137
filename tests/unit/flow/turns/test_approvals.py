"""Operators approve tools of servers; customers confirm calls, in words of the file and in their language."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.teams.agent_tool import AgentTool
from loom_core.errors import ConfigError
from loom_core.flow.executor import FlowExecutor
from loom_core.llm.messages import ToolCallPart
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.mcp_client.registry import MCPToolRegistry
from loom_core.runs.run import Pending
from loom_core.testing import MockLLM, call
from loom_core.tools.toolbox import Toolbox
from tests.unit.flow.conftest import Api, decides, loaded_flows, talking
from tests.unit.flow.runtime.test_skills import FILE, LEAVE, SAVE
from tests.unit.mcp_client.conftest import Listed, Opened, offered, opened

__all__ = ["opened"]

_TEXT = {"type": "object", "properties": {"text": {"type": "string", "title": "内容 / Text"}}}
_STEP = {"stepId": "keep", "tool": "notes:keep", "description": "记笔记 / Keeping a note"}
_NOTE: dict[str, Any] = {
    "flow_id": "note",
    "name": "记一下 / Note",
    "trigger_patterns": ["记一下(?P<text>.+)", "note (?P<text>.+)"],
    "input_schema": {**_TEXT, "required": ["text"]},
    "steps": [_STEP],
    "response": "记好了。 / It is kept.",
}
_SKILL = {"id": "notes", "condition": "要记事", "action": "记下来", "tools": ["notes:keep"]}
_OPERATORS = ("approv", "批准", "notes:keep", "notes__keep", "{")


def _server(folder: Path) -> Listed:
    return Listed(folder, "notes", offered("keep", "Keeps a note.", inputSchema=_TEXT))


def _step(**more: Any) -> dict[str, Any]:
    return {**_NOTE, "steps": [{**_STEP, **more}]}


def _talking(registry: MCPToolRegistry, *flows: Any, **options: Any) -> Any:
    return talking(*flows, live=[registry.tools], **options)


@pytest.mark.parametrize(
    ("message", "sorry", "again", "asked", "yes", "done"),
    [
        (
            "记一下买牛奶",
            "“记一下”没有办成。很抱歉，这项业务现在暂时办不了。",
            "再试一次",
            "要我继续办理“记笔记”吗？\n内容：买牛奶",
            "好的",
            "记好了。",
        ),
        (
            "note buy some milk",
            "“Note” did not succeed. Sorry, it cannot be done at the moment.",
            "try again",
            "Shall I go on with “Keeping a note”?\nText: buy some milk",
            "yes",
            "It is kept.",
        ),
    ],
)
async def test_a_flow_whose_tool_no_operator_has_approved_says_politely_that_it_cannot(
    message: str,
    sorry: str,
    again: str,
    asked: str,
    yes: str,
    done: str,
    tmp_path: Path,
    opened: Opened,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with opened(_server(tmp_path).config()) as registry, _talking(registry, _NOTE) as talk:
        refused = await talk(message)

        assert refused.status == "failed"
        assert refused.text.startswith(sorry)
        assert not any(word in refused.text for word in _OPERATORS)
        run = await talk.assistant.journal.get(refused.run_id)
        command = f"mcp approve notes:keep --home {tmp_path / 'home'}`"
        assert "The tool notes:keep cannot be called. It has not been approved yet." in run.problem
        assert command in run.problem
        assert command in caplog.text

        await registry.approve(registry.tools())  # as `mcp approve` does
        confirm = await talk(again)
        assert (confirm.status, confirm.text) == ("input_required", asked)
        assert not any(word in confirm.text for word in _OPERATORS)
        kept = await talk(yes)
        assert (kept.status, kept.text) == ("completed", done)


@pytest.mark.parametrize(
    ("message", "sorry"),
    [
        ("帮我记下来：买牛奶", "很抱歉，这件事现在暂时办不了。"),
        ("please keep a note: buy milk", "Sorry, that cannot be done at the moment."),
    ],
)
async def test_a_skill_whose_tool_no_operator_has_approved_says_so_too(
    message: str, sorry: str, tmp_path: Path, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    llm = MockLLM([decides("skill", "notes"), call("notes__keep", text="milk")])
    server = _server(tmp_path)
    async with (
        opened(server.config()) as registry,
        _talking(registry, LEAVE, file={"skills": [_SKILL]}, llm=llm) as talk,
    ):
        reply = await talk(message)
        run = await talk.assistant.journal.get(reply.run_id)

    assert (reply.status, reply.text, reply.pending) == ("failed", sorry, ())
    assert "mcp approve notes:keep --home" in run.problem
    assert "mcp approve notes:keep --home" in caplog.text


@pytest.mark.parametrize(
    ("message", "confirm", "asked"),
    [
        ("帮我记下来：买牛奶", None, "要我为您这样办理吗？\n内容：milk"),
        ("please keep a note: milk", None, "Shall I do this for you?\nText: milk"),
        (
            "帮我记下来：买牛奶",
            "Shall I note “{$inputs.text}”? / 要我记下“{$inputs.text}”吗？",
            "要我记下“milk”吗？",
        ),
        ("please keep a note: milk", "Shall I note “{$inputs.text}”? / 要我记下吗？", "Shall I note “milk”?"),
    ],
)
async def test_a_customer_confirms_a_call_of_a_skill_in_words_that_are_meant_for_them(
    message: str, confirm: str | None, asked: str, tmp_path: Path, opened: Opened
) -> None:
    llm = MockLLM([decides("skill", "notes"), call("notes__keep", text="milk"), "ok"])
    skill = _SKILL if confirm is None else {**_SKILL, "confirm": confirm}
    async with opened(_server(tmp_path).config()) as registry:
        await registry.approve(registry.tools())
        async with _talking(registry, LEAVE, file={"skills": [skill]}, llm=llm) as talk:
            reply = await talk(message)
            assert (reply.status, reply.text) == ("input_required", asked)
            assert reply.pending[0].reason == asked
            assert (await talk("yes")).text == "ok"


async def test_a_system_tool_words_its_own_confirmation() -> None:
    question = "Save {$inputs.phone}? / 要保存{$inputs.phone}吗？"
    tools = [{**SAVE, "confirm": question} if each is SAVE else each for each in FILE["system_tools"]]
    llm = MockLLM([decides("skill", "demo"), call("save_customer", phone="138"), "记下了。"])
    async with talking(LEAVE, file={**FILE, "system_tools": tools}, llm=llm) as talk:
        assert (await talk("我想看演示，电话138")).text == "要保存138吗？"
        assert (await talk("好的")).text == "记下了。"


async def test_a_step_asks_before_a_tool_as_the_file_says(tmp_path: Path, opened: Opened) -> None:
    flow = _step(confirm="要我记下“{$inputs.text}”吗？ / Shall I keep “{$inputs.text}”?")
    async with opened(_server(tmp_path).config()) as registry:
        await registry.approve(registry.tools())
        async with _talking(registry, flow) as talk:
            assert (await talk("记一下买牛奶")).text == "要我记下“买牛奶”吗？"
            assert (await talk("不用了")).status == "aborted"


async def test_a_step_asks_before_a_tool_in_the_titles_of_choices_and_dates_in_words() -> None:
    day = {"type": "string", "format": "date", "default": "2026-12-01"}
    kind = {"oneOf": [{"const": "D1", "title": "a demonstration"}], "default": "D1"}
    properties = {"day": day, "kind": kind, "text": {"type": "string"}}
    flow = {
        **_step(
            tool="save_customer", parameters={"phone": "1"}, confirm="Book {$inputs.kind}: {$inputs.day}?"
        ),
        "input_schema": {"type": "object", "properties": properties},
    }
    async with talking(flow, file={"system_tools": [SAVE]}) as talk:
        assert (await talk("note this")).text == "Book a demonstration: Tuesday, 1 December 2026?"


async def test_where_no_one_is_to_be_asked_a_trusted_server_needs_no_approval(
    tmp_path: Path, opened: Opened
) -> None:
    async with opened(_server(tmp_path).config(trusted=True)) as registry:
        async with _talking(registry, _step(confirm=False)) as talk:
            assert (await talk("记一下买牛奶")).text == "记好了。"
        llm = MockLLM([decides("skill", "notes"), call("notes__keep", text="milk"), "ok"])
        skill = {**_SKILL, "confirm": False}
        async with _talking(registry, LEAVE, file={"skills": [skill]}, llm=llm) as talk:
            assert (await talk("帮我记下来：买牛奶")).text == "ok"
    async with (
        opened(_server(tmp_path).config()) as registry,
        _talking(registry, _step(confirm=False)) as talk,
    ):
        assert (await talk("记一下买牛奶")).status == "failed"  # it is not trusted, so it has to be approved
        await registry.approve(registry.tools())
        assert (await talk("再试一次")).text == "记好了。"


async def test_a_program_with_a_person_of_its_own_may_approve_tools(tmp_path: Path, opened: Opened) -> None:
    asked: list[str] = []

    async def approve(pending: Pending) -> bool:
        asked.append(pending.reason)
        return True

    loaded = loaded_flows(_step(confirm=False))
    async with opened(_server(tmp_path).config()) as registry, Api(loaded.file) as api:
        for _ in range(2):
            executor = FlowExecutor(loaded, api, live=[registry.tools], permissions="allow", approve=approve)
            run = await executor.execute("note", "记一下买牛奶", {"text": "买牛奶"})
            assert run.status == "completed", run.problem
            await executor.aclose()
    assert asked == ["它尚未获得批准。"]


def test_a_step_that_calls_no_tool_has_nothing_that_would_not_be_asked() -> None:
    step = {"stepId": "a", "operation": "GET /a", "confirm": False}
    with pytest.raises(ConfigError, match="this has no effect here"):
        loaded_flows({**_NOTE, "steps": [step]})


async def test_the_agent_of_a_step_asks_customers_in_their_words_too(tmp_path: Path, opened: Opened) -> None:
    async with opened(_server(tmp_path).config()) as registry:
        keeps = MockAnswer(calls=[ToolCallPart("c", "notes__keep", {"text": "milk"})])
        inner = Agent(
            MockProvider([keeps, keeps, "ok"]),
            toolbox=Toolbox(live=[registry.tools]),
            name="helper",
            description="Helps.",
        )
        tools = [AgentTool(inner)]
        flow = {
            **_NOTE,
            "steps": [{"stepId": "a", "tool": "helper", "parameters": {"goal": "g"}, "confirm": False}],
        }
        async with inner, talking(flow, tools=tools, permissions="allow") as talk:
            refused = await talk("记一下买牛奶")
            assert refused.status == "failed"
            assert not any(word in refused.text for word in _OPERATORS)

            await registry.approve(registry.tools())
            again = await talk("再试一次")
            assert again.text == "要我为您这样办理吗？\n内容：milk"
            assert (await talk("好的")).text == "记好了。"
