"""Answers of a run: a value of a schema, a text that was cut off or broke, or the reason for none."""

from __future__ import annotations

import logging

import pytest
from pydantic import BaseModel, Field, field_validator

from loom_core.agent.agent import Agent
from loom_core.agent.result import RunError
from loom_core.errors import InvalidInputError, LLMError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import AssistantMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from tests.fixtures.adding_agents import add, calling, event_types, tool_call

pytestmark = pytest.mark.slow


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
    assert result.structured == result.data == City(name="Bonn", people=331000)


async def test_the_data_of_an_answer_that_has_none_is_an_error() -> None:
    async with Agent(MockProvider(["Bonn", "no", "no"])) as agent:
        with pytest.raises(InvalidInputError, match="started without a schema"):
            _ = (await agent.run("Bonn")).data
        with pytest.raises(RunError):
            _ = (await agent.run("Bonn", output_schema=City)).data


async def test_an_answer_that_does_not_fit_the_schema_is_mended_once() -> None:
    llm = MockProvider(
        [calling(tool_call("add", a=1, b=2)), '{"name": "Bonn"}', '{"name": "Bonn", "people": 3}']
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


async def test_what_only_the_models_validators_refuse_is_mended_once() -> None:
    llm = MockProvider(['{"name": "Atlantis", "people": 0}', '{"name": "Bonn", "people": 3}'])
    async with Agent(llm) as agent:
        result = await agent.run("Atlantis", output_schema=City)
    assert result.structured == City(name="Bonn", people=3)
    assert "no such city" in llm.calls[1].messages[-1].text


async def test_what_only_the_models_validators_refuse_is_a_failure_like_any_other() -> None:
    async with Agent(MockProvider(['{"name": "Atlantis", "people": 0}'] * 2)) as agent:
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
        assert "model_retry" in await event_types(agent, result.run_id)
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
