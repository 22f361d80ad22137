"""Named steps that wait for each other, side by side where they need not."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.agent.agent import Agent
from loom_core.agent.teams.chain import Chain
from loom_core.agent.teams.step import StepError
from loom_core.agent.teams.workflow import Results, Workflow, WorkflowStep
from loom_core.errors import ConfigError, LLMError
from loom_core.llm.mock import MockProvider

_Step = WorkflowStep


async def test_steps_get_what_those_gave_that_they_wait_for() -> None:
    writer = Agent(MockProvider(["文章"]), name="writer")
    workflow = Workflow(
        [
            _Step("报告", writer, after=["资料", "数字"]),
            _Step("资料", lambda text: f"资料 {text}"),
            _Step("数字", len),
            _Step("长度", len, after=["报告"]),
        ]
    )
    result = await workflow.run("电动车")
    assert result.value == 2
    assert {step.step: step.value for step in result.steps} == {
        "资料": "资料 电动车", "数字": 3, "报告": "文章", "长度": 2,
    }  # fmt: skip
    llm = writer.parts.llm
    assert isinstance(llm, MockProvider)
    assert llm.calls[0].messages[-1].text == '{"资料":"资料 电动车","数字":3}'


async def test_several_last_steps_give_a_mapping() -> None:
    result = await Workflow([_Step("a", len), _Step("b", str.upper)]).run("xy")
    assert result.value == {"a": 2, "b": "XY"}


async def test_a_step_may_say_itself_what_it_is_given() -> None:
    steps = [
        _Step("a", len),
        _Step("b", str.upper, after=["a"]),
        _Step("c", str, after=["b"], given=lambda results: f"{results['a']} {results.given}"),
    ]
    steps[1] = _Step("b", str, after=["a"])
    assert (await Workflow(steps).run("xyz")).value == "3 xyz"


async def test_steps_that_do_not_wait_for_each_other_run_at_the_same_time() -> None:
    here, there = anyio.Event(), anyio.Event()

    async def one(text: str) -> str:
        here.set()
        await there.wait()
        return "1"

    async def other(text: str) -> str:
        there.set()
        await here.wait()
        return "2"

    with anyio.fail_after(30):
        assert (await Workflow([_Step("a", one), _Step("b", other)]).run("")).value == {"a": "1", "b": "2"}


async def test_no_more_steps_run_at_once_than_are_allowed() -> None:
    running, peak = 0, 0

    async def step(text: str) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await anyio.lowlevel.checkpoint()
        running -= 1

    await Workflow([_Step(str(number), step) for number in range(9)], max_concurrency=3).run("")
    assert peak == 3


async def test_a_branch_that_is_not_taken_is_skipped_with_what_waits_for_it_alone() -> None:
    workflow = Workflow(
        [
            _Step("长", len),
            _Step("大", lambda size: "large", after=["长"], when=lambda results: results["长"] == 9),
            _Step("大二", str, after=["大"]),
            _Step("小", lambda size: "small", after=["长"], when=lambda results: results["长"] != 9),
            _Step("合", str, after=["大二", "小"]),
        ]
    )
    result = await workflow.run("xyz")
    assert result.value == "{'小': 'small'}"
    assert {step.step: step.problem for step in result.steps if step.status == "skipped"} == {
        "大": "Its condition does not hold.",
        "大二": "Every step that it waits for was skipped.",
    }


async def test_a_workflow_whose_last_step_was_skipped_gives_nothing() -> None:
    result = await Workflow([_Step("a", len, when=lambda results: "a" in results)]).run("x")
    assert (result.value, result.output) == (None, "")


def _fails(text: str) -> str:
    raise OSError("no disk")


async def test_a_step_that_fails_ends_the_workflow_and_cancels_what_runs() -> None:
    cancelled: list[str] = []

    async def hang(text: str) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append(text)
        return text

    with pytest.raises(StepError, match=r"^The step '坏' failed: OSError: no disk$") as raised:
        await Workflow([_Step("等", hang), _Step("坏", _fails)]).run("x")
    assert raised.value.step == "坏"
    assert isinstance(raised.value.__cause__, OSError)
    assert cancelled == ["x"]


async def test_a_failure_may_be_skipped() -> None:
    steps = [_Step("a", _fails, on_failure="skip"), _Step("b", len), _Step("c", str, after=["a", "b"])]
    result = await Workflow(steps).run("xy")
    assert result.value == "{'b': 2}"
    skipped = result.step("a")
    assert (skipped.status, skipped.problem) == ("skipped", "The step 'a' failed: OSError: no disk")


async def test_another_may_run_in_the_place_of_a_step_that_failed() -> None:
    llm, other = MockProvider([LLMError("down", failure="quota")]), Agent(MockProvider(["备用"]), name="备")
    step = _Step("写", Agent(llm), on_failure="fallback", fallback=other)
    result = await Workflow([step]).run("x", key="k")
    assert (result.value, result.steps[0].status) == ("备用", "fallback")
    assert result.steps[0].problem.startswith("The step '写' failed: down")


async def test_a_step_that_takes_too_long_fails() -> None:
    async def hang(text: str) -> None:
        await anyio.sleep_forever()

    steps = [_Step("慢", hang, seconds=0.02, on_failure="skip"), _Step("b", len)]
    result = await Workflow(steps).run("x")
    assert result.step("慢").problem.startswith("The step '慢' timed out after 0.02 s.")
    assert result.value == {"b": 1}


@pytest.mark.parametrize("wrong", ["given", "when"])
async def test_an_error_in_what_a_step_begins_with_names_it(wrong: str) -> None:
    def broken(results: Results) -> bool:
        return bool(results["never"])

    step = _Step("b", len, given=broken) if wrong == "given" else _Step("b", len, when=broken)
    with pytest.raises(
        StepError, match="The condition or input of the step 'flow/b' failed: KeyError: 'never'"
    ):
        await Chain([("flow", Workflow([step]))]).run("x")


async def test_what_happens_is_told_as_it_does() -> None:
    workflow = Workflow([_Step("a", _fails, on_failure="skip"), _Step("b", str, after=["a"])])
    async with aclosing(workflow.stream("x")) as events:
        told = [(event.type, event.step) async for event in events]
    assert told == [
        ("step_start", "a"), ("step_failed", "a"), ("step_skipped", "a"), ("step_skipped", "b"),
        ("finished", ""),
    ]  # fmt: skip


async def test_a_workflow_that_is_cancelled_ends_at_once() -> None:
    began = anyio.Event()

    async def hang(text: str) -> str:
        began.set()
        await anyio.sleep_forever()
        return text

    async with anyio.create_task_group() as group:
        group.start_soon(Workflow([_Step("a", hang), _Step("b", len, after=["a"])]).run, "x")
        await began.wait()
        group.cancel_scope.cancel()


def test_workflows_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one step"):
        Workflow([])
    with pytest.raises(ConfigError, match="Two steps have the same name"):
        Workflow([_Step("a", len), _Step("a", len)])
    with pytest.raises(
        ConfigError, match=r"The step '乙' waits for '丙', which does not exist\. There are: 甲, 乙"
    ):
        Workflow([_Step("甲", len), _Step("乙", len, after=["丙"])])
    with pytest.raises(ConfigError, match="`after` of the step 'b' is a string"):
        Workflow([_Step("a", len), _Step("b", len, after="a")])
    with pytest.raises(ConfigError, match=r"form a cycle: (甲 → 乙 → 甲|乙 → 甲 → 乙)"):
        Workflow([_Step("甲", len, after=["乙"]), _Step("乙", len, after=["甲"])])
    with pytest.raises(ConfigError, match="needs both"):
        Workflow([_Step("a", len, on_failure="fallback")])
    with pytest.raises(ConfigError, match="needs both"):
        Workflow([_Step("a", len, fallback=len)])
    with pytest.raises(ConfigError, match="`max_concurrency` is"):
        Workflow([_Step("a", len)], max_concurrency=0)


@settings(max_examples=40)
@given(st.lists(st.sets(st.integers(0, 8), max_size=4), min_size=1, max_size=9), st.integers(1, 4))
def test_every_step_runs_once_and_after_those_that_it_waits_for(before: list[set[int]], most: int) -> None:
    order: list[int] = []

    def step(number: int) -> WorkflowStep:
        async def run(value: object) -> int:
            await anyio.lowlevel.checkpoint()
            order.append(number)
            return number

        return _Step(str(number), run, after=[str(each) for each in before[number] if each < number])

    steps = [step(number) for number in reversed(range(len(before)))]
    result = anyio.run(Workflow(steps, max_concurrency=most).run, None)
    assert sorted(order) == list(range(len(before)))
    for number, waits in enumerate(before):
        assert all(order.index(each) < order.index(number) for each in waits if each < number)
    assert all(step.status == "done" for step in result.steps)
