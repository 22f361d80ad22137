from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel, Field, field_validator

from loom_core.agent.agent import Agent
from loom_core.agent.request import DEEPEST
from loom_core.agent.result import RunError
from loom_core.errors import ConfigError, InvalidInputError, LLMError, NotFoundError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import AssistantMessage, ToolCallPart, ToolMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.memory import InMemoryMemory
from loom_core.runs.run import Budget
from loom_core.tools.depth import DEPTH_META_KEY, called_with
from loom_core.tools.function_tool import tool


@tool(read_only=True, open_world=False)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def _call(name: str, id_: str = "c1", **arguments: object) -> ToolCallPart:
    return ToolCallPart(id_, name, arguments)


def _calling(*calls: ToolCallPart, text: str = "") -> MockAnswer:
    return MockAnswer(text=text, calls=calls)


def _results(request: ChatRequest) -> list[str]:
    return [message.text for message in request.messages if isinstance(message, ToolMessage)]


async def _types(agent: Agent, run_id: str) -> list[str]:
    return [event.type for event in await agent.journal.events(run_id)]


async def test_an_agent_answers_in_a_few_lines() -> None:
    agent = Agent(MockProvider([_calling(_call("add", a=1, b=2)), "It is 3."]), tools=[add])
    result = await agent.run("What is 1 + 2?")
    assert str(result.or_raise()) == "It is 3."
    assert (result.status, result.spent.iterations, result.spent.tool_calls) == ("completed", 2, 1)
    assert result.spent.usage.input_tokens > 0
    await agent.aclose()


async def test_the_journal_tells_every_step_in_order() -> None:
    llm = MockProvider(
        [_calling(_call("add", a=1, b=2), text="Let me see. "), MockAnswer("3", reasoning="easy")]
    )
    async with Agent(llm, tools=[add]) as agent:
        result = await agent.run("1 + 2")
        assert await _types(agent, result.run_id) == [
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

    llm = MockProvider([_calling(_call("slow", "a"), _call("fast", "b")), "done"])
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

    llm = MockProvider([_calling(_call("write", "a", text="1"), _call("write", "b", text="2")), "done"])
    async with Agent(llm, tools=[write], permissions="allow") as agent:
        await agent.run("write twice")
    assert happened == ["begin 1", "end 1", "begin 2", "end 2"]


async def test_a_model_is_told_what_is_wrong_with_a_call_and_goes_on() -> None:
    calls = (
        _call("adding", "a", a=1, b=2),
        _call("add", "b", a="one", b=2),
        ToolCallPart("c", "add", unreadable='{"a": 1, '),
    )
    llm = MockProvider([_calling(*calls), "sorry"])
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

    llm = MockProvider([_calling(_call(weather.wire_name, 城市="北京")), "北京今天晴，25℃。"])
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

    llm = MockProvider([_calling(_call("double", number=21)), "42"])
    async with Agent(llm, tools=[double], permissions="allow") as agent:
        assert (await agent.run("double 21")).output == "42"
    assert _results(llm.calls[1]) == ["42"]


async def test_a_session_goes_on_where_it_was() -> None:
    llm = MockProvider([_calling(_call("add", a=1, b=2)), "3", "I said 3."])
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


async def test_call_ids_are_unique_in_a_run_whatever_the_model_writes() -> None:
    twice = _calling(_call("add", "", a=1, b=1), _call("add", "", a=2, b=2))
    llm = MockProvider([twice, _calling(_call("add", "call", a=3, b=3)), "done"])
    async with Agent(llm, tools=[add]) as agent:
        result = await agent.run("add")
        events = await agent.journal.events(result.run_id)
    ids = [event.payload["call_id"] for event in events if event.type == "tool_result"]
    assert len(set(ids)) == 3
    assert _results(llm.calls[2]) == ["2", "4", "6"]


class City(BaseModel):
    """A city."""

    name: str
    people: int = Field(ge=0)

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name == "Atlantis":
            raise ValueError("there is no such city")
        return name


async def test_an_answer_can_be_a_value_of_a_model() -> None:
    async with Agent(MockProvider(['{"name": "Bonn", "people": 331000}'])) as agent:
        result = await agent.run("Bonn", output_schema=City)
    assert result.structured == City(name="Bonn", people=331000)


async def test_an_answer_that_does_not_fit_the_schema_is_mended_once() -> None:
    llm = MockProvider(
        [_calling(_call("add", a=1, b=2)), '{"name": "Bonn"}', '{"name": "Bonn", "people": 3}']
    )
    async with Agent(llm, tools=[add]) as agent:
        result = await agent.run("Bonn", output_schema=City.model_json_schema())
    assert result.structured == {"name": "Bonn", "people": 3}
    assert "people" in llm.calls[2].messages[-1].text
    assert llm.calls[2].output is not None
    assert not llm.calls[2].tools
    assert llm.calls[1].output is None, "a vendor that is asked for JSON calls no tools"


async def test_an_answer_that_never_fits_the_schema_fails_the_run() -> None:
    async with Agent(MockProvider(["no", "还是不行"])) as agent:
        result = await agent.run("Bonn", output_schema=City)
    assert result.status == "failed"
    assert result.output == "还是不行"
    assert result.structured is None


async def test_what_only_the_models_validators_refuse_is_a_failure_like_any_other() -> None:
    async with Agent(MockProvider(['{"name": "Atlantis", "people": 0}'])) as agent:
        result = await agent.run("Atlantis", output_schema=City)
    assert (result.status, result.structured) == ("failed", None)
    assert result.output == '{"name": "Atlantis", "people": 0}'
    with pytest.raises(RunError, match="no such city"):
        result.or_raise()


async def test_an_answer_cut_at_its_limit_goes_on() -> None:
    class Cutting(MockProvider):
        def _response(self, request: ChatRequest, answer: MockAnswer):
            response = super()._response(request, answer)
            return (
                response
                if answer.text.endswith(".")
                else type(response)(response.message, "length", response.usage)
            )

    llm = Cutting(["Once upon ", "a time."])
    async with Agent(llm) as agent:
        result = await agent.run("Tell a story")
    assert result.output == "Once upon a time."
    assert "cut off" in llm.calls[1].messages[-1].text


async def test_an_empty_answer_is_asked_for_again_once() -> None:
    async with Agent(MockProvider(["", "here"])) as agent:
        assert (await agent.run("say something")).output == "here"
    async with Agent(MockProvider(["", ""])) as agent:
        result = await agent.run("说点什么")
    assert result.status == "failed"
    assert "no answer" in result.problem


async def test_a_stream_that_breaks_is_taken_again_without_a_double() -> None:
    llm = MockProvider([MockAnswer("Half of an answer", cut_after=2), "A whole answer"])
    async with Agent(llm) as agent:
        result = await agent.run("answer", session_id="")
        messages = await agent.parts.memory.messages(result.session_id)
        assert "model_retry" in await _types(agent, result.run_id)
    assert result.output == "A whole answer"
    assert [message.text for message in messages if isinstance(message, AssistantMessage)] == [
        "A whole answer"
    ]


async def test_a_stream_that_always_breaks_fails_the_run() -> None:
    async with Agent(MockProvider([MockAnswer("Half", cut_after=1)] * 3)) as agent:
        result = await agent.run("answer")
    assert result.status == "failed"
    assert result.output == "Half"


async def test_a_model_that_fails_for_good_fails_the_run_with_its_advice() -> None:
    error = LLMError("There is no key.", advice="Set one.", failure="authentication")
    async with Agent(MockProvider([error])) as agent:
        result = await agent.run("answer")
        events = await agent.journal.events(result.run_id)
    assert events[-1].payload == {
        "message": "There is no key.",
        "advice": "Set one.",
        "failure": "authentication",
    }
    with pytest.raises(RunError, match="Set one") as raised:
        result.or_raise()
    assert raised.value.run_id == result.run_id


async def test_an_unexpected_error_fails_the_run_and_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    def broken(request: ChatRequest) -> str:
        raise ZeroDivisionError("oops")

    agent = Agent(MockProvider(broken))
    with caplog.at_level(logging.CRITICAL), pytest.raises(ZeroDivisionError):
        await agent.run("answer")
    (run,) = await agent.journal.runs()
    assert run.status == "failed"
    assert "ZeroDivisionError" in run.problem
    await agent.aclose()


async def test_a_long_output_is_kept_whole_where_the_model_can_find_it() -> None:
    @tool(read_only=True, open_world=False)
    async def book() -> str:
        """A long text."""
        return "一二三四五六七八九十" * 5000

    llm = MockProvider([_calling(_call("book")), "long"])
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
    llm = MockProvider([_calling(_call("add", a=1, b=2)), "It is 3."])
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

    llm = MockProvider([_calling(_call("wait", forever=True)), "done"])
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


async def test_one_agent_may_have_many_runs_at_once() -> None:
    def answer(request: ChatRequest) -> str | MockAnswer:
        goal = next(message.text for message in request.messages if message.role == "user")
        if request.messages[-1].role == "user":
            return _calling(_call("add", a=int(goal), b=1))
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


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Agent("no-such-provider"), ConfigError),
        (lambda: Agent(MockProvider([]), tools=[add, add]), ConfigError),
        (lambda: Agent(MockProvider([])).request("  "), InvalidInputError),
        (lambda: Agent(MockProvider([])).request("g", output_schema={"type": "array"}), InvalidInputError),
    ],
)
def test_what_cannot_work_is_said_at_once(make: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


def _with(part: dict[str, object]) -> dict[str, object]:
    return {"type": "object", "properties": {"名称": part}}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"output_schema": _with({"$ref": "http://127.0.0.1:1/x"})}, "which is not in it"),
        ({"output_schema": {"$ref": "#/nowhere"}}, "which is not in it"),
        ({"output_schema": _with({"type": "string", "pattern": "("})}, "名称"),
        ({"output_schema": {"type": "object", "allOf": [{"$ref": "#"}]}}, "nested too deeply"),
        ({"output_schema": {"type": "object", "default": object()}}, "what JSON can hold"),
        ({"allowed_tools": ["re:("]}, "`allowed_tools`.* is no regular expression"),
        ({"allowed_tools": [5]}, "`allowed_tools` holds 5"),
        ({"allowed_tools": 5}, "`allowed_tools` is 5"),
        ({"allowed_tools": "look"}, "`allowed_tools` is 'look'"),
        ({"session_id": 5}, "`session_id` is 5"),
        ({"caller": 3}, "`caller` is 3"),
        ({"idempotency_key": 3}, "`idempotency_key` is 3"),
        ({"metadata": [1]}, r"`metadata` is \[1\]"),
        ({"metadata": {"来源": object()}}, "what JSON can hold"),
        ({"budget": "许多" * 1000}, r"^.{,300}$"),
    ],
)
async def test_a_run_that_cannot_work_is_not_begun(
    options: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Agent(MockProvider([]), tools=[add]) as agent:
        with pytest.raises(InvalidInputError, match=said):
            await agent.run("查一查", **options)
        assert await agent.journal.runs() == []
    assert not caplog.records


async def test_agents_may_not_start_each_other_without_end() -> None:
    agent = Agent(MockProvider(["fine"]))
    with called_with({DEPTH_META_KEY: DEEPEST}):
        assert (await agent.run("go")).output == "fine"
    with called_with({DEPTH_META_KEY: DEEPEST + 1}), pytest.raises(InvalidInputError, match="4 agents"):
        await agent.run("go")
    await agent.aclose()


async def test_a_run_of_another_agent_is_not_resumed() -> None:
    agent = Agent(MockProvider(["fine"]), name="one")
    result = await agent.run("go")
    other = Agent(MockProvider([]), name="two", journal=agent.journal)
    with pytest.raises(InvalidInputError, match="one"):
        await other.resume(result.run_id)
    with pytest.raises(NotFoundError):
        await other.resume("run_nothing")
    await agent.aclose()


async def test_a_model_that_goes_round_in_circles_is_reminded_refused_and_stopped() -> None:
    def again(request: ChatRequest) -> MockAnswer:
        return _calling(_call("add", f"c{len(request.messages)}", a=1, b=2))

    llm = MockProvider(again)
    async with Agent(llm, tools=[add]) as agent:
        result = await agent.run("add for ever")
        events = await agent.journal.events(result.run_id)
        messages = await agent.parts.memory.messages(result.session_id)
    assert result.status == "failed"
    assert [event.payload["action"] for event in events if event.type == "loop_detected"] == [
        "remind", "refuse", "stop",
    ]  # fmt: skip
    assert events[-1].payload["failure"] == "loop"
    assert result.spent.tool_calls == 3
    assert isinstance(messages[-1], ToolMessage), "the last call has a result, too"


async def test_a_model_that_calls_tools_when_its_budget_is_used_up_is_not_obeyed() -> None:
    def stubborn(request: ChatRequest) -> MockAnswer:
        number = len(request.messages)
        return _calling(_call("add", f"c{number}", a=number, b=0), text=f"turn {number}")

    async with Agent(MockProvider(stubborn), tools=[add]) as agent:
        result = await agent.run("go on", budget=Budget(iterations=2))
    assert (result.status, result.spent.iterations, result.spent.tool_calls) == ("failed", 3, 2)


async def test_an_agent_that_a_tool_starts_stands_one_deeper() -> None:
    inner = Agent(MockProvider(["inner answer"]), name="inner")

    @tool(read_only=True, open_world=False)
    async def delegate(goal: str) -> str:
        """Let another agent do it."""
        return (await inner.run(goal)).output

    llm = MockProvider([_calling(_call("delegate", goal="做一部分")), "done"])
    async with inner, Agent(llm, tools=[delegate]) as outer:
        await outer.run("all of it")
        (run,) = await inner.journal.runs()
    assert _results(llm.calls[1]) == ["inner answer"]
    assert run.request.depth == 1
