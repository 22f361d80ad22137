from __future__ import annotations

from datetime import date
from typing import Generic, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel

from loom_core.errors import InvalidInputError, LLMError
from loom_core.llm.interface import ChatOptions, LLMProvider, LLMResponse, OutputSchema, Usage
from loom_core.llm.messages import AssistantMessage, TextPart
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.llm.structured import generate, model_schema

_QUESTION = [{"role": "user", "content": "Which rivers are named?"}]
_FRAGE = [{"role": "system", "content": "你提取河流。"}, {"role": "user", "content": "Yangtze"}]


class River(BaseModel):
    name: str
    length: int | None = Field(default=None, ge=1)
    mapped: date = date(2000, 1, 1)


class Rivers(BaseModel):
    """Rivers that a text names."""

    rivers: list[River]


_SCHEMA = OutputSchema(
    "answer",
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "length": {"type": "integer"}},
        "required": ["name"],
    },
)


class Scripted(LLMProvider):
    """A model whose answers end for the reasons that the script gives."""

    def __init__(self, *responses: LLMResponse) -> None:
        self.responses = list(responses)

    async def chat(self, messages: object, **options: object) -> LLMResponse:
        return self.responses.pop(0)


def _response(text: str, **others: object) -> LLMResponse:
    return LLMResponse(AssistantMessage((TextPart(text),) if text else (), model="m-1"), **others)


async def test_an_answer_becomes_a_value_of_the_model():
    model = MockProvider(
        ['```json\n{"rivers": [{"name": "长江", "length": 6300, "mapped": "1950-05-01"}]}\n```']
    )
    done = await generate(model, _QUESTION, schema=Rivers, max_tokens=50, effort="off")
    assert done.value == Rivers(rivers=[River(name="长江", length=6300, mapped=date(1950, 5, 1))])
    (request,) = model.calls
    assert request.output == OutputSchema("Rivers", model_schema(Rivers), "Rivers that a text names.")
    assert (request.max_tokens, request.effort) == (50, "off")


async def test_an_answer_becomes_a_value_of_a_schema():
    done = await generate(MockProvider(['{"name": "Rhône", "length": null}']), _QUESTION, schema=_SCHEMA)
    assert done.value == {"name": "Rhône"}


@pytest.mark.parametrize(
    "answer",
    [
        '[{"rivers": [{"name": "Po"}]}]',
        '{"Rivers": {"rivers": [{"name": "Po"}]}}',
        '[{"name": "Po"}]',
        'A draft: {"rivers": []}. On reflection: {"rivers": [{"name": "Po"}]}. Nothing else: {}',
        '<think>{"rivers": []}</think>{"rivers": [{"name": "Po", "mapped": null}]}',
    ],
)
async def test_what_was_meant_is_found(answer: str):
    done = await generate(MockProvider([answer]), _QUESTION, schema=Rivers, repairs=0)
    assert done.value == Rivers(rivers=[River(name="Po")])


@pytest.mark.parametrize(
    "answer", ["[]", '[{"name": "Po"}, {"name": "Arno"}]', '{"a": 1, "b": 2}', '{"a": 1}', "[1]"]
)
async def test_what_can_be_no_value_of_the_schema_is_not_bent_into_one(answer: str):
    with pytest.raises(LLMError, match="is not what was asked for"):
        await generate(MockProvider([answer]), _QUESTION, schema=_SCHEMA, repairs=0)


async def test_a_strict_model_takes_dates_from_text():
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        day: date

    done = await generate(MockProvider(['{"day": "2026-11-22"}']), _QUESTION, schema=Strict)
    assert done.value.day == date(2026, 11, 22)


async def test_a_wrong_answer_is_shown_to_the_model_with_what_is_wrong():
    model = MockProvider(['{"rivers": [{"length": 0}]}', '{"rivers": [{"name": "Po"}]}'])
    done = await generate(model, _QUESTION, schema=Rivers)
    assert done.value == Rivers(rivers=[River(name="Po")])
    *_, shown, again = model.calls[1].messages
    assert shown == done.responses[0].message
    assert again.text == (
        "Your answer cannot be used:\n"
        "- rivers[0].name: Field required\n"
        "- rivers[0].length: Input should be greater than or equal to 1\n"
        "Answer again: the corrected JSON object and nothing else."
    )
    first, second = done.responses
    assert done.usage.input_tokens == first.usage.input_tokens + second.usage.input_tokens


async def test_a_chinese_conversation_is_corrected_in_chinese():
    model = MockProvider(["长江", '{"name": "长江"}'])
    await generate(model, _FRAGE, schema=_SCHEMA)
    assert model.calls[1].messages[-1].text == (
        "上面的回答无法使用：\n- There is no complete JSON object in it.\n"
        "请重新回答：只写改正后的 JSON 对象，不要写别的内容。"
    )


@pytest.mark.parametrize(("answer", "shown"), [("", "…"), ("x" * 9000, "x" * 4000 + "…")])
async def test_an_answer_without_text_or_end_is_shown_in_a_form_that_any_vendor_takes(
    answer: str, shown: str
):
    model = MockProvider([MockAnswer(answer, reasoning="hm"), '{"name": "Po"}'])
    await generate(model, _QUESTION, schema=_SCHEMA)
    message = model.calls[1].messages[-2]
    assert isinstance(message, AssistantMessage)
    assert message == AssistantMessage((TextPart(shown),), provider="mock", model="mock")


async def test_it_is_given_up_after_the_repairs():
    model = MockProvider(lambda _: '{"name": 5}')
    with pytest.raises(LLMError) as caught:
        await generate(model, _QUESTION, schema=_SCHEMA, repairs=2)
    assert len(model.calls) == 3
    assert caught.value.failure == "unreadable"
    assert caught.value.message == (
        "The answer of the model mock is not what was asked for (name: 5 is not of type 'string'). "
        'It begins: "{\\"name\\": 5}"'
    )


async def test_a_long_answer_is_told_by_its_beginning():
    with pytest.raises(LLMError) as caught:
        await generate(MockProvider(["诗" * 900]), _QUESTION, schema=_SCHEMA, repairs=0)
    assert f'It begins: "{"诗" * 200}…"' in caught.value.message


@pytest.mark.parametrize(
    ("finish", "failure", "match"),
    [
        ("length", "unreadable", "m-1 was cut off after 7 tokens"),
        ("too_long", "too_long", "the model's window is full"),
        ("refused", "refused", "refuses to answer"),
        ("paused", "unreadable", "is not what was asked for"),
    ],
)
async def test_an_answer_that_cannot_be_mended_is_not_asked_for_again(finish: str, failure: str, match: str):
    model = Scripted(_response('{"name": "P', finish=finish, usage=Usage(output_tokens=7)))
    with pytest.raises(LLMError, match=match) as caught:
        await generate(model, _QUESTION, schema=_SCHEMA)
    assert caught.value.failure == failure
    assert caught.value.advice


async def test_a_whole_answer_counts_though_its_end_was_cut_off():
    model = Scripted(_response('{"name": "Po"}\n\nAs you see,', finish="length"))
    assert (await generate(model, _QUESTION, schema=_SCHEMA)).value == {"name": "Po"}


async def test_usage_is_summed_and_costs_are_known_only_where_all_are():
    def answers(*costs: float | None) -> Scripted:
        usages = [Usage(10, 5, 2, 4, 1, cost=cost) for cost in costs]
        return Scripted(_response("?", usage=usages[0]), _response('{"name": "Po"}', usage=usages[1]))

    priced = (await generate(answers(0.5, 0.25), _QUESTION, schema=_SCHEMA)).usage
    assert priced == Usage(20, 10, 4, 8, 2, cost=0.75)
    assert (await generate(answers(0.5, None), _QUESTION, schema=_SCHEMA)).usage.cost is None


async def test_errors_of_the_provider_come_through():
    with pytest.raises(LLMError, match="no room"):
        await generate(MockProvider([LLMError("no room", failure="overloaded")]), _QUESTION, schema=_SCHEMA)


@pytest.mark.parametrize(
    "schema",
    [
        RootModel[list[str]],
        OutputSchema("list", {"type": "array"}),
        OutputSchema("wrong", {"type": "object", "required": 3}),
    ],
)
async def test_a_schema_that_no_vendor_takes_is_refused_before_the_model_is_asked(
    schema: type[BaseModel] | OutputSchema,
):
    model = MockProvider([])
    with pytest.raises(InvalidInputError):
        await generate(model, _QUESTION, schema=schema)
    assert model.calls == []


_T = TypeVar("_T")


class Page(BaseModel, Generic[_T]):
    items: list[_T]
    next: Page[_T] | None = None


async def test_the_name_of_a_schema_is_one_that_vendors_take():
    model = MockProvider(['{"items": [1], "next": {"items": []}}'])
    done = await generate(model, [], schema=Page[int])
    assert done.value.items == [1]
    output = model.calls[0].output
    assert output is not None
    assert output.name == "Page_int"


def test_options_are_those_of_a_chat():
    from loom_core.llm.structured import GenerateOptions

    assert GenerateOptions.__optional_keys__ < ChatOptions.__optional_keys__
