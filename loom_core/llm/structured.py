"""Structured output: generate a value of a schema, validate it, and let the model repair it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack, cast, overload

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from loom_core.cjk import is_chinese
from loom_core.errors import InvalidInputError, LLMError
from loom_core.llm.interface import Effort, LLMProvider, LLMResponse, OutputSchema, Usage
from loom_core.llm.json_schema.values import find_problems, readable_path, without_nulls
from loom_core.llm.message_reading import as_messages
from loom_core.llm.messages import AssistantMessage, Message, TextPart, UserMessage
from loom_core.llm.text import json_values

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import core_schema

    from loom_core.llm.messages import MessageLike

__all__ = ["GenerateOptions", "Generated", "generate", "model_schema", "read_value", "validate_model"]

_Value = TypeVar("_Value")
_Model = TypeVar("_Model", bound=BaseModel)

_MOST_PROBLEMS = 5
_BEGINNING = 200  # characters of a response in an error message
_LONGEST_SHOWN = 4000  # characters of its response that the model gets again for repair
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")

_REPAIR_PROMPT_ENGLISH = (
    "Your answer cannot be used:\n{problems}\nAnswer again: the corrected JSON object and nothing else."
)
_REPAIR_PROMPT_CHINESE = (
    "上面的回答无法使用：\n{problems}\n请重新回答：只写改正后的 JSON 对象，不要写别的内容。"
)


class GenerateOptions(TypedDict, total=False):
    """Options that `generate` passes to `LLMProvider.chat`; see `ChatRequest`."""

    model: str
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    effort: Effort | None
    extra: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Generated(Generic[_Value]):
    """A generated value.

    Attributes:
        value: the value, valid for the schema.
        responses: all responses; the last one has the value.
    """

    value: _Value
    responses: tuple[LLMResponse, ...]

    @property
    def usage(self) -> Usage:
        """Total usage of all responses; the cost is None if one of them is unknown."""
        return Usage.total(response.usage for response in self.responses)


@overload
async def generate(
    provider: LLMProvider,
    messages: Sequence[MessageLike],
    *,
    schema: type[_Model],
    repairs: int = 1,
    on_response: Callable[[LLMResponse], None] | None = None,
    **options: Unpack[GenerateOptions],
) -> Generated[_Model]: ...
@overload
async def generate(
    provider: LLMProvider,
    messages: Sequence[MessageLike],
    *,
    schema: OutputSchema,
    repairs: int = 1,
    on_response: Callable[[LLMResponse], None] | None = None,
    **options: Unpack[GenerateOptions],
) -> Generated[dict[str, Any]]: ...
async def generate(
    provider: LLMProvider,
    messages: Sequence[MessageLike],
    *,
    schema: type[BaseModel] | OutputSchema,
    repairs: int = 1,
    on_response: Callable[[LLMResponse], None] | None = None,
    **options: Unpack[GenerateOptions],
) -> Generated[Any]:
    """Generate a value of a schema as the response to a conversation.

    The provider uses its vendor's best JSON mode. The response is always validated, as many models follow a
    schema only roughly; an invalid one goes back to the model with its errors.

    Args:
        provider: the model.
        messages: the conversation with the task, oldest first.
        schema: a Pydantic model or a JSON Schema; its values are objects.
        repairs: maximum number of repair requests.
        on_response: called with each response, valid or not.
        options: see `GenerateOptions`.

    Raises:
        LLMError: as for `LLMProvider.chat`; with failure `unreadable` if no response was valid, or the last
            one was cut off by `max_tokens`; with failure `refused` if the model refuses.
        InvalidInputError: a message or the schema is invalid.
    """
    if isinstance(schema, OutputSchema):
        output, check = schema, _by_schema(schema)
    else:
        output, check = _schema_of(schema), _by_model(schema)
    if output.schema.get("type") != "object" and "$ref" not in output.schema:
        raise InvalidInputError(
            f"The values of the schema {output.name!r} are not objects; vendors accept only objects.",
            advice="Wrap the value in a property of an object.",
        )
    conversation = as_messages(messages)
    responses: list[LLMResponse] = []
    while True:
        response = await provider.chat(conversation, **options, output=output)
        responses.append(response)
        if on_response is not None:
            on_response(response)
        value, wrong = _read(response.content, output, check)
        if not wrong:
            return Generated(value, tuple(responses))
        if response.finish not in {"stop", "tool_calls", "other"} or len(responses) > repairs:
            raise _no_value_error(provider, response, wrong)
        chinese = is_chinese(conversation[0].text) if conversation else False
        conversation = (*conversation, *_repair_messages(response, wrong, chinese=chinese))


def read_value(answer: str, output: OutputSchema) -> tuple[dict[str, Any] | None, list[str]]:
    """Parse a value of a schema from a response, for callers that send the request themselves.

    Returns:
        The value; or None, and the validation errors, a line each.

    Raises:
        InvalidInputError: the schema is invalid.
    """
    return _read(answer, output, _by_schema(output))


def validate_model(value: object, model: type[_Model]) -> tuple[_Model | None, list[str]]:
    """Validate a JSON value with a Pydantic model and its validators.

    Returns:
        The model; or None, and the validation errors, a line each.
    """
    try:
        # As JSON: it allows texts for dates and the like, also in strict models.
        return model.model_validate_json(json.dumps(value)), []
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return None, [f"{readable_path(each['loc'])}: {each['msg']}" for each in found[:_MOST_PROBLEMS]]


_Check = Callable[[object], "tuple[Any, list[str]]"]
"""Validator: returns the converted value and its errors."""


def _by_schema(schema: OutputSchema) -> _Check:
    find_problems({}, schema.schema)  # an invalid schema fails before the request

    def check(value: object) -> tuple[object, list[str]]:
        return value, find_problems(value, schema.schema, most=_MOST_PROBLEMS)

    return check


def _by_model(model: type[BaseModel]) -> _Check:
    return lambda value: validate_model(value, model)


def _schema_of(model: type[BaseModel]) -> OutputSchema:
    schema = model_schema(model)
    name = _NO_NAME.sub("_", model.__name__).strip("_")[:64] or "answer"
    return OutputSchema(name, schema, str(schema.get("description", "")))


def _read(answer: str, output: OutputSchema, check: _Check) -> tuple[Any, list[str]]:
    """Return the first valid value in a response, or the errors of the most likely one."""
    wrong: list[str] = []
    latest = json_values(answer)[::-1]  # the last value is the final one
    for value in sorted(latest, key=lambda value: value in ({}, [])):  # empty ones are mostly prose
        for reading in _readings(value, output.schema):
            checked, found = check(without_nulls(reading, output.schema))
            if not found:
                return checked, []
            wrong = wrong or found
    return None, wrong or ["There is no complete JSON object in it."]


def _readings(value: object, schema: Mapping[str, Any]) -> Iterator[object]:
    """Yield readings of a value: itself, unwrapped, or wrapped in the expected object."""
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
    """Return the model's response and a request to repair it."""
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
            advice = "Use a stronger model, or a simpler schema."
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


class _UntitledSchema(GenerateJsonSchema):
    """Generator without derived titles."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        if found.get("title") == schema["cls"].__name__:
            del found["title"]
        return found


def model_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a model's values, as a language model gets it.

    A title that repeats the name of a field or a class says nothing, and costs about a fifth of the tokens.
    Titles that the model's author has given stay.
    """
    return model.model_json_schema(schema_generator=_UntitledSchema)
