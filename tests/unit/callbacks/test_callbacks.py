"""Who looks on while an agent works."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from loom_core.agent import Agent, Budget
from loom_core.agent.teams.agent_tool import AgentTool
from loom_core.callbacks import Callback, LoggingCallback, MetricsCallback
from loom_core.errors import ConfigError, InvalidInputError, LLMError
from loom_core.llm.messages import ToolCallPart
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.observability import families
from loom_core.tools.function_tool import tool


@tool(read_only=True, open_world=False)
async def look(where: str) -> str:
    """Look somewhere."""
    if where == "nowhere":
        raise InvalidInputError("There is nothing.")
    return f"密文 {where}"


class Kept(Callback):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_event(self, event: Any, run: Any) -> None:
        assert event.run_id == run.id
        self.told.append(f"{event.type}:{run.status}")

    def on_detach(self, run: Any) -> None:
        self.told.append(f"left:{run.status}")


class Broken(Callback):
    """Fails at everything."""

    def on_event(self, event: Any, run: Any) -> None:
        raise RuntimeError("broken")

    def on_detach(self, run: Any) -> None:
        raise RuntimeError("broken")


def calls(*places: str, id_: str = "c") -> MockAnswer:
    return MockAnswer(
        calls=tuple(ToolCallPart(f"{id_}{n}", "look", {"where": where}) for n, where in enumerate(places))
    )


def agent(*answers: Any, **parts: Any) -> Agent:
    return Agent(MockProvider(list(answers)), tools=[look], **parts)


async def test_a_callback_is_told_every_event_and_the_end() -> None:
    kept = Kept()
    async with agent(calls("灯塔"), "done", callbacks=[kept]) as one:
        result = await one.run("看看灯塔")
        events = await one.journal.events(result.run_id)
    assert [each.partition(":")[0] for each in kept.told] == [event.type for event in events] + ["left"]
    assert kept.told[-2:] == ["agent_finish:completed", "left:completed"]


async def test_a_callback_that_fails_does_no_harm_and_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    async with agent("done", callbacks=[Broken(), kept]) as one:
        result = await one.run("灯塔")
    assert result.or_raise().output == "done"
    assert kept.told[-1] == "left:completed"
    assert "could not handle the event request_start" in caplog.text
    assert "could not handle the release of the run" in caplog.text


def test_what_is_no_callback_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a `Callback`"):
        agent(callbacks=[print])


async def test_an_agent_that_is_extended_keeps_its_callbacks() -> None:
    kept = Kept()
    async with agent("done", callbacks=[kept]) as one:
        await one.extend(system_prompt="简短").run("灯塔")
    assert kept.told[-1] == "left:completed"


async def test_the_log_has_a_line_for_each_event_and_no_word_of_anybody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with agent(calls("秘密之地", "nowhere"), "密文 gesehen", callbacks=[LoggingCallback()]) as one:
        result = await one.run("秘密任务")
    lines = [record.getMessage() for record in caplog.records if record.name == "loom_core.callbacks"]
    run = result.run_id
    assert lines[0] == f"{run} #1 request_start profile=default model=mock"
    assert any(" tool_result call_id=c0 tool=look status=success seconds=" in line for line in lines)
    assert any(" tool_result call_id=c1 tool=look status=error seconds=" in line for line in lines)
    assert lines[-1].endswith("agent_finish")
    assert not any(word in line for line in lines for word in ("秘密", "密文", "gesehen", "text_delta"))
    fields = [record.__dict__ for record in caplog.records if record.name == "loom_core.callbacks"]
    assert fields[0]["run_id"] == run
    assert fields[0]["facts"] == {"profile": "default", "model": "mock"}
    assert [each["seq"] for each in fields] == sorted(each["seq"] for each in fields)


async def test_the_log_warns_of_what_goes_wrong_and_tells_pieces_if_wanted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = logging.getLogger("灯塔")
    caplog.set_level(logging.DEBUG, logger="灯塔")
    watching = LoggingCallback(logger, level=logging.DEBUG, pieces=True)
    async with agent("完成", LLMError("down", failure="server"), callbacks=[watching]) as one:
        await one.run("灯塔")
        await one.run("again")
    records = [record for record in caplog.records if record.name == "灯塔"]
    assert any(record.__dict__["event"] == "text_delta" for record in records)
    (warned,) = [record for record in records if record.levelno == logging.WARNING]
    assert warned.getMessage().endswith("error failure=server")


async def test_the_figures_of_an_agent() -> None:
    watched = MetricsCallback(agent_id="研究员")
    answers = [calls("灯塔", "nowhere"), "done", LLMError("down", failure="server")]
    async with agent(*answers, callbacks=[watched]) as one:
        await one.run("灯塔")
        await one.run("fails")
    figures = watched.summary()
    assert figures.iterations == 3
    assert figures.llm_calls == 3
    assert figures.tool_calls == figures.tools["look"].calls == 2
    assert figures.tools["look"].statuses == {"success": 1, "error": 1}
    assert figures.tools["look"].success_rate == 0.5
    assert figures.tools["look"].mean_seconds > 0
    assert figures.input_tokens > 0
    assert figures.output_tokens > 0
    assert figures.runs == {"completed": 1, "failed": 1}
    assert figures.failures == {"server": 1}
    assert figures.error_rate == 0.5
    assert figures.most_active == 1
    assert figures.mean_iteration_seconds == pytest.approx(figures.iteration_seconds / 3)
    assert figures.mean_llm_seconds > 0
    text = watched.metrics.text()
    assert 'loom_tool_calls_total{tool_name="look",status="success",agent_id="研究员"} 1\n' in text
    assert 'loom_active_agents{agent_id="研究员"} 0\n' in text


@pytest.mark.hostile("answers of models")
async def test_a_name_that_the_model_has_invented_stands_in_no_log_and_no_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    watched = MetricsCallback()
    invented = MockAnswer(calls=tuple(ToolCallPart(f"c{n}", "密码是_hunter2", {}) for n in range(4)))
    async with agent(invented, "done", callbacks=[watched, LoggingCallback()]) as one:
        await one.run("灯塔")
    lines = [record.getMessage() for record in caplog.records if record.name == "loom_core.callbacks"]
    assert any(" tool_result call_id=c0 tool=unknown status=error" in line for line in lines)
    assert not any("hunter2" in line for line in lines)
    assert set(watched.summary().tools) == {"unknown"}
    assert watched.summary().tools["unknown"].mean_seconds == 0
    assert watched.metrics.registry.samples(families.TOOL_SECONDS) == {}


def test_the_figures_of_an_agent_that_has_done_nothing_are_zero() -> None:
    figures = MetricsCallback().summary()
    assert (figures.iterations, figures.llm_calls, figures.tool_calls, figures.most_active) == (0, 0, 0, 0)
    assert figures.mean_llm_seconds == figures.mean_iteration_seconds == figures.mean_compaction_ratio == 0
    assert figures.error_rate == figures.cost == 0


async def test_numbers_of_a_callback_are_not_those_of_the_process(counted: Any) -> None:
    watched = MetricsCallback()
    async with agent(calls("灯塔"), "done", callbacks=[watched]) as one:
        await one.run("灯塔")
    assert watched.summary().tool_calls == 1
    assert counted.samples(families.TOOL_CALLS) == {("look", "success"): 1}
    assert counted.samples(families.LLM_CALLS) == {(): 2}
    assert counted.samples(families.ITERATIONS) == {(): 2}
    assert counted.samples(families.RUNS) == {("agent", "completed"): 1}
    assert counted.samples(families.ACTIVE_AGENTS) == {(): 0}


async def test_a_run_that_is_cancelled_is_not_active_any_more(counted: Any) -> None:
    watched = MetricsCallback()
    async with agent(MockAnswer("late", delay=60), callbacks=[watched]) as one:
        stream = one.stream("灯塔")
        async for event in stream:
            if event.type == "model_start":
                break
        assert watched.summary().most_active == 1
        assert counted.samples(families.ACTIVE_AGENTS) == {(): 1}
        await stream.aclose()
    assert counted.samples(families.ACTIVE_AGENTS) == {(): 0}
    assert "loom_active_agents 0\n" in watched.metrics.text()


async def test_agents_that_work_for_each_other_are_counted_each(counted: Any) -> None:
    watched = MetricsCallback()
    helper = agent("找到了", name="helper", callbacks=[watched])
    wanted = MockAnswer(calls=(ToolCallPart("c", "helper", {"goal": "找灯塔"}),))
    async with (
        helper,
        Agent(
            MockProvider([wanted, "done"]),
            tools=[AgentTool(helper, description="Looks for things.")],
            permissions="allow",
            callbacks=[watched],
            budget=Budget(),
        ) as one,
    ):
        result = await one.run("灯塔")
    assert result.or_raise().output == "done"
    assert watched.summary().most_active == 2
    assert watched.summary().runs == {"completed": 2}
    assert counted.samples(families.RUNS) == {("agent", "completed"): 2}
