"""Default components of agents."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from loom_core import config
from loom_core.agent import Agent, Budget, InMemoryMemory
from loom_core.errors import ConfigError
from loom_core.llm.messages import UserMessage
from loom_core.llm.mock import MockProvider
from loom_core.observability import families
from loom_core.observability.metrics import process_metrics


@pytest.fixture(autouse=True)
def as_at_the_beginning() -> Iterator[None]:
    yield
    config.reset()


async def test_an_agent_takes_what_it_is_not_given() -> None:
    memory = InMemoryMemory()
    config.set_default_llm(MockProvider(["灯塔在青岛"]))
    config.set_default_memory(memory)
    config.set_max_iterations(7)
    async with Agent() as agent:
        result = await agent.run("灯塔在哪里？")
        assert result.or_raise().output == "灯塔在青岛"
        assert agent.budget == Budget(iterations=7)
        assert len(await memory.messages(result.session_id)) == 2


def test_what_an_agent_is_given_counts() -> None:
    own, memory = MockProvider([]), InMemoryMemory()
    config.set_default_llm(MockProvider([]))
    config.set_default_memory(InMemoryMemory())
    config.set_max_iterations(7)
    agent = Agent(own, memory=memory, budget=Budget(tokens=1000))
    assert agent.parts.llm is own
    assert agent.parts.memory is memory
    assert agent.budget == Budget(tokens=1000)


def test_an_agent_that_is_there_stays_as_it_is() -> None:
    config.set_default_llm(MockProvider([]))
    agent = Agent()
    config.set_default_llm("deepseek")
    config.set_max_iterations(3)
    assert agent.parts.llm.name == "mock"
    assert agent.budget.iterations == 50
    assert Agent().parts.llm.name == "deepseek"


async def test_the_mock_may_be_the_default() -> None:
    config.set_default_llm("mock")
    assert (await Agent().run("你好")).output == "（模拟回答）你好"


def test_a_configuration_makes_a_provider_for_each_agent() -> None:
    config.set_default_llm("deepseek")
    assert Agent().parts.llm is not Agent().parts.llm


def test_without_a_model_there_is_no_agent() -> None:
    with pytest.raises(ConfigError, match=r"`config\.set_default_llm` sets the default for all agents"):
        Agent()


def test_everything_can_be_taken_back() -> None:
    config.set_default_llm("deepseek")
    config.set_default_memory(InMemoryMemory())
    config.set_max_iterations(7)
    config.enable_metrics()
    config.reset()
    assert config.defaults() == config.Defaults()
    assert not process_metrics.enabled
    config.set_default_llm("deepseek")
    config.set_default_llm(None)
    config.set_default_memory(None)
    assert config.defaults() == config.Defaults()


@pytest.mark.parametrize(
    ("set_it", "wrong", "told"),
    [
        (config.set_default_llm, 5, "5 is not a model"),
        (config.set_default_llm, "nosuchvendor", "there is no 'nosuchvendor'"),
        (config.set_default_llm, "", "there is no ''"),
        (config.enable_metrics, "no", "Metrics cannot be 'no'"),
        (config.set_default_memory, UserMessage(()), "is not a memory"),
        (config.set_max_iterations, 0, "cannot take 0 turns"),
        (config.set_max_iterations, True, "cannot take True turns"),
        (config.set_max_iterations, "50", "cannot take '50' turns"),
    ],
)
def test_what_cannot_be_is_refused(set_it: Any, wrong: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        set_it(wrong)
    assert config.defaults() == config.Defaults()
    assert not process_metrics.enabled


def test_no_change_of_another_thread_is_lost() -> None:
    threads = [
        Thread(target=config.set_default_llm, args=("deepseek",)),
        Thread(target=config.set_max_iterations, args=(9,)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (config.defaults().llm, config.defaults().max_iterations) == ("deepseek", 9)


async def test_metrics_are_counted_when_they_are_wanted(counted: Any) -> None:
    config.enable_metrics(False)
    async with Agent(MockProvider(["one", "two"])) as agent:
        await agent.run("first")
        assert counted.samples(families.ITERATIONS) == {}
        config.enable_metrics(True)
        await agent.run("second")
    assert counted.samples(families.ITERATIONS) == {(): 1}
