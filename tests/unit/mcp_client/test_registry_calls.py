"""Calls of tools that a registry has: checked before, followed, cancelled, and their answers checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_core.mcp_client.callbacks import Callbacks
from loom_core.mcp_client.configuration.server_config import ServerConfig
from loom_core.mcp_client.registry import MCPToolRegistry
from loom_core.mcp_client.tools.tool import MCPTool
from loom_core.tools.interface import CallContext, Question, QuestionAnswer, ToolFailure
from tests.unit.mcp_client.conftest import READS, Listed, Opened, offered


async def test_wrong_arguments_never_reach_the_server(tmp_path: Path, opened: Opened) -> None:
    schema = {"type": "object", "properties": {"路径": {"type": "string"}}, "required": ["路径"]}
    server = Listed(tmp_path, "s", offered("read", inputSchema=schema))
    async with opened(server.config()) as registry:
        tool = registry.find("s:read")

        refused = await tool.call({"路径": 3})
        output = await tool.call({"路径": "a"})

        assert refused.is_error
        assert "`路径` must be a string, got 3" in refused.text
        assert json.loads(output.text)["calls"] == 1
        assert isinstance(tool, MCPTool)
        assert tool.args_model.model_validate({"路径": "a"}).model_dump() == {"路径": "a"}


async def test_failures_are_answers_that_a_model_can_read(tmp_path: Path, opened: Opened) -> None:
    server = Listed(tmp_path, "s", offered("fail"), offered("die"), offered("hang"), offered("picture"))
    async with opened(server.config()) as registry:
        assert (await registry.find("s:fail").call({})).is_error
        assert [part.data for part in (await registry.find("s:picture").call({})).parts] == [b"picture"]

        late = await registry.find("s:hang").call({}, context=CallContext(seconds=0.2))
        assert late.is_error
        assert "0.2 s" in late.text
        assert late.failure == ToolFailure("timeout")

        died = await registry.find("s:die").call({})
        assert died.is_error
        assert died.failure == ToolFailure("connection"), "it may have been run"
        assert not (await registry.find("s:picture").call({})).is_error


async def test_progress_is_passed_on(tmp_path: Path, opened: Opened) -> None:
    server = Listed(tmp_path, "s", offered("progress"))
    told = anyio.Event()
    steps: list[tuple[float, float | None, str]] = []

    async def progress(done: float, total: float | None, message: str) -> None:
        steps.append((done, total, message))
        told.set()

    async with opened(server.config()) as registry:
        await registry.find("s:progress").call({}, context=CallContext(progress=progress))
        with anyio.fail_after(20):
            await told.wait()

    assert steps == [(1, 2, "一半")]


async def test_a_cancelled_call_is_cancelled_and_the_server_stays(tmp_path: Path, opened: Opened) -> None:
    server = Listed(tmp_path, "s", offered("hang"), offered("a"))
    async with opened(server.config()) as registry:
        with anyio.move_on_after(0.2) as scope:
            await registry.find("s:hang").call({})

        assert scope.cancelled_caught
        assert not (await registry.find("s:a").call({})).is_error


async def test_an_answer_is_given_again_for_as_long_as_a_trusted_server_says(
    tmp_path: Path, opened: Opened
) -> None:
    tools = [offered("read", annotations=READS), offered("write")]
    first, second = (Listed(tmp_path, name, *tools, result_ttl=60_000) for name in ("trusted", "other"))
    async with opened(first.config(trusted=True), second.config()) as registry:

        async def calls(name: str, **arguments: Any) -> int:
            return json.loads((await registry.find(name).call(arguments)).text)["calls"]

        assert [await calls("trusted:read", q=1), await calls("trusted:read", q=1)] == [1, 1]
        assert await calls("trusted:read", q=2) == 2
        assert [await calls("trusted:write"), await calls("trusted:write")] == [3, 4]
        assert [await calls("other:read"), await calls("other:read")] == [1, 2]


@pytest.mark.slow
async def test_a_call_asks_whom_its_caller_names(tmp_path: Path, asking: Callable[..., ServerConfig]) -> None:
    asked: list[Question] = []

    async def decline(_question: Question) -> QuestionAnswer:
        return QuestionAnswer("decline")

    async def ask_person(question: Question) -> QuestionAnswer:
        asked.append(question)
        return QuestionAnswer("accept", {"name": "小明"})

    servers = [asking(trusted=True)]
    callbacks = Callbacks(ask=decline)
    async with MCPToolRegistry(home=tmp_path, servers=servers, callbacks=callbacks) as registry:
        await registry.load_servers()
        greet = registry.find("asking:greet")

        by_others = await greet.call({})
        output = await greet.call({}, context=CallContext(ask=ask_person))

    assert "小明" not in by_others.text
    assert output.text == "accepted: 小明"
    assert output.structured == {"text": "accepted: 小明"}
    assert [(question.text, question.origin) for question in asked] == [("你叫什么名字？", "asking")]
    assert greet.annotations.read_only


async def test_data_that_break_the_tools_own_schema_are_left_out(tmp_path: Path, opened: Opened) -> None:
    right = {"type": "object", "properties": {"x": {"type": "string"}}}
    wrong = {"type": "object", "properties": {"x": {"type": "integer"}}}
    server = Listed(
        tmp_path,
        "s",
        offered("right", outputSchema=right),
        offered("wrong", outputSchema=wrong),
        offered("endless", outputSchema={"type": "object", "$ref": "#"}),
        structured={"x": "题"},
    )
    async with opened(server.config()) as registry:
        outputs = [await tool.call({}) for tool in registry.tools()]

    assert [output.structured for output in outputs] == [{"x": "题"}, None, None]
    assert not any(output.is_error for output in outputs)
    assert outputs[1].warnings == ("Its structured data is left out: '题' is not of type 'integer'",)
    assert "refers to itself too often" in outputs[2].warnings[0]


async def test_a_pattern_for_its_own_answer_cannot_stop_us(tmp_path: Path, opened: Opened) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}
    server = Listed(tmp_path, "s", offered("a", outputSchema=schema), structured={"x": "a" * 60 + "b"})
    async with opened(server.config()) as registry:
        output = await registry.find("s:a").call({})

        assert output.structured is None
        assert not output.is_error
