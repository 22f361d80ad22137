from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.compaction.compaction import CompactionResult
from loom_core.agent.compaction_settings import Compaction
from loom_core.agent.hooks import Hooks, Veto
from loom_core.llm.interface import ChatRequest, LLMResponse
from loom_core.llm.messages import (
    AssistantMessage,
    Message,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.memory import SQLiteMemory
from loom_core.runs.run import Run
from loom_core.tools.calls import CallResult, PlannedCall
from loom_core.tools.function_tool import tool


@tool(read_only=True, open_world=False)
async def look(where: str) -> str:
    """Look somewhere."""
    return f"seen {where}"


def _looking(where: str) -> MockAnswer:
    return MockAnswer(calls=(ToolCallPart("c1", "look", {"where": where}),))


def _says_at_once(_: object, request: object) -> object:
    return request


def _gives(value: object) -> Callable[..., object]:
    async def hook(*_: object) -> object:
        return value

    return hook


def _raises(error: Exception) -> Callable[..., object]:
    async def hook(*_: object) -> object:
        raise error

    return hook


def _result(request: ChatRequest) -> str:
    return next(message.text for message in request.messages if isinstance(message, ToolMessage))


async def test_metadata_of_messages_are_there_for_hooks_and_in_the_memory(tmp_path: Path) -> None:
    seen: list[Mapping[str, Any]] = []

    class Reads(Hooks):
        async def before_model(self, run: Run, request: ChatRequest) -> ChatRequest:
            seen.extend(message.metadata for message in request.messages)
            return request

    memory = SQLiteMemory(tmp_path / "memory.db")
    await memory.add("s", UserMessage((TextPart("你好"),), metadata={"ticket": 7}))
    await memory.add("s", AssistantMessage((TextPart("你好！"),)))
    agent = Agent(MockProvider(["好"]), memory=memory, hooks=[Reads()])
    await agent.run("x", session_id="s")
    assert [dict(each) for each in seen] == [{}, {"ticket": 7}, {}, {}]
    assert (await memory.messages("s"))[0].metadata == {"ticket": 7}
    await memory.aclose()


class Watching(Hooks):
    """Writes down what it is called for."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def before_model(self, run: Run, request: ChatRequest) -> ChatRequest | Veto:
        self.seen.append("before_model")
        return replace(request, temperature=0.5)

    async def after_model(self, run: Run, response: LLMResponse) -> None:
        self.seen.append(f"after_model {response.content}")

    async def before_tool(self, run: Run, planned: PlannedCall) -> Mapping[str, Any] | Veto | None:
        self.seen.append(f"before_tool {planned.name}")
        return {"where": "there"} if planned.arguments["where"] == "here" else None

    async def after_tool(self, run: Run, planned: PlannedCall, result: CallResult) -> None:
        self.seen.append(f"after_tool {result.message.text} in {run.request.goal}")


async def test_hooks_see_and_change_what_happens() -> None:
    hooks, llm = Watching(), MockProvider([_looking("here"), "done"])
    async with Agent(llm, tools=[look], hooks=[hooks]) as agent:
        await agent.run("看看")
    assert hooks.seen == [
        "before_model", "after_model ", "before_tool look", "after_tool seen there in 看看", "before_model",
        "after_model done",
    ]  # fmt: skip
    assert _result(llm.calls[1]) == "seen there"
    assert llm.calls[0].temperature == 0.5


async def test_the_journal_says_with_which_arguments_of_a_hook_a_call_was_made() -> None:
    llm = MockProvider([_looking("here"), _looking("elsewhere"), "done"])
    async with Agent(llm, tools=[look], hooks=[Watching()]) as agent:
        result = await agent.run("看一看")
        events = await agent.journal.events(result.run_id)
    wanted = [call["arguments"] for event in events for call in event.payload.get("calls", ())]
    assert wanted == [{"where": "here"}, {"where": "elsewhere"}]
    changed, unchanged = [event.payload for event in events if event.type == "tool_start"]
    assert changed["arguments"] == {"where": "there"}
    assert "arguments" not in unchanged


async def test_a_veto_of_a_call_is_read_by_the_model() -> None:
    class NotThere(Hooks):
        async def before_tool(self, run: Run, planned: PlannedCall) -> Mapping[str, Any] | Veto | None:
            return Veto("the archive is closed")

    llm = MockProvider([_looking("archive"), "pity"])
    async with Agent(llm, tools=[look], hooks=[NotThere(), Watching()]) as agent:
        result = await agent.run("look")
    assert "the archive is closed" in _result(llm.calls[1])
    assert result.spent.tool_calls == 0


async def test_a_veto_of_the_model_fails_the_run_with_its_reason() -> None:
    class Closed(Hooks):
        async def before_model(self, run: Run, request: ChatRequest) -> ChatRequest | Veto:
            return Veto("it is night")

    async with Agent(MockProvider([]), hooks=[Closed()]) as agent:
        result = await agent.run("go")
    assert result.status == "failed"
    assert "it is night" in result.problem


async def test_a_hook_that_raises_fails_the_run_with_its_name() -> None:
    class Broken(Hooks):
        async def after_tool(self, run: Run, planned: PlannedCall, result: CallResult) -> None:
            raise KeyError("oops")

    async with Agent(MockProvider([_looking("here")]), tools=[look], hooks=[Broken()]) as agent:
        result = await agent.run("look")
        events = await agent.journal.events(result.run_id)
    assert result.status == "failed"
    assert "Broken.after_tool" in result.problem
    assert "KeyError" in result.problem
    assert events[-1].payload["failure"] == "hook"
    assert any(event.type == "tool_result" for event in events), "what was done is not forgotten"


async def test_a_conversation_that_becomes_too_long_is_shortened_unless_a_hook_objects() -> None:
    @tool(read_only=True, open_world=False)
    async def page(number: int) -> str:
        """Read a page."""
        return f"第{number}页：" + "知识图谱的内容。" * 200

    class Counting(Hooks):
        def __init__(self, *, veto: bool) -> None:
            self.before, self.after, self._veto = 0, 0, veto

        async def before_compaction(self, run: Run, history: Sequence[Message]) -> Veto | None:
            self.before += 1
            return Veto("keep all") if self._veto else None

        async def after_compaction(self, run: Run, compacted: CompactionResult) -> None:
            self.after += 1

    def read(request: ChatRequest) -> str | MockAnswer:
        if not request.tools:
            return "no summary"
        pages = sum(isinstance(message, ToolMessage) for message in request.messages)
        return (
            MockAnswer(calls=(ToolCallPart(f"p{pages}", "page", {"number": pages}),)) if pages < 6 else "read"
        )

    for veto in (True, False):
        llm, hooks = MockProvider(read), Counting(veto=veto)
        async with Agent(llm, tools=[page], hooks=[hooks], compaction=Compaction(window=8000)) as agent:
            result = await agent.run("读完这本书")
            types = [event.type for event in await agent.journal.events(result.run_id)]
        assert result.output == "read"
        assert "compression_warning" in types
        assert hooks.before > 0
        assert ("compression_applied" in types) == (hooks.after > 0) == (not veto)
        last = llm.calls[-1].messages
        assert any(isinstance(message, UserMessage) and "读完这本书" in message.text for message in last)


@pytest.mark.parametrize(
    ("method", "hook", "told"),
    [
        ("before_model", _says_at_once, "is not `async`"),
        ("before_model", _gives(None), "returned None; expected `ChatRequest` or `Veto`"),
        ("before_tool", _gives(False), "returned False; expected `Mapping` or `Veto` or `None`"),
        ("before_tool", _raises(KeyError("x")), "failed: KeyError: 'x'. See"),
    ],
)
async def test_a_hook_that_is_written_wrongly_fails_the_run_with_its_name(
    method: str, hook: Callable[..., object], told: str
) -> None:
    hooks = type("Wrong", (Hooks,), {method: staticmethod(hook)})()
    async with Agent(MockProvider([_looking("here"), "done"]), tools=[look], hooks=[hooks]) as agent:
        result = await agent.run("看看")
    assert result.status == "failed"
    assert f"The hook Wrong.{method} {told}" in result.problem


async def test_a_hook_without_a_file_is_named_all_the_same() -> None:
    names: dict[str, Any] = {"Hooks": Hooks, "__name__": "__main__"}
    exec("class Typed(Hooks):\n async def before_model(self, run, request):\n  raise OSError('no')", names)
    async with Agent(MockProvider(["done"]), hooks=[names["Typed"]()]) as agent:
        result = await agent.run("看看")
    assert result.problem.startswith("The hook Typed.before_model failed: OSError: no. See __main__")
