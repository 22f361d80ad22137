"""What an agent did, in a test's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loom_core.agent import Agent
from loom_core.errors import ConfigError, LLMError
from loom_core.llm.interface import ChatRequest
from loom_core.testing import AgentTester, MockAnswer, MockLLM, MockTurn, call
from loom_core.tools import tool


@tool(read_only=True, open_world=False, name="读文件")
def read_file(path: str, lines: int = 10) -> str:
    """Read a file."""
    return f"{path}: 你好"


@tool
def write_file(path: str) -> str:
    """Write a file."""
    return f"wrote {path}"


def _tester(*turns: MockTurn, approve: dict[str, bool] | None = None) -> AgentTester:
    return AgentTester(Agent(MockLLM(turns), tools=[read_file, write_file]), approve=approve)


async def test_a_test_says_what_an_agent_does_and_what_it_should_have_done() -> None:
    read = read_file.wire_name
    tester = _tester(call(read, path="甲.md"), [call(read, path="乙.md"), call("none")], "两个文件。")
    result = await tester.run("读")
    tester.assert_answer("两个文件。")
    tester.assert_answer("两个", exactly=False)
    seen = tester.assert_called("读文件", path="乙.md")
    assert (seen.id, seen.status, seen.text) == ("call_2", "success", "乙.md: 你好")
    assert tester.assert_called("读文件", times=2).arguments == {"path": "甲.md"}
    tester.assert_called_in_order("读文件", "none")
    tester.assert_not_called("write_file")
    assert [event.type for event in tester.of_type("usage")] == ["usage"] * 3
    assert tester.result is result
    llm = tester.agent.parts.llm
    assert isinstance(llm, MockLLM)
    assert llm.tool_results[:2] == ["甲.md: 你好", "乙.md: 你好"]


async def test_what_is_not_so_is_said_with_what_is() -> None:
    tester = _tester(call(read_file.wire_name, path="甲.md"), "好")
    await tester.run("读")
    shown = 'Calls: 读文件(path="甲.md") → success.'
    claims: list[tuple[Callable[[], object], str]] = [
        (lambda: tester.assert_called("写文件"), f"写文件() was not called. {shown}"),
        (
            lambda: tester.assert_called("读文件", path="乙.md"),
            f"读文件(path='乙.md') was not called. {shown}",
        ),
        (lambda: tester.assert_called("读文件", times=2), f"读文件() was called 1 times. {shown}"),
        (lambda: tester.assert_not_called("读文件"), f"读文件 was called. {shown}"),
        (
            lambda: tester.assert_called_in_order("读文件", "读文件"),
            f"Not in this order: 读文件, 读文件. {shown}",
        ),
        (lambda: tester.assert_answer("不好"), "The answer is '好'."),
        (lambda: tester.assert_failed(), "The run is completed: 好"),
    ]
    for claim, said in claims:
        with pytest.raises(AssertionError) as raised:
            claim()
        assert str(raised.value) == said


async def test_a_run_that_fails_is_looked_at_too() -> None:
    tester = _tester(LLMError("It is down.", failure="quota"))
    await tester.run("x")
    tester.assert_failed("It is down.")
    with pytest.raises(AssertionError, match="It failed with: It is down"):
        tester.assert_failed("something else")
    with pytest.raises(AssertionError, match="The run is failed: It is down"):
        tester.assert_answer("x")


@pytest.mark.parametrize(("allowed", "status"), [(True, "success"), (False, "denied")])
async def test_a_test_says_what_is_approved(allowed: bool, status: str) -> None:
    tester = _tester(call("write_file", path="x"), "done", approve={"write_file": allowed})
    await tester.run("write")
    assert tester.assert_called("write_file").status == status
    assert [pending.tool for pending in tester.asked] == ["write_file"]
    (decided,) = tester.of_type("approval_decided")
    assert decided.payload["action"] == ("approve" if allowed else "deny")


async def test_what_is_not_named_is_not_approved() -> None:
    tester = _tester(call("write_file", path="x"), "done", approve={})
    await tester.run("write")
    assert tester.assert_called("write_file").status == "denied"


async def test_each_run_is_looked_at_by_itself() -> None:
    tester = _tester(call(read_file.wire_name, path="a"), "one", "two")
    with pytest.raises(AssertionError, match="Nothing has run yet"):
        tester.assert_answer("x")
    await tester.run("1")
    await tester.run("2")
    tester.assert_answer("two")
    assert tester.calls == []


async def test_a_model_may_decide_by_what_it_is_asked() -> None:
    def turn(request: ChatRequest) -> MockTurn:
        last = request.messages[-1].text
        return call("echo", text=last) if last == "去" else f"说了 {last}"

    @tool(read_only=True, open_world=False)
    def echo(text: str) -> str:
        """Echo."""
        return text * 2

    llm = MockLLM(turn)
    assert llm.tool_results == []
    tester = AgentTester(Agent(llm, tools=[echo]))
    await tester.run("去")
    tester.assert_answer("说了 去去")


async def test_a_model_may_think_first() -> None:
    tester = _tester(MockAnswer("好", reasoning="想一想"))
    await tester.run("x")
    assert [event.payload["text"] for event in tester.of_type("reasoning_delta")] == ["想一想"]


def test_a_tester_that_has_run_nothing_says_so() -> None:
    with pytest.raises(AssertionError, match="Nothing has run yet"):
        _tester().assert_called("读文件")


def test_a_text_is_not_taken_for_a_list_of_turns() -> None:
    with pytest.raises(ConfigError, match=r"The turns are the string '好的'. Put it into a list"):
        MockLLM("好的")


async def test_a_list_of_turns_may_hold_functions_each_for_one_time() -> None:
    @tool(read_only=True, open_world=False)
    def look(path: str) -> str:
        """Look."""
        return f"{path}: 你好"

    llm = MockLLM([call("look", path="a"), lambda request: f"{len(request.messages)} 条消息"])
    tester = AgentTester(Agent(llm, tools=[look]))
    await tester.run("看看")
    assert tester.assert_called("look", path="a").status == "success"
    tester.assert_answer("4 条消息")


@pytest.mark.parametrize("turn", [3, [call("read_file"), 3], {"tool": "read_file"}, None])
def test_what_is_no_turn_is_refused_when_it_is_given(turn: Any) -> None:
    with pytest.raises(ConfigError, match="A mock model cannot do") as refused:
        MockLLM([turn])
    assert "call(" in refused.value.advice


async def test_without_turns_it_repeats_what_it_is_asked() -> None:
    assert (await Agent(MockLLM()).run("你好")).output == "（模拟回答）你好"
