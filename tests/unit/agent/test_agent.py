"""An agent in a few lines: its calls, its sessions, its stream, its journal."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel, Field

from loom_core.agent.agent import Agent
from loom_core.agent.result import RunResult
from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.llm import OpenAICompatibleProvider
from loom_core.llm.interface import ChatRequest, LLMProvider, LLMResponse
from loom_core.llm.messages import Message, ToolCallPart, ToolMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.commands import Abort
from loom_core.runs.journal import Journal
from loom_core.runs.memory import InMemoryMemory
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext, ToolOutput
from tests.fixtures.adding_agents import add, calling, event_types, tool_call
from tests.fixtures.local_server import LocalServer
from tests.fixtures.tool_turns import Doing


class _Leave(BaseModel):
    days: int


def _results(request: ChatRequest) -> list[str]:
    return [message.text for message in request.messages if isinstance(message, ToolMessage)]


async def test_an_agent_answers_in_a_few_lines() -> None:
    agent = Agent(MockProvider([calling(tool_call("add", a=1, b=2)), "It is 3."]), tools=[add])
    result = await agent.run("What is 1 + 2?")
    assert str(result.or_raise()) == "It is 3."
    assert (result.status, result.spent.iterations, result.spent.tool_calls) == ("completed", 2, 1)
    assert result.spent.usage.input_tokens > 0
    await agent.aclose()


async def test_the_journal_tells_every_step_in_order() -> None:
    llm = MockProvider(
        [calling(tool_call("add", a=1, b=2), text="Let me see. "), MockAnswer("3", reasoning="easy")]
    )
    async with Agent(llm, tools=[add]) as agent:
        result = await agent.run("1 + 2")
        assert await event_types(agent, result.run_id) == [
            "request_start", "model_start", "text_delta", "usage", "tool_calls_start", "tool_start",
            "tool_result",
            "model_start", "reasoning_delta", "text_delta", "usage", "agent_finish",
        ]  # fmt: skip


async def test_results_come_in_the_models_order_however_long_each_takes() -> None:
    quick = anyio.Event()

    @tool(read_only=True, open_world=False)
    async def slow() -> str:
        """Ends after the quick one."""
        await quick.wait()
        return "slow"

    @tool(read_only=True, open_world=False)
    async def fast() -> str:
        """Lets the slow one end."""
        quick.set()
        return "fast"

    llm = MockProvider([calling(tool_call("slow", "a"), tool_call("fast", "b")), "done"])
    async with Agent(llm, tools=[slow, fast]) as agent:
        await agent.run("both at once")
    assert _results(llm.calls[1]) == ["slow", "fast"]


async def test_calls_that_change_something_run_one_after_the_other() -> None:
    happened: list[str] = []

    @tool
    async def write(text: str) -> str:
        """Write."""
        happened.append(f"begin {text}")
        await anyio.lowlevel.checkpoint()
        happened.append(f"end {text}")
        return "ok"

    llm = MockProvider(
        [calling(tool_call("write", "a", text="1"), tool_call("write", "b", text="2")), "done"]
    )
    async with Agent(llm, tools=[write], permissions="allow") as agent:
        await agent.run("write twice")
    assert happened == ["begin 1", "end 1", "begin 2", "end 2"]


async def test_a_model_is_told_what_is_wrong_with_a_call_and_goes_on() -> None:
    calls = (
        tool_call("adding", "a", a=1, b=2),
        tool_call("add", "b", a="one", b=2),
        ToolCallPart("c", "add", unreadable='{"a": 1, '),
    )
    llm = MockProvider([calling(*calls), "sorry"])
    async with Agent(llm, tools=[add]) as agent:
        result = await agent.run("add")
    unknown, wrong, unreadable = _results(llm.calls[1])
    assert "add" in unknown
    assert "a" in wrong
    assert unreadable
    assert (result.status, result.spent.tool_calls) == ("completed", 0)


async def test_goals_tools_and_arguments_may_be_chinese() -> None:
    @tool(name="查天气", read_only=True, open_world=False)
    async def weather(城市: Annotated[str, Field(description="城市名称")]) -> str:  # noqa: N803 - Chinese
        """查询城市的天气。"""
        return f"{城市}：晴，25℃"

    llm = MockProvider([calling(tool_call(weather.wire_name, 城市="北京")), "北京今天晴，25℃。"])
    async with Agent(llm, tools=[weather]) as agent:
        result = await agent.run("北京今天天气怎么样？")
        events = await agent.journal.events(result.run_id)
    assert result.output == "北京今天晴，25℃。"
    assert _results(llm.calls[1]) == ["北京：晴，25℃"]
    started = next(event for event in events if event.type == "tool_start")
    assert started.payload["tool"] == "查天气"


async def test_a_plain_function_is_a_tool() -> None:
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    llm = MockProvider([calling(tool_call("double", number=21)), "42"])
    async with Agent(llm, tools=[double], permissions="allow") as agent:
        assert (await agent.run("double 21")).output == "42"
    assert _results(llm.calls[1]) == ["42"]


async def test_a_session_goes_on_where_it_was() -> None:
    llm = MockProvider([calling(tool_call("add", a=1, b=2)), "3", "I said 3."])
    async with Agent(llm, tools=[add]) as agent:
        first = await agent.run("1 + 2")
        second = await agent.run("What did you say?", session_id=first.session_id)
    assert second.session_id == first.session_id
    roles = [message.role for message in llm.calls[2].messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]


async def test_a_session_that_only_the_memory_knows_goes_on_for_who_uses_this_machine() -> None:
    llm = MockProvider(["你好，小王。", "小王。", "小王。"])
    memory = InMemoryMemory()
    async with Agent(llm, memory=memory) as agent:
        first = await agent.run("我叫小王。")
    async with Agent(llm, memory=memory) as other:
        with pytest.raises(NotFoundError, match="There is no session"):
            await other.run("我叫什么？", session_id=first.session_id, caller="anna")
        second = await other.run("我叫什么？", session_id=first.session_id)
        async for event in other.stream("再说一遍", session_id=first.session_id):
            assert event.type != "error"
    assert second.session_id == first.session_id
    assert [message.text for message in llm.calls[2].messages[1:]] == [
        "我叫小王。",
        "你好，小王。",
        "我叫什么？",
        "小王。",
        "再说一遍",
    ]


@pytest.mark.hostile("answers of models")
async def test_call_ids_are_unique_in_a_run_whatever_the_model_writes() -> None:
    twice = calling(tool_call("add", "", a=1, b=1), tool_call("add", "", a=2, b=2))
    llm = MockProvider([twice, calling(tool_call("add", "call", a=3, b=3)), "done"])
    async with Agent(llm, tools=[add]) as agent:
        result = await agent.run("add")
        events = await agent.journal.events(result.run_id)
    ids = [event.payload["call_id"] for event in events if event.type == "tool_result"]
    assert len(set(ids)) == 3
    assert _results(llm.calls[2]) == ["2", "4", "6"]


async def test_a_long_output_is_kept_whole_where_the_model_can_find_it() -> None:
    @tool(read_only=True, open_world=False)
    async def book() -> str:
        """A long text."""
        return "一二三四五六七八九十" * 5000

    llm = MockProvider([calling(tool_call("book")), "long"])
    async with Agent(llm, tools=[book], output_tokens=500) as agent:
        result = await agent.run("read the book")
        (text,) = _results(llm.calls[1])
        address = f"loom://runs/{result.run_id}/blobs/1"
        assert address in text
        assert len(text) < 2000
        content, media_type = await agent.journal.blob(result.run_id, 1)
    assert content.decode() == "一二三四五六七八九十" * 5000
    assert media_type.startswith("text/plain")


async def test_a_stream_tells_everything_and_ends_with_the_run() -> None:
    llm = MockProvider([calling(tool_call("add", a=1, b=2)), "It is 3."])
    async with Agent(llm, tools=[add]) as agent:
        events = [event async for event in agent.stream("1 + 2")]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[0].type == "request_start"
    assert events[-1].payload["output"] == "It is 3."


async def test_a_stream_that_is_left_stops_the_run_which_can_be_resumed() -> None:
    begun = anyio.Event()

    @tool(read_only=True, open_world=False)
    async def wait(forever: bool) -> str:
        """Wait."""
        if begun.is_set():
            return "waited"
        begun.set()
        await anyio.sleep_forever()
        return ""

    llm = MockProvider([calling(tool_call("wait", forever=True)), "done"])
    async with Agent(llm, tools=[wait]) as agent:
        async with aclosing(agent.stream("wait")) as events:
            async for event in events:
                if event.type == "tool_start":
                    break
        await begun.wait()
        (run,) = await agent.journal.runs()
        assert (run.status, run.driver) == ("working", "")
        assert (await agent.resume(run.id)).output == "done"


async def test_an_error_of_the_driver_ends_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    def broken(request: ChatRequest) -> str:
        raise ZeroDivisionError("oops")

    agent = Agent(MockProvider(broken))
    with caplog.at_level(logging.CRITICAL), pytest.raises(ZeroDivisionError):
        async for _ in agent.stream("answer"):
            pass
    await agent.aclose()


class _Full(InMemoryMemory):
    async def replace(self, session_id: str, messages: Sequence[Message]) -> None:
        raise OSError("The disk is full.")


class _Stuck(Doing):
    async def abandon(self, *, context: CallContext) -> None:
        raise OSError("The connection is lost.")


async def test_a_run_ends_whatever_its_memory_and_its_tools_raise() -> None:
    async def wait(arguments: Any, context: CallContext) -> ToolOutput:
        await agent.send_command(context.run_id, Abort())
        await anyio.sleep_forever()
        raise AssertionError

    agent = Agent(
        MockProvider([calling(tool_call("wait")), "好"]), tools=[_Stuck("wait", wait)], memory=_Full()
    )
    assert (await agent.run("x")).status == "aborted"
    with pytest.raises(OSError, match="disk is full"):
        await agent.run("x")
    assert [each.status for each in await agent.journal.runs()] == ["failed", "aborted"]


async def test_one_agent_may_have_many_runs_at_once() -> None:
    def answer(request: ChatRequest) -> str | MockAnswer:
        goal = next(message.text for message in request.messages if message.role == "user")
        if request.messages[-1].role == "user":
            return calling(tool_call("add", a=int(goal), b=1))
        return request.messages[-1].text

    results: list[str] = []
    async with Agent(MockProvider(answer), tools=[add]) as agent:

        async def one(number: int) -> None:
            results.append((await agent.run(str(number))).output)

        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(one, number)
    assert sorted(map(int, results)) == list(range(1, 51))


async def test_the_same_idempotency_key_gives_the_same_run() -> None:
    async with Agent(MockProvider(["once"])) as agent:
        first = await agent.run("do it", idempotency_key="k")
        assert await agent.run("do it", idempotency_key="k") == first


async def test_an_agent_that_a_tool_starts_stands_one_deeper() -> None:
    inner = Agent(MockProvider(["inner answer"]), name="inner")

    @tool(read_only=True, open_world=False)
    async def delegate(goal: str) -> str:
        """Let another agent do it."""
        return (await inner.run(goal)).output

    llm = MockProvider([calling(tool_call("delegate", goal="做一部分")), "done"])
    async with inner, Agent(llm, tools=[delegate]) as outer:
        await outer.run("all of it")
        (run,) = await inner.journal.runs()
    assert _results(llm.calls[1]) == ["inner answer"]
    assert run.request.depth == 1


async def test_what_every_request_says_besides_reaches_the_model() -> None:
    llm = MockProvider(["好"])
    await Agent(llm, options={"top_p": 0.9, "stop": "END"}).run("你好")
    assert (llm.calls[0].top_p, llm.calls[0].stop, llm.calls[0].model) == (0.9, ("END",), "")


class _Plain(LLMProvider):
    """A provider that takes what there was when it was written, and nothing else."""

    async def chat(  # type: ignore[override]
        self, messages, *, tools, tool_choice, max_tokens, temperature, effort, output, stop, extra
    ) -> LLMResponse:
        return LLMResponse.of_text(f"{len(messages)} messages")


async def test_a_provider_of_ones_own_is_not_given_options_that_are_not_set() -> None:
    assert (await Agent(_Plain()).run("你好")).output == "2 messages"


@pytest.mark.slow
def test_an_agent_runs_without_await_on_a_real_server_with_a_journal_and_a_session(
    tmp_path: Path, local_servers: Callable[..., LocalServer]
) -> None:
    server = local_servers()
    message = {"role": "assistant", "content": '{"days": 28}'}
    answer = {"id": "1", "object": "chat.completion", "model": "m", "choices": [{"message": message}]}
    server.answers("/v1/chat/completions", json.dumps(answer).encode(), Content_Type="application/json")
    llm = OpenAICompatibleProvider(model="m", base_url=server.url("/v1"), api_key="no-secret")
    agent = Agent(llm, journal=Journal(tmp_path / "runs.db"))
    first = agent.run_sync("How many days of leave?", output_schema=_Leave)
    assert first.or_raise().structured == _Leave(days=28)
    second = agent.run_sync("And in hours?", session_id=first.session_id)
    assert second.or_raise().session_id == first.session_id
    with pytest.raises(InvalidInputError, match="goal"):
        agent.run_sync("")

    async def again() -> RunResult[dict[str, Any]]:  # in another event loop
        async with agent:
            return await agent.run("And in weeks?", session_id=first.session_id)

    assert asyncio.run(again()).status == "completed"
