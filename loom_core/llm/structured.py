"""Answers that are values of a schema: asked for, read, checked, and mended once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack, cast, overload

from pydantic import BaseModel, ValidationError

from loom_core.cjk import is_chinese
from loom_core.errors import InvalidInputError, LLMError
from loom_core.llm.interface import Effort, LLMProvider, LLMResponse, OutputSchema, Usage
from loom_core.llm.json_schema.values import find_problems, readable_path, without_nulls
from loom_core.llm.message_reading import as_messages
from loom_core.llm.messages import AssistantMessage, Message, TextPart, UserMessage
from loom_core.llm.text import json_values

if TYPE_CHECKING:
    from loom_core.llm.messages import MessageLike

__all__ = ["GenerateOptions", "Generated", "generate", "read_value"]

_Value = TypeVar("_Value")
_Model = TypeVar("_Model", bound=BaseModel)

_MOST_PROBLEMS = 5
_BEGINNING = 200  # characters of an answer that a message shows
_LONGEST_SHOWN = 4000  # characters of its answer that a model is shown again
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")

_REPAIR_PROMPT_ENGLISH = (
    "Your answer cannot be used:\n{problems}\nAnswer again: the corrected JSON object and nothing else."
)
_REPAIR_PROMPT_CHINESE = (
    "上面的回答无法使用：\n{problems}\n请重新回答：只写改正后的 JSON 对象，不要写别的内容。"
)


class GenerateOptions(TypedDict, total=False):
    """What `generate` hands on to `LLMProvider.chat`; see `ChatRequest`."""

    model: str
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    effort: Effort | None
    extra: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Generated(Generic[_Value]):
    """A value that a model gave.

    Attributes:
        value: the value, which is one of the schema.
        responses: the answers that it took, the last one holding the value.
    """

    value: _Value
    responses: tuple[LLMResponse, ...]

    @property
    def usage(self) -> Usage:
        """What all answers took together; the cost is None if that of one is not known."""
        return Usage.total(response.usage for response in self.responses)


@overload
async def generate(
    provider: LLMProvider,
    messages: Sequence[MessageLike],
    *,
    schema: type[_Model],
    repairs: int = 1,
    **options: Unpack[GenerateOptions],
) -> Generated[_Model]: ...
@overload
async def generate(
    provider: LLMProvider,
    messages: Sequence[MessageLike],
    *,
    schema: OutputSchema,
    repairs: int = 1,
    **options: Unpack[GenerateOptions],
) -> Generated[dict[str, Any]]: ...
async def generate(
    provider: LLMProvider,
    messages: Sequence[MessageLike],
    *,
    schema: type[BaseModel] | OutputSchema,
    repairs: int = 1,
    **options: Unpack[GenerateOptions],
) -> Generated[Any]:
    """Have a conversation answered by a value of a schema.

    The provider asks for it in the way its vendor knows best. The answer is checked in any case, as many
    models keep to a schema only by and large; one that fails is shown to the model with what is wrong.

    Args:
        provider: the model.
        messages: the conversation, oldest first, which says what is wanted.
        schema: a Pydantic model, or a JSON Schema, whose values are objects.
        repairs: so often the model may correct itself.
        options: see `GenerateOptions`.

    Raises:
        LLMError: as for `LLMProvider.chat`; of failure `unreadable` where no answer was a value of the
            schema, or the last one was cut off by `max_tokens`; of failure `refused` where the model refuses.
        InvalidInputError: a message or the schema cannot be used.
    """
    if isinstance(schema, OutputSchema):
        output, check = schema, _by_schema(schema)
    else:
        output, check = _schema_of(schema), _by_model(schema)
    if output.schema.get("type") != "object" and "$ref" not in output.schema:
        raise InvalidInputError(
            f"The values of the schema {output.name!r} are no objects, which vendors do not take.",
            advice="Make what is wanted a property of an object.",
        )
    conversation = as_messages(messages)
    responses: list[LLMResponse] = []
    while True:
        response = await provider.chat(conversation, **options, output=output)
        responses.append(response)
        value, wrong = _read(response.content, output, check)
        if not wrong:
            return Generated(value, tuple(responses))
        if response.finish not in {"stop", "tool_calls", "other"} or len(responses) > repairs:
            raise _no_value_error(provider, response, wrong)
        chinese = is_chinese(conversation[0].text) if conversation else False
        conversation = (*conversation, *_repair_messages(response, wrong, chinese=chinese))


def read_value(answer: str, output: OutputSchema) -> tuple[dict[str, Any] | None, list[str]]:
    """The value of a schema that an answer holds, for who asks the model in ways of their own.

    Returns:
        The value; or None, and what is wrong with the answer, a line each.

    Raises:
        InvalidInputError: the schema cannot be used.
    """
    return _read(answer, output, _by_schema(output))


_Check = Callable[[object], "tuple[Any, list[str]]"]
"""The value as it is wanted, and what is wrong with it."""


def _by_schema(schema: OutputSchema) -> _Check:
    find_problems({}, schema.schema)  # a wrong schema is found before the model is asked

    def check(value: object) -> tuple[object, list[str]]:
        return value, find_problems(value, schema.schema, most=_MOST_PROBLEMS)

    return check


def _by_model(model: type[BaseModel]) -> _Check:
    def check(value: object) -> tuple[object, list[str]]:
        try:
            # As JSON, for that allows dates and the like to be texts, also in strict models.
            return model.model_validate_json(json.dumps(value)), []
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            return None, [f"{readable_path(each['loc'])}: {each['msg']}" for each in found[:_MOST_PROBLEMS]]

    return check


def _schema_of(model: type[BaseModel]) -> OutputSchema:
    schema = model.model_json_schema()
    name = _NO_NAME.sub("_", model.__name__).strip("_")[:64] or "answer"
    return OutputSchema(name, schema, str(schema.get("description", "")))


def _read(answer: str, output: OutputSchema, check: _Check) -> tuple[Any, list[str]]:
    """A value in an answer with which nothing is wrong, or what is wrong with the one that was meant."""
    wrong: list[str] = []
    latest = json_values(answer)[::-1]  # the last one is the one that was settled on
    for value in sorted(latest, key=lambda value: value in ({}, [])):  # empty ones are mere words, mostly
        for reading in _readings(value, output.schema):
            checked, found = check(without_nulls(reading, output.schema))
            if not found:
                return checked, []
            wrong = wrong or found
    return None, wrong or ["There is no complete JSON object in it."]


def _readings(value: object, schema: Mapping[str, Any]) -> Iterator[object]:
    """What a value may be meant as: itself, what it is wrapped around, or what belongs around it."""
    yield value
    properties = cast("Mapping[str, Any]", schema.get("properties", {}))
    if isinstance(value, list):
        elements = cast("list[object]", value)
        if len(elements) == 1:
            yield elements[0]
        if len(properties) == 1:
            yield {next(iter(properties)): elements}
    elif isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        if len(members) == 1:
            yield next(iter(members.values()))


def _repair_messages(response: LLMResponse, wrong: list[str], *, chinese: bool) -> tuple[Message, Message]:
    """The model's answer, and what is wrong with it."""
    message = response.message
    if not message.text or len(message.text) > _LONGEST_SHOWN:
        shown = f"{message.text[:_LONGEST_SHOWN]}…"
        message = AssistantMessage((TextPart(shown),), provider=message.provider, model=message.model)
    template = _REPAIR_PROMPT_CHINESE if chinese else _REPAIR_PROMPT_ENGLISH
    listed = "\n".join(f"- {problem}" for problem in wrong)
    return message, UserMessage((TextPart(template.format(problems=listed)),))


def _no_value_error(provider: LLMProvider, response: LLMResponse, wrong: list[str]) -> LLMError:
    who = response.model or provider.model or provider.name
    match response.finish:
        case "refused":
            return LLMError(
                f"The model {who} refuses to answer: {_beginning(response)}",
                advice="Ask differently, or ask another model.",
                failure="refused",
                provider=provider.name,
            )
        case "length":
            what = f"was cut off after {response.usage.output_tokens} tokens"
            advice = "Allow more with `max_tokens`, think less with `effort`, or ask for less at once."
        case "too_long":
            what, advice = "was cut off as the model's window is full", "Ask for less at once."
        case _:
            what = f"is not what was asked for ({'; '.join(wrong)})"
            advice = "Ask a stronger model, or for a simpler form."
    return LLMError(
        f"The answer of the model {who} {what}. It begins: {_beginning(response)}",
        advice=advice,
        failure="too_long" if response.finish == "too_long" else "unreadable",
        provider=provider.name,
    )


def _beginning(response: LLMResponse) -> str:
    text = response.content.strip()
    shown = text if len(text) <= _BEGINNING else f"{text[:_BEGINNING]}…"
    return json.dumps(shown, ensure_ascii=False)
