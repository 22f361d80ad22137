from __future__ import annotations

from typing import Any

import anyio
import pytest

from loom_core.errors import ConfigError, InvalidInputError, LLMError
from loom_core.llm.factory import create_provider
from loom_core.llm.interface import LLMProvider
from loom_core.llm.messages import ReasoningPart, TextPart, ToolCallPart, UserMessage
from loom_core.llm.mock import MockAnswer, MockProvider

_QUESTION = [{"role": "user", "content": "什么是知识图谱？"}]


async def test_answers_come_in_the_order_of_the_script():
    model = MockProvider(["one", "二"])
    assert [(await model.chat(_QUESTION)).content for _ in range(2)] == ["one", "二"]


async def test_a_scripted_error_is_raised_and_the_script_goes_on():
    model = MockProvider([LLMError("overloaded"), "then this"])
    with pytest.raises(LLMError, match="overloaded"):
        await model.chat(_QUESTION)
    assert (await model.chat(_QUESTION)).content == "then this"


async def test_a_script_that_is_used_up_says_so():
    model = MockProvider(["only one"])
    await model.chat(_QUESTION)
    with pytest.raises(LLMError, match="has 1 answers and is asked for number 2"):
        await model.chat(_QUESTION)


async def test_a_function_answers_what_it_is_asked():
    model = MockProvider(lambda request: request.messages[-1].text[::-1])
    response = await model.chat([{"role": "user", "content": "abc"}])
    assert (response.content, response.model) == ("cba", "mock")


@pytest.mark.parametrize("model", [MockProvider(), MockProvider(model="m"), create_provider("mock")])
async def test_without_a_script_the_question_is_repeated(model: LLMProvider):
    response = await model.chat(_QUESTION)
    assert response.content == "（模拟回答）什么是知识图谱？"
    assert (await model.chat([{"role": "user", "content": "Why?"}])).content == "(mock answer) Why?"
    assert response.model in {"m", "mock"}


async def test_a_list_may_hold_functions_each_for_one_call():
    model = MockProvider(["one", lambda request: request.messages[-1].text[:2], LLMError("overloaded")])
    assert [(await model.chat(_QUESTION)).content for _ in range(2)] == ["one", "什么"]
    with pytest.raises(LLMError, match="overloaded"):
        await model.chat(_QUESTION)


@pytest.mark.parametrize("responses", ["yes", 3, [3], [["a"]], None])
def test_what_is_no_script_is_refused_when_it_is_given(responses: Any):
    with pytest.raises(ConfigError, match="A mock model cannot answer") as refused:
        MockProvider(responses)
    assert refused.value.advice


async def test_another_model_may_be_asked_in_a_single_call():
    model = MockProvider(["one", "two"])
    assert (await model.chat(_QUESTION, model="other")).model == "other"
    assert (await model.chat(_QUESTION)).model == "mock"
    assert model.calls[0].model == "other"


async def test_calls_are_recorded_with_their_arguments():
    model = MockProvider(["yes"])
    messages = [dict(_QUESTION[0])]
    await model.chat(messages, max_tokens=10, temperature=0.1)
    messages[0]["content"] = "changed later"
    (call,) = model.calls
    assert call.messages == (UserMessage((TextPart("什么是知识图谱？"),)),)
    assert (call.max_tokens, call.temperature) == (10, 0.1)


async def test_an_effort_that_is_none_is_named_with_those_there_are():
    with pytest.raises(
        InvalidInputError, match=r"`effort` cannot be 'ultra'\. Give one of: off, low, medium, high, max"
    ):
        await MockProvider(["never"]).chat(_QUESTION, effort="ultra")


async def test_calls_made_at_once_get_the_answers_in_the_order_of_the_calls():
    model = MockProvider(["first", "second"], delay=0.001)
    found: dict[int, str] = {}

    async def ask(number: int) -> None:
        found[number] = (await model.chat(_QUESTION)).content

    async with anyio.create_task_group() as group:
        group.start_soon(ask, 1)
        group.start_soon(ask, 2)
    assert found == {1: "first", 2: "second"}


async def test_a_call_that_is_cancelled_while_it_waits_ends_at_once():
    model = MockProvider(["never"], delay=3600)
    with anyio.move_on_after(0.01) as scope:
        await model.chat(_QUESTION)
    assert scope.cancelled_caught
    assert len(model.calls) == 1


async def test_an_answer_may_have_reasoning_and_tool_calls():
    call = ToolCallPart("c1", "search", {"query": "图谱"})
    model = MockProvider([MockAnswer("On it.", reasoning="Look it up.", calls=(call,))])
    response = await model.chat(_QUESTION)
    assert response.message.parts == (ReasoningPart("Look it up."), TextPart("On it."), call)
    assert (response.finish, response.message.provider, response.usage.estimated) == (
        "tool_calls",
        "mock",
        True,
    )


async def test_a_stream_says_the_same_as_the_whole_answer():
    answer = MockAnswer(
        "知识图谱 is a graph of facts.", reasoning="Easy.", calls=(ToolCallPart("c1", "look"),)
    )
    chunks = [chunk async for chunk in MockProvider([answer]).chat_stream(_QUESTION)]
    whole = await MockProvider([answer]).chat(_QUESTION)
    assert "".join(chunk.text for chunk in chunks if chunk.kind == "text") == answer.text
    assert sum(chunk.kind == "text" for chunk in chunks) > 3
    assert "".join(chunk.text for chunk in chunks if chunk.kind == "reasoning") == answer.reasoning
    assert [chunk.tool_call.arguments for chunk in chunks if chunk.tool_call] == ["{}"]
    assert [chunk.kind for chunk in chunks][-2:] == ["usage", "done"]
    assert chunks[-1].response == whole


async def test_an_answer_that_is_cut_breaks_off_in_a_stream_and_fails_as_a_whole():
    cut = MockAnswer("one two three four", cut_after=2)
    stream = MockProvider([cut]).chat_stream(_QUESTION)
    assert (await anext(stream)).text + (await anext(stream)).text == "one two "
    with pytest.raises(LLMError) as stream_error:
        await anext(stream)
    assert (stream_error.value.failure, stream_error.value.is_transient) == ("interrupted", False)
    with pytest.raises(LLMError) as error:
        await MockProvider([cut]).chat(_QUESTION)
    assert (error.value.failure, error.value.is_transient) == ("connection", True)
