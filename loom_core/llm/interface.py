"""Interface of language models: requests, responses and the provider base class. No I/O here."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypedDict, Unpack, cast, get_args

from loom_core.errors import InvalidInputError
from loom_core.llm.json_body import encode_body, json_body
from loom_core.llm.message_reading import as_messages
from loom_core.llm.messages import AssistantMessage, Message, MessageLike, TextPart, ToolCallPart

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "ChatOptions",
    "ChatRequest",
    "Effort",
    "FinishReason",
    "LLMProvider",
    "LLMResponse",
    "OutputSchema",
    "StreamChunk",
    "ToolCallDelta",
    "ToolChoice",
    "ToolLike",
    "ToolSpec",
    "Usage",
    "call_delta",
]

_LONGEST_SHOWN = 200

Effort = Literal["off", "low", "medium", "high", "max"]
"""Reasoning effort. Each provider maps it to its vendor's parameter; a vendor with fewer steps gets the next
one it has, and a vendor that cannot turn reasoning off gets the lowest."""

ToolChoice = str
"""`auto`: the model decides; `none`: no tool; `required`: some tool; else the name of a tool. It is
best-effort: what the vendor does not support is dropped, and the response shows the outcome."""

FinishReason = Literal["stop", "length", "tool_calls", "refused", "paused", "too_long", "other"]
"""Why a response ended: complete, token limit reached, tool calls, refusal or filter, paused until the next
request, context window full, or unknown."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that a model may call.

    Attributes:
        name: `[A-Za-z0-9_-]`, at most 64 characters: what all vendors accept.
        description: when to call it, and what it returns.
        parameters: a JSON Schema of its arguments, of type `object`; adapted to the vendor's dialect. A copy
            is kept.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})

    def __post_init__(self) -> None:
        """Validate the schema.

        Raises:
            InvalidInputError: it has values outside of JSON, or is nested too deeply.
        """
        object.__setattr__(self, "parameters", json.loads(encode_body(self.parameters)))

    @classmethod
    def of(cls, given: ToolLike) -> ToolSpec:
        """Create a tool from a mapping; return a `ToolSpec` as it is.

        Args:
            given: `{"name": …, "description": …, "parameters": …}`; OpenAI's form, `{"type":
                "function", "function": {…}}`; or Anthropic's, with `input_schema`. `strict` is dropped: no
                tool is sent with it.

        Raises:
            InvalidInputError: it is no such mapping, or its schema cannot be sent.
        """
        if isinstance(given, ToolSpec):
            return given
        if not isinstance(cast("object", given), Mapping):
            raise _no_tool(given, "it is neither a `ToolSpec` nor a mapping")
        fields: dict[str, Any] = {**given}
        kind = fields.pop("type", "function")
        if kind != "function":
            raise _no_tool(given, f"tools of type {kind!r} are the vendor's own; put them into `extra`")
        if isinstance(inner := fields.pop("function", None), Mapping):
            fields |= cast("Mapping[str, Any]", inner)
        fields.pop("strict", None)
        name: object = fields.pop("name", None)
        description: object = fields.pop("description", None)
        parameters: object = fields.pop("parameters", None) or fields.pop("input_schema", None)
        if fields:
            raise _no_tool(given, f"it has the unknown field {next(iter(fields))!r}")
        if not isinstance(name, str) or not name:
            raise _no_tool(given, "it has no `name`")
        if not isinstance(description, str | None) or not isinstance(parameters, Mapping | None):
            raise _no_tool(given, "its description is not a string, or its parameters are not a JSON Schema")
        if not parameters:
            return cls(name, description or "")
        return cls(name, description or "", cast("Mapping[str, Any]", parameters))


ToolLike: TypeAlias = ToolSpec | Mapping[str, Any]
"""A tool, or a mapping of one of the well-known forms; see `ToolSpec.of`."""


def _no_tool(given: object, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{_shorten(given)} cannot be a tool of the request: {why}.",
        advice='Write {"name": …, "description": …, "parameters": {…}}, the parameters as a JSON Schema; '
        "of a `Tool` give its `spec()`.",
    )


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """Schema of a structured response. See `structured.generate`.

    Attributes:
        name: its name, such as `entities`; vendors may get it as the name of a tool.
        schema: a JSON Schema, of type `object`. A copy is kept.
        description: its purpose.
        is_described: whether the messages describe its form already: then a vendor that does not enforce it
            is not sent the schema in words.
    """

    name: str
    schema: Mapping[str, Any]
    description: str = ""
    is_described: bool = False

    def __post_init__(self) -> None:
        """Validate the schema; raises as `ToolSpec` does."""
        object.__setattr__(self, "schema", json.loads(encode_body(self.schema)))


@dataclass(frozen=True, slots=True)
class Usage:
    """Token usage and cost of a response.

    Attributes:
        input_tokens: tokens of the conversation, cache reads and writes included.
        output_tokens: tokens of the response, reasoning included.
        reasoning_tokens: those of the output for reasoning; 0 also if the vendor does not report them.
        cache_read_tokens: those of the input read from the vendor's cache.
        cache_write_tokens: those of the input written to the vendor's cache.
        estimated: the vendor reported nothing: the numbers are Loom's estimate.
        cost: US dollars, or None if the price is unknown.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    estimated: bool = False
    cost: float | None = None

    @classmethod
    def total(cls, usages: Iterable[Usage]) -> Usage:
        """Sum up several usages; the cost is None if one of them is unknown."""
        each = list(usages)
        costs = [usage.cost for usage in each if usage.cost is not None]
        return cls(
            input_tokens=sum(usage.input_tokens for usage in each),
            output_tokens=sum(usage.output_tokens for usage in each),
            reasoning_tokens=sum(usage.reasoning_tokens for usage in each),
            cache_read_tokens=sum(usage.cache_read_tokens for usage in each),
            cache_write_tokens=sum(usage.cache_write_tokens for usage in each),
            estimated=any(usage.estimated for usage in each),
            cost=sum(costs) if len(costs) == len(each) else None,
        )


@dataclass(frozen=True, slots=True)
class LLMResponse:
    """A response of a model.

    Attributes:
        message: the message, to be appended to the conversation as it is.
        finish: why it ended.
        usage: its usage.
    """

    message: AssistantMessage
    finish: FinishReason = "stop"
    usage: Usage = Usage()

    @classmethod
    def of_text(cls, text: str, *, provider: str = "", model: str = "") -> LLMResponse:
        """Create a response from plain text."""
        return cls(AssistantMessage((TextPart(text),) if text else (), provider=provider, model=model))

    @property
    def content(self) -> str:
        """The text of the response, without reasoning and tool calls."""
        return self.message.text

    @property
    def model(self) -> str:
        """The model that gave it, or empty if unknown."""
        return self.message.model


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A delta of a tool call.

    Attributes:
        index: position of the call in the response, from 0.
        id: with the first delta of a call, else empty.
        name: with the first delta of a call, else empty.
        arguments: the next piece of their JSON text.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """A chunk of a streamed response.

    Attributes:
        kind: which of the others is set. The last chunk, and no other, is `done`.
        text: the next piece of the text or of the reasoning, never empty for these.
        tool_call: the next delta of a tool call.
        usage: the usage so far.
        response: the complete response.
    """

    kind: Literal["text", "reasoning", "tool_call", "usage", "done"]
    text: str = ""
    tool_call: ToolCallDelta | None = None
    usage: Usage | None = None
    response: LLMResponse | None = None


class ChatOptions(TypedDict, total=False):
    """Options of `LLMProvider.chat`; see `ChatRequest`."""

    tools: Sequence[ToolLike] | None
    tool_choice: ToolChoice | Mapping[str, Any]
    model: str
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    effort: Effort | None
    output: OutputSchema | None
    stop: Sequence[str] | str
    extra: Mapping[str, Any]


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


_EXPECTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "tool_choice": (
        lambda value: isinstance(value, str) and value != "",
        "`auto`, `none`, `required`, or the name of a tool",
    ),
    "model": (lambda value: isinstance(value, str), "the name of a model"),
    "max_tokens": (
        lambda value: value is None or (isinstance(value, int) and _is_number(value) and value > 0),
        "a whole number above zero, or None for the vendor's own limit",
    ),
    "temperature": (
        lambda value: value is None or (_is_number(value) and value >= 0),
        "a number from 0 on, or None for the vendor's own",
    ),
    "top_p": (
        lambda value: value is None or (_is_number(value) and 0 < value <= 1),
        "a number above 0 and up to 1, or None for the vendor's own",
    ),
    "effort": (
        lambda value: value is None or value in get_args(Effort),
        f"one of: {', '.join(get_args(Effort))}",
    ),
    "output": (
        lambda value: value is None or isinstance(value, OutputSchema),
        "an `OutputSchema`; `structured.generate` takes a Pydantic model",
    ),
    "extra": (lambda value: isinstance(value, Mapping), "a mapping of fields of the request"),
}
"""Check of each request option, and the expected value for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One request to a model.

    Attributes:
        messages: the conversation, oldest first.
        tools: the tools that the model may call.
        tool_choice: see `ToolChoice`.
        model: another model of the same vendor; empty for the provider's own.
        max_tokens: limit of the response in tokens, reasoning included; None for the vendor's default.
        temperature: sampling temperature; None for the vendor's default. Dropped if the vendor does not
            support it.
        top_p: nucleus sampling, up to 1; None for the vendor's default. Dropped where `temperature` would be.
        effort: see `Effort`; None for the vendor's default.
        output: schema of the response's text.
        stop: stop sequences, at most four.
        extra: further fields for the request body, sent as they are.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    model: str = ""
    max_tokens: int | None = 4096
    temperature: float | None = None
    top_p: float | None = None
    effort: Effort | None = None
    output: OutputSchema | None = None
    stop: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def of(cls, messages: Sequence[MessageLike], options: ChatOptions) -> ChatRequest:
        """Create a request from the arguments of `LLMProvider.chat`.

        Raises:
            InvalidInputError: a message, a tool or an option is invalid, or there is no such option.
        """
        read: dict[str, Any] = {name: _read_option(name, value) for name, value in options.items()}
        return cls(messages=as_messages(messages), **read)


def _read_option(name: str, value: object) -> object:
    """Convert an option of a request to the form of `ChatRequest`.

    Raises:
        InvalidInputError: there is no such option, or its value is invalid.
    """
    if name == "tools":
        return tuple(map(ToolSpec.of, _read_list(name, value, of="tools")))
    if name == "stop":
        texts = (value,) if isinstance(value, str) else _read_list(name, value, of="texts")
        if not all(isinstance(text, str) for text in texts):
            raise _wrong_option(name, value, "a list of texts")
        return tuple(texts)
    if name not in _EXPECTED:
        near = get_close_matches(name, known := sorted(ChatOptions.__annotations__), n=1)
        meant = f"Did you mean {near[0]!r}? " if near else f"There are: {', '.join(known)}. "
        raise InvalidInputError(
            f"A request to a model has no option {name!r}.",
            advice=f"{meant}A field of the vendor's own goes into `extra={{{name!r}: …}}`.",
        )
    if name == "tool_choice":
        value = _read_tool_choice(value)
    fits, expected = _EXPECTED[name]
    if not fits(value):
        raise _wrong_option(name, value, expected)
    return value


def _read_tool_choice(value: object) -> object:
    """Return the tool's name from OpenAI's form of the choice; anything else as it is."""
    match value:
        case {"type": "function", "function": {"name": str(name)}}:
            return name
        case _:
            return value


def _read_list(name: str, value: object, *, of: str) -> Sequence[Any]:
    if value is None:
        return ()
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise _wrong_option(name, cast("object", value), f"a list of {of}")
    return list(cast("Iterable[Any]", value))


def _wrong_option(name: str, value: object, expected: str) -> InvalidInputError:
    return InvalidInputError(f"`{name}` cannot be {_shorten(value)}.", advice=f"Give {expected}.")


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


class LLMProvider(ABC):
    """Base class of language models."""

    @property
    def name(self) -> str:
        """Name of the provider, such as `deepseek`."""
        return type(self).__name__

    @property
    def model(self) -> str:
        """The model, or empty if unknown."""
        return ""

    @property
    def takes_images(self) -> bool:
        """Whether users may send images; also where that is unknown."""
        return True

    @abstractmethod
    async def chat(self, messages: Sequence[MessageLike], **options: Unpack[ChatOptions]) -> LLMResponse:
        """Answer a conversation.

        Args:
            messages: the conversation, oldest first.
            options: see `ChatRequest`.

        Raises:
            LLMError: the model is unreachable, refuses, or sends an unreadable response.
            InvalidInputError: a message is invalid.
        """

    async def chat_stream(
        self, messages: Sequence[MessageLike], **options: Unpack[ChatOptions]
    ) -> AsyncGenerator[StreamChunk]:
        """Stream the response to a conversation.

        Close the iterator (`contextlib.aclosing`) if you leave it early: that stops generation at the vendor,
        too. This default implementation yields the complete response as one chunk.

        Args:
            messages: as for `chat`.
            options: as for `chat`.

        Raises:
            LLMError: as for `chat`; with failure `interrupted` if chunks were emitted before.
            InvalidInputError: a message is invalid.
        """
        response = await self.chat(messages, **options)
        if response.message.reasoning:
            yield StreamChunk("reasoning", text=response.message.reasoning)
        if response.content:
            yield StreamChunk("text", text=response.content)
        for index, call in enumerate(response.message.tool_calls):
            yield StreamChunk("tool_call", tool_call=call_delta(index, call))
        yield StreamChunk("usage", usage=response.usage)
        yield StreamChunk("done", response=response)

    def cost(self, usage: Usage) -> float | None:
        """Return the cost of a usage in US dollars, or None if the price is unknown."""
        return None

    def window(self) -> int | None:
        """Return the context window in tokens, conversation and response together, or None if it is unknown.

        The first call may load price lists, which takes most of a second: call it in a thread.
        """
        return None

    def problem(self) -> str:
        """Return why it is not usable here, such as a missing key, and what to do; or an empty text.

        It loads nothing and reads at most the keyring, which may take a while: call it in a thread.
        """
        return ""

    async def aclose(self) -> None:  # noqa: B027 - most have nothing to close
        """Close connections. The provider may be used again: it opens new ones."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def call_delta(index: int, call: ToolCallPart) -> ToolCallDelta:
    """Return a complete tool call as one delta."""
    arguments = call.unreadable or json.dumps(json_body(call.arguments), ensure_ascii=False)
    return ToolCallDelta(index, call.id, call.name, arguments)
