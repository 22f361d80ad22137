"""What a language model is to the rest of Loom. No I/O here."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, Unpack, get_args

from loom_core.errors import InvalidInputError
from loom_core.llm.json_body import encoded, json_body
from loom_core.llm.message_reading import as_messages
from loom_core.llm.messages import AssistantMessage, Message, MessageLike, TextPart, ToolCallPart

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
    "ToolSpec",
    "Usage",
    "whole_call",
]

Effort = Literal["off", "low", "medium", "high", "max"]
"""How much a model is to think before it answers. Each provider says it as its vendor wants it said; one that
knows fewer steps takes the next one it has, and one that cannot leave its thinking takes the lowest."""

ToolChoice = str
"""`auto`: the model decides; `none`: no tool; `required`: any tool, but one; else the name of a tool. What a
vendor does not take is left out: it is a wish, and what came back says whether it was granted."""

FinishReason = Literal["stop", "length", "tool_calls", "refused", "paused", "too_long", "other"]
"""Why an answer ended: by itself, at its limit of tokens, to have tools called, by a refusal or a filter, to
be gone on with by asking again, as the model's window was full, or for a reason that is not known."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that a model may call.

    Attributes:
        name: `[A-Za-z0-9_-]`, at most 64 characters: what all vendors take.
        description: when to call it, and what it gives.
        parameters: a JSON Schema of its arguments, of type `object`; adapted to what the vendor takes of it.
            A copy is kept.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})

    def __post_init__(self) -> None:
        """Read the schema.

        Raises:
            InvalidInputError: it holds what JSON cannot, or is nested too deeply.
        """
        object.__setattr__(self, "parameters", json.loads(encoded(self.parameters)))


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """What an answer has to be: a JSON value of a schema. See `structured.generate`.

    Attributes:
        name: what it is, such as `entities`; for vendors as the name of a tool.
        schema: a JSON Schema, of type `object`. A copy is kept.
        description: what it is for.
    """

    name: str
    schema: Mapping[str, Any]
    description: str = ""

    def __post_init__(self) -> None:
        """Read the schema; raises as `ToolSpec` does."""
        object.__setattr__(self, "schema", json.loads(encoded(self.schema)))


@dataclass(frozen=True, slots=True)
class Usage:
    """What an answer took.

    Attributes:
        input_tokens: of the conversation, with all that was read from a cache or written to it.
        output_tokens: of the answer, its reasoning included.
        reasoning_tokens: of these, for reasoning; 0 also where the vendor does not say.
        cache_read_tokens: of the input, read from the vendor's cache.
        cache_write_tokens: of the input, written to the vendor's cache.
        estimated: the vendor did not say: the numbers are Loom's estimate.
        cost: US dollars, or None where the price is not known.
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
        """What several answers took together; the cost is None if that of one is not known."""
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
    """What a model answered.

    Attributes:
        message: the answer, to be put behind the conversation as it is.
        finish: why it ended.
        usage: what it took.
    """

    message: AssistantMessage
    finish: FinishReason = "stop"
    usage: Usage = Usage()

    @classmethod
    def of_text(cls, text: str, *, provider: str = "", model: str = "") -> LLMResponse:
        """An answer that is a text and nothing else."""
        return cls(AssistantMessage((TextPart(text),) if text else (), provider=provider, model=model))

    @property
    def content(self) -> str:
        """The text of the answer, without reasoning and tool calls."""
        return self.message.text

    @property
    def model(self) -> str:
        """Which model gave it, or empty where that is not known."""
        return self.message.model


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call.

    Attributes:
        index: which call of the answer, from 0.
        id: with the first piece of a call, else empty.
        name: with the first piece of a call, else empty.
        arguments: what comes next of their JSON text.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """What comes next of an answer.

    Attributes:
        kind: which of the others is set. The last chunk is `done`, and there is no other of that kind.
        text: what comes next of the text or of the reasoning, never empty for these.
        tool_call: what comes next of a tool call.
        usage: what the answer has taken so far.
        response: the whole answer.
    """

    kind: Literal["text", "reasoning", "tool_call", "usage", "done"]
    text: str = ""
    tool_call: ToolCallDelta | None = None
    usage: Usage | None = None
    response: LLMResponse | None = None


class ChatOptions(TypedDict, total=False):
    """What `LLMProvider.chat` takes besides the conversation; see `ChatRequest`."""

    tools: Sequence[ToolSpec]
    tool_choice: ToolChoice
    max_tokens: int | None
    temperature: float | None
    effort: Effort | None
    output: OutputSchema | None
    stop: Sequence[str]
    extra: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One request to a model.

    Attributes:
        messages: the conversation, oldest first.
        tools: what the model may call.
        tool_choice: see `ToolChoice`.
        max_tokens: limit of the answer in the model's tokens, reasoning included; None for the vendor's own.
        temperature: 0 for the likeliest answer, higher for more varied ones; None for the vendor's own. It is
            left out where the vendor refuses it.
        effort: see `Effort`; None for the vendor's own.
        output: what the answer's text has to be.
        stop: texts that end the answer where the model would write them, at most four.
        extra: fields that are put into the body of the request as they are.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    max_tokens: int | None = 4096
    temperature: float | None = None
    effort: Effort | None = None
    output: OutputSchema | None = None
    stop: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def of(cls, messages: Sequence[MessageLike], options: ChatOptions) -> ChatRequest:
        """A request from the arguments of `LLMProvider.chat`.

        Raises:
            InvalidInputError: a message cannot be used, or there is no such effort.
        """
        given: dict[str, Any] = {**options}
        if given.get("effort") not in {None, *get_args(Effort)}:
            raise InvalidInputError(
                f"There is no effort {given['effort']!r}.",
                advice=f"Choose one of: {', '.join(get_args(Effort))}.",
            )
        for name in ("tools", "stop"):
            if name in given:
                given[name] = tuple(given[name] or ())
        return cls(messages=as_messages(messages), **given)


class LLMProvider(ABC):
    """A language model that answers a conversation."""

    @property
    def name(self) -> str:
        """Which provider it is, such as `deepseek`."""
        return type(self).__name__

    @property
    def model(self) -> str:
        """Which model it asks, or empty where that is not known."""
        return ""

    @abstractmethod
    async def chat(self, messages: Sequence[MessageLike], **options: Unpack[ChatOptions]) -> LLMResponse:
        """Answer a conversation.

        Args:
            messages: the conversation, oldest first.
            options: see `ChatRequest`.

        Raises:
            LLMError: the model cannot be reached, refuses, or answers with nothing that can be read.
            InvalidInputError: a message cannot be used.
        """

    async def chat_stream(
        self, messages: Sequence[MessageLike], **options: Unpack[ChatOptions]
    ) -> AsyncGenerator[StreamChunk]:
        """Answer a conversation piece by piece, as the model writes.

        Close the iterator (`contextlib.aclosing`) where it is left before its end: that ends the answer at
        the vendor, too. Here the whole answer comes as one piece.

        Args:
            messages: as for `chat`.
            options: as for `chat`.

        Raises:
            LLMError: as for `chat`; of failure `interrupted` where pieces were handed on before.
            InvalidInputError: a message cannot be used.
        """
        response = await self.chat(messages, **options)
        if response.message.reasoning:
            yield StreamChunk("reasoning", text=response.message.reasoning)
        if response.content:
            yield StreamChunk("text", text=response.content)
        for index, call in enumerate(response.message.tool_calls):
            yield StreamChunk("tool_call", tool_call=whole_call(index, call))
        yield StreamChunk("usage", usage=response.usage)
        yield StreamChunk("done", response=response)

    def cost(self, usage: Usage) -> float | None:
        """US dollars for an answer that takes so much, or None where the price is not known."""
        return None

    def window(self) -> int | None:
        """How many tokens a conversation and its answer may have together, or None where that is not known.

        The first call may load lists, which takes most of a second: make it in a thread.
        """
        return None

    def problem(self) -> str:
        """Why it cannot be asked as things are here, such as a missing key, and what to do; or empty.

        Nothing is loaded and nobody is asked but the keyring, which may take a while: call it in a thread.
        """
        return ""

    async def aclose(self) -> None:  # noqa: B027 - most have nothing to close
        """Close connections. The provider may be used again: it opens new ones."""


def whole_call(index: int, call: ToolCallPart) -> ToolCallDelta:
    """A whole tool call as one piece."""
    arguments = call.unreadable or json.dumps(json_body(call.arguments), ensure_ascii=False)
    return ToolCallDelta(index, call.id, call.name, arguments)
