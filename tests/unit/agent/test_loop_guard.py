from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.agent import Agent
from loom_core.agent.loop_guard import LoopGuard, canonical_arguments, with_reminder
from loom_core.llm.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from loom_core.testing import MockCall, MockLLM
from loom_core.tools import tool
from loom_core.tools.calls import NO_OUTPUT


class _Run:
    """Calls one after the other, each a turn, as the loop makes them."""

    def __init__(self, guard: LoopGuard | None = None) -> None:
        self.guard = guard or LoopGuard()
        self.history: list[Message] = [UserMessage((TextPart("查一下天气"),))]
        self._number = 0

    def call(self, name: str, result: str = "same", *, failed: bool = False, **arguments: Any) -> str:
        self._number += 1
        part = ToolCallPart(f"c{self._number}", name, arguments)
        verdict = self.guard.before(part)
        if verdict.action == "refuse":
            message = ToolMessage(part.id, (TextPart(verdict.text),), failed=True)
        else:
            message = ToolMessage(part.id, (TextPart(result),), failed=failed)
            self.guard.after(part, result, failed=failed)
        if verdict.action == "remind":
            message = with_reminder(message, verdict.text)
        self.history += [AssistantMessage((part,)), message]
        return verdict.action


def test_the_same_call_with_the_same_result_is_reminded_of_then_refused_then_ends_the_run():
    run = _Run()

    actions = [run.call("weather", "晴", city="杭州") for _ in range(5)]

    assert actions == ["run", "run", "remind", "refuse", "stop"]


def test_what_the_model_is_told_names_the_tool_and_what_to_do():
    guard = LoopGuard()
    call = ToolCallPart("c", "查天气", {"city": "杭州"})
    for number in range(2):
        guard.before(ToolCallPart(f"{number}", call.name, call.arguments))
        guard.after(ToolCallPart(f"{number}", call.name, call.arguments), "晴", failed=False)

    verdict = guard.before(call)

    assert (verdict.action, verdict.times) == ("remind", 3)
    assert "查天气" in verdict.text
    assert "other arguments" in verdict.text


def test_two_calls_in_turn_are_a_circle_like_one():
    run = _Run()

    actions = [run.call(name) for name in ["a", "b", "a", "b", "a", "b", "a", "b", "a"]]

    assert actions == ["run"] * 4 + ["remind"] * 2 + ["refuse"] * 2 + ["stop"]


def test_a_circle_without_a_rhythm_is_one_too():
    run = _Run()

    actions = [run.call(name) for name in "abaabbababa"]

    assert "remind" in actions
    assert actions[-1] == "stop"


def test_a_call_whose_result_changes_is_never_a_repetition():
    run = _Run()

    actions = {run.call("job", f"{percent} %") for percent in range(50)}
    actions |= {run.call("door", "open" if number % 2 else "closed") for number in range(20)}

    assert actions == {"run"}


def test_something_new_in_between_begins_afresh():
    run = _Run()

    actions = [
        action
        for number in range(10)
        for action in (run.call("edit", "done", line=number), run.call("test", "1 failed"))
    ]

    assert set(actions) == {"run"}


def test_a_result_that_has_changed_after_the_reminder_ends_the_count():
    run = _Run()

    assert [run.call("look", result) for result in ["a", "a", "b", "b"]] == ["run", "run", "remind", "run"]
    assert run.call("look", "b") == "remind"


def test_the_same_calls_in_one_turn_count_once():
    guard = LoopGuard()
    calls = [ToolCallPart(f"c{number}", "look", {}) for number in range(9)]
    assert {guard.before(call).action for call in calls} == {"run"}
    for call in calls:
        guard.after(call, "same", failed=False)

    assert guard.before(ToolCallPart("later", "look", {})).times == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": [1.0, {"x": 2, "y": 3}]}, {"b": [1, {"y": 3, "x": 2.0}], "a": 1.0}),
        ({"q": unicodedata.normalize("NFC", "café 각")}, {"q": unicodedata.normalize("NFD", "café 각")}),
        ({unicodedata.normalize("NFD", "é"): 1}, {unicodedata.normalize("NFC", "é"): 1}),
        ({"n": -0.0}, {"n": 0}),
        ({"list": (1, 2)}, {"list": [1, 2]}),
    ],
)
def test_how_arguments_are_written_makes_no_difference(one: dict[str, Any], other: dict[str, Any]):
    assert canonical_arguments(ToolCallPart("1", "t", one)) == canonical_arguments(
        ToolCallPart("2", "t", other)
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"n": 1}, {"n": "1"}),
        ({"n": 1}, {"n": True}),
        ({"n": 1}, {"n": 1.5}),
        ({"q": "杭州"}, {"q": "苏州"}),
        ({"q": None}, {}),
        ({"q": [1, 2]}, {"q": [2, 1]}),
    ],
)
def test_other_arguments_are_other_arguments(one: dict[str, Any], other: dict[str, Any]):
    assert canonical_arguments(ToolCallPart("1", "t", one)) != canonical_arguments(
        ToolCallPart("1", "t", other)
    )


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=3), _JSON, max_size=3))
def test_any_arguments_can_be_compared(arguments: dict[str, Any]):
    run = _Run()

    actions = [run.call("t", "r", arguments=arguments) for _ in range(5)]

    assert actions[-1] == "stop"


def test_arguments_that_no_json_can_hold_are_compared_too():
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"deeper": deep}

    for odd in ({"n": float("nan")}, {"s": {1}}, {"s": 1j}, deep):
        assert canonical_arguments(ToolCallPart("1", "t", odd)) == canonical_arguments(
            ToolCallPart("2", "t", dict(odd))
        )


def test_what_is_told_of_a_refused_call_does_not_count_again():
    guard = LoopGuard()
    for number in range(4):
        call = ToolCallPart(str(number), "look", {})
        verdict = guard.before(call)
        refused = verdict.action == "refuse"
        guard.after(call, verdict.text if refused else "same", failed=refused)

    assert guard.before(ToolCallPart("5", "look", {})).action == "stop"


def test_arguments_that_are_no_json_are_compared_as_they_are_written():
    guard = LoopGuard()
    for number in range(2):
        guard.after(ToolCallPart(str(number), "t", unreadable='{"q": "杭'), "wrong", failed=True)
        guard.before(ToolCallPart("next", "t", unreadable='{"q": "杭'))

    assert guard.before(ToolCallPart("3", "t", unreadable=' {"q": "杭 ')).action == "remind"
    assert guard.before(ToolCallPart("3", "t", unreadable='{"q": "苏')).action == "run"


def test_tools_that_are_meant_to_be_asked_again_and_again_are_left_alone():
    run = _Run(LoopGuard(poll=["*_status"]))
    assert {run.call("job_status", "working") for _ in range(30)} == {"run"}


@pytest.mark.parametrize(
    "empty", ["", " \n", NO_OUTPUT, "[]", "null", "None", '{"results": [], "count": 0}', "{}"]
)
def test_one_empty_result_after_the_other_is_no_progress(empty: str):
    run = _Run()

    actions = [run.call("search", empty, query=f"问题 {number}") for number in range(11)]

    assert actions == ["run"] * 5 + ["remind"] * 5 + ["stop"]


@pytest.mark.parametrize(
    "something",
    ["0", "false", '{"exists": false}', "[1]", '{"results": [], "hint": "x"}', "{no", "{}" + " " * 200 + "x"],
)
def test_a_short_result_that_says_something_is_not_empty(something: str):
    run = _Run()

    assert {run.call("search", something, query=str(number)) for number in range(12)} == {"run"}


def test_failures_and_calls_that_only_do_something_are_no_empty_results():
    guard = LoopGuard()
    for number in range(20):
        call = ToolCallPart(str(number), "move", {"to": number})
        assert guard.before(call).action == "run"
        guard.after(call, "", failed=number % 2 == 0, changes=True)


def test_a_result_that_is_not_empty_ends_the_row():
    run = _Run()
    for number in range(5):
        run.call("search", "", query=str(number))

    assert run.call("search", "found", query="杭州") == "remind"
    assert run.call("search", "", query="苏州") == "run"


@pytest.mark.parametrize("length", range(10))
def test_a_resumed_run_stands_where_it_stood(length: int):
    plan = ["a", "b", "a", "b", "a", "b", "a", "b", "a", "b"]
    run = _Run()
    for name in plan[:length]:
        run.call(name, "same")

    resumed = LoopGuard()
    resumed.replay(run.history)
    resumed.replay([])

    following = ToolCallPart("next", plan[length], {})
    assert resumed.before(following) == run.guard.before(following)


def test_a_call_without_a_result_and_a_result_without_a_call_are_nothing_to_replay():
    guard = LoopGuard()
    guard.replay(
        [
            ToolMessage("lost", (TextPart("x"),)),
            AssistantMessage((ToolCallPart("a", "look", {}), ToolCallPart("b", "look", {}))),
            ToolMessage("a", (ImagePart(b"png"),)),
        ]
    )

    assert guard.before(ToolCallPart("c", "look", {})).times == 2


def test_a_reminder_stands_behind_the_result():
    message = with_reminder(ToolMessage("a", (TextPart("晴"),)), "Do something else.")

    assert message.text == "晴\n\n<reminder>Do something else.</reminder>"


async def test_a_question_that_a_user_asks_again_is_no_loop():
    @tool(read_only=True, open_world=False)
    async def status() -> str:
        """Say how it is."""
        return "all well"

    llm = MockLLM(lambda request: MockCall("status") if request.messages[-1].role == "user" else "好")
    async with Agent(llm, tools=[status]) as agent:
        result = await agent.run("现在状态如何？")
        for _ in range(4):
            result = await agent.run("现在状态如何？", session_id=result.session_id)

    assert result.status == "completed"
    assert llm.tool_results == ["all well"] * 5


async def test_empty_results_of_one_turn_end_no_run_before_the_model_has_read_a_reminder():
    @tool(read_only=True, open_world=False)
    async def search(query: str) -> list[str]:
        """Search."""
        return ["found"] if query == "last" else []

    many = [MockCall("search", {"query": str(number)}) for number in range(10)]
    llm = MockLLM([many, MockCall("search", {"query": "last"}), "好"])
    assert (await Agent(llm, tools=[search]).run("x")).output == "好"
    assert "The last 10 results were empty" in llm.tool_results[-1]
    stopped = await Agent(MockLLM([many, MockCall("search", {"query": "a"}), many]), tools=[search]).run("x")
    assert stopped.problem.startswith("The model makes no progress: the last 11 results")
