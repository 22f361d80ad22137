"""What a tool is to the rest of Loom. No I/O here."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from loom_core.llm.interface import ToolSpec
from loom_core.llm.messages import ImagePart, TextPart, ToolMessage

__all__ = [
    "AskFunction",
    "CallContext",
    "JsonValue",
    "ProgressFunction",
    "Question",
    "QuestionAnswer",
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
        ends_run: the run that made the call ends with this, if it is no error: the text is its answer, and
            the model is not asked again.
    """

    text: str
    structured: JsonValue = None
    is_error: bool = False
    parts: tuple[ImagePart, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ends_run: bool = False

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
        tool: the tool that is about to be called, where the question is whether it may be; else empty.
        arguments: of that call.
        arguments_schema: JSON Schema of those that the tool takes; empty where it is not known.
    """

    text: str
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    url: str = ""
    origin: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    arguments_schema: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """What a person says to a `Question`.

    Attributes:
        action: they answered, said no, or made no choice.
        content: what they answered, as the question's schema wants it. Where the question is whether a tool
            may be called: `arguments`, if it may be with others; `keep: False`, if that is for this run only;
            `reason`, if they say why not.
    """

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = field(default_factory=dict[str, Any])


ProgressFunction: TypeAlias = Callable[[float, float | None, str], Awaitable[None]]
"""Called with how far a tool is, of how much (None where that is not known), and what it does (may be
empty)."""

AskFunction: TypeAlias = Callable[[Question], Awaitable[QuestionAnswer]]
"""Asks a person and waits for the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What a tool is given by who calls it, besides the arguments.

    Attributes:
        progress: told how far it is.
        ask: asks a person; None where nobody can be asked.
        seconds: how long it may take; None for the tool's own limit.
        depth: how many agents stand above this call, each started by a tool of the one before.
        run_id: the run that makes the call; empty where it is none.
        call_id: the call. A call that is made again after a crash has the same one: with `run_id` it is what
            others can know it again by.
    """

    progress: ProgressFunction | None = None
    ask: AskFunction | None = None
    seconds: float | None = None
    depth: int = 0
    run_id: str = ""
    call_id: str = ""


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

    @property
    def fingerprint(self) -> str:
        """What a person approves: another one as soon as the tool says something else of itself."""
        says = [self.description, dict(self.args_schema), repr(self.annotations)]
        text = json.dumps(says, sort_keys=True, ensure_ascii=False, default=repr)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def approval_reason(self) -> str:
        """Why a person has to approve it before a call, whatever the rules say; empty if that need not be."""
        return ""

    @property
    def keeps_approval(self) -> bool:
        """Whether an approval holds until the tool says something else of itself; else it is for one call."""
        return False

    @property
    def is_trusted(self) -> bool:
        """Whether the operator trusts who offers it: then a rule that allows it is its approval, too."""
        return False

    @property
    def approval_advice(self) -> str:
        """How an operator approves it beforehand, in a sentence; empty where that is not possible."""
        return ""

    async def approve(self) -> None:
        """Note that a person has approved it as it is now, where that is kept (`keeps_approval`).

        Raises:
            LoomError: it cannot be kept.
        """
        return

    @property
    def needs_approval(self) -> bool:
        """Whether a person has to approve its calls; see `approval_reason`.

        It is for who asks the person to heed this: `call` does not.
        """
        return bool(self.approval_reason)

    @property
    def needs_seconds(self) -> float:
        """How many seconds a call may take; infinite for no limit, 0 for that of the scheduler."""
        return 0.0

    def prepare_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The arguments as `call` takes them: checked, put right where they are nearly right, with defaults.

        It does nothing else. What comes of it is what a person is asked about and rules are matched with.

        Returns:
            The arguments; None, as here, where `args_schema` says all there is to check.

        Raises:
            InvalidInputError: what is wrong, what is expected and what was given, for a model.
        """
        return None

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

    async def abandon(self, *, context: CallContext) -> None:
        """A call that had begun is given up: its run has ended. What goes on for it has to end, too.

        For tools whose calls leave something behind that goes on by itself, also after a crash.

        Args:
            context: says which call of which run.

        Raises:
            LoomError: it may go on; this is logged.
        """
        return

    def spec(self) -> ToolSpec:
        """The tool as a model is offered it.

        Raises:
            InvalidInputError: its schema holds what JSON cannot, or is nested too deeply.
        """
        return ToolSpec(self.wire_name, self.description, self.args_schema)
