"""What a tool is to the rest of Loom. No I/O here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from loom_core.llm.interface import ToolSpec
from loom_core.llm.messages import ImagePart, TextPart, ToolMessage

__all__ = [
    "Answer",
    "AskFunction",
    "CallContext",
    "JsonValue",
    "ProgressFunction",
    "Question",
    "Tool",
    "ToolAnnotations",
    "ToolOutput",
]

JsonValue: TypeAlias = (
    "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"  # refers to itself
)
"""Anything that JSON can say."""


@dataclass(frozen=True, slots=True)
class ToolAnnotations:
    """What calling a tool may do. The defaults are the worst case: nothing is known of it.

    Attributes:
        read_only: it changes nothing.
        destructive: it may remove or overwrite; means nothing where it is read-only.
        idempotent: the same call twice does what it does once.
        open_world: it reaches beyond a closed set of things, such as into the web.
    """

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True

    @property
    def repeatable(self) -> bool:
        """Whether a call of which it is not known if it ran may be made again."""
        return self.read_only or self.idempotent


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool answers.

    Attributes:
        text: what a model reads; it holds every fact.
        structured: the same as data, or None.
        is_error: the call failed, and the text says why and what to do.
        parts: what models can see besides: they follow the text.
        metadata: what programs want to know of the call and models need not read.
    """

    text: str
    structured: JsonValue = None
    is_error: bool = False
    parts: tuple[ImagePart, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def message(self, call_id: str) -> ToolMessage:
        """The output as the answer to a model's tool call."""
        texts = (TextPart(self.text),) if self.text or not self.parts else ()
        return ToolMessage(call_id, (*texts, *self.parts), failed=self.is_error)


@dataclass(frozen=True, slots=True)
class Question:
    """Something that a tool has to know from a person while it runs.

    Attributes:
        text: the question.
        schema: JSON Schema of the answer's content: an object with plain properties; empty where `url` is
            given.
        url: where the person has to go instead; the answer says whether they agreed to.
        origin: who asks, such as the id of a server.
    """

    text: str
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    url: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person says to a `Question`.

    Attributes:
        action: they answered, said no, or made no choice.
        content: what they answered, as the question's schema wants it.
    """

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = field(default_factory=dict[str, Any])


ProgressFunction: TypeAlias = Callable[[float, float | None, str], Awaitable[None]]
"""Called with how far a tool is, of how much (None where that is not known), and what it does (may be
empty)."""

AskFunction: TypeAlias = Callable[[Question], Awaitable[Answer]]
"""Asks a person and waits for the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What a tool is given by who calls it, besides the arguments.

    Attributes:
        progress: told how far it is.
        ask: asks a person; None where nobody can be asked.
        seconds: how long it may take; None for the tool's own limit.
        depth: how many agents stand above this call, each started by a tool of the one before.
    """

    progress: ProgressFunction | None = None
    ask: AskFunction | None = None
    seconds: float | None = None
    depth: int = 0


class Tool(ABC):
    """Something that a model can call.

    It is safe to call the same tool from several tasks; whether the calls may run side by side is what
    `is_concurrency_safe` says.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What people call it: `server:tool` for one of a server, in any script."""

    @property
    def wire_name(self) -> str:
        """What models call it: `[A-Za-z0-9_-]`, at most 64 characters, what all vendors take."""
        return self.name

    @property
    @abstractmethod
    def description(self) -> str:
        """When to call it, and what it gives."""

    @property
    @abstractmethod
    def args_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments, of type `object`."""

    @property
    def annotations(self) -> ToolAnnotations:
        """What calling it may do."""
        return ToolAnnotations()

    @property
    def is_concurrency_safe(self) -> bool:
        """Whether its calls may run at the same time as others."""
        return self.annotations.read_only

    @abstractmethod
    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        """Run it.

        Args:
            arguments: what the model gave; the tool checks them itself.
            context: see `CallContext`.

        Returns:
            What came of it. What went wrong and a model can act on is an output with `is_error`: wrong
            arguments, a refusal, a server that is gone, a deadline. Cancellation goes through.
        """

    def spec(self) -> ToolSpec:
        """The tool as a model is offered it.

        Raises:
            InvalidInputError: its schema holds what JSON cannot, or is nested too deeply.
        """
        return ToolSpec(self.wire_name, self.description, self.args_schema)
