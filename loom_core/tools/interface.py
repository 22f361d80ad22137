"""Interface of tools: the tool base class, outputs, questions, and the call context. No I/O here."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from loom_core.errors import LoomError
from loom_core.llm.interface import ToolSpec
from loom_core.llm.messages import ImagePart, TextPart, ToolMessage

__all__ = [
    "AskFunction",
    "CallContext",
    "JsonValue",
    "KeepTaskFunction",
    "OutputFile",
    "ProgressFunction",
    "Question",
    "QuestionAnswer",
    "Tool",
    "ToolAnnotations",
    "ToolFailure",
    "ToolFailureKind",
    "ToolOutput",
    "ToolRetry",
]

JsonValue: TypeAlias = (
    "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"  # refers to itself
)
"""Any JSON value."""


@dataclass(frozen=True, slots=True)
class ToolAnnotations:
    """Hints about the effects of a tool. The defaults are the worst case: nothing is known of it.

    Attributes:
        read_only: it changes nothing.
        destructive: it may delete or overwrite; ignored if it is read-only.
        idempotent: a repeated call has no further effect.
        open_world: it reaches beyond a closed set of things, such as into the web.
    """

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True

    @property
    def repeatable(self) -> bool:
        """Whether a call with an unknown outcome may be repeated."""
        return self.read_only or self.idempotent


ToolFailureKind: TypeAlias = Literal[
    "timeout",  # there was no answer in time; whether the call took effect is not known
    "connection",  # a service could not be reached, or the connection broke
    "unavailable",  # a service has too many requests, or cannot answer now: 429, 503
    "unauthorized",  # a service refuses the credentials: 401, 403
    "arguments",  # the tool asks the model for other arguments: `ToolRetry`
]
"""Why a call failed, as far as it matters for what follows."""

_TRANSIENT: frozenset[ToolFailureKind] = frozenset({"timeout", "connection", "unavailable"})


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """Failure of a call: it decides whether the call is retried, and what the model is advised.

    Attributes:
        kind: why it failed.
        nothing_done: whether it is certain that the call had no effect. Only then a tool that is neither
            read-only nor idempotent is retried.
        retry_after: seconds that a service asks to wait; None if it does not ask.
    """

    kind: ToolFailureKind
    nothing_done: bool = False
    retry_after: float | None = None

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed later."""
        return self.kind in _TRANSIENT


class ToolRetry(LoomError):  # noqa: N818 - what other frameworks call it, too
    """A tool did nothing, and asks the model to call it again with other arguments.

    The model reads the message and the advice. If the tool asks more often in a row than the retries that it
    has (see `Tool.retries`), further calls of it are refused.
    """


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file in the output of a tool, such as a PDF.

    Attributes:
        data: its bytes.
        name: its file name or URI, which the model reads.
        media_type: such as `application/pdf`; empty if it is unknown.
    """

    data: bytes = field(repr=False)
    name: str = ""
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """Output of a tool.

    Attributes:
        text: text for the model; it has every fact.
        structured: the same as data, or None.
        is_error: the call failed, and the text says why and what to do.
        parts: images for the model: they follow the text.
        metadata: data about the call for programs; models do not read it.
        ends_run: the run that made the call ends with this output, if it is no error: the text is its
            answer, without another model request.
        failure: why the call failed, if a retry or an authorization may help; else None.
        warnings: what the caller should know of a call that worked, such as that a part of the sources did
            not answer. The model reads them after the text.
        files: other files. Agents and flows add what they can read of them to the text, and to the images.
        is_handoff: whether the output that ends the run hands the conversation over to another agent: it is
            no answer, so hooks do not review it.
    """

    text: str
    structured: JsonValue = None
    is_error: bool = False
    parts: tuple[ImagePart, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ends_run: bool = False
    failure: ToolFailure | None = None
    warnings: tuple[str, ...] = ()
    files: tuple[OutputFile, ...] = ()
    is_handoff: bool = False

    def message(self, call_id: str) -> ToolMessage:
        """Return the output as the result of a model's tool call."""
        text = "\n\n".join(filter(None, [self.text, *(f"Warning: {each}" for each in self.warnings)]))
        texts = (TextPart(text),) if text or not self.parts else ()
        return ToolMessage(call_id, (*texts, *self.parts), failed=self.is_error)


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a running tool to a person (elicitation).

    Attributes:
        text: the question.
        schema: JSON Schema of the answer's content: an object with plain properties; empty if `url` is set.
        url: the address that the person has to visit instead; the answer says whether they agreed to.
        origin: the asking party, such as the id of a server.
        tool: the tool, if the question is whether it may be called; else empty.
        arguments: arguments of that call.
        arguments_schema: JSON Schema of the tool's arguments; empty if unknown.
        in_doubt: whether that call may have been made already, and the question is whether to make it again.
    """

    text: str
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    url: str = ""
    origin: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    arguments_schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    in_doubt: bool = False


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """A person's answer to a `Question`.

    Attributes:
        action: accepted, declined, or cancelled.
        content: the content, valid for the question's schema. If the question is whether a tool may be
            called: `arguments`, to call it with others; `keep: False`, to approve it for this run only;
            `reason`, to say why not.
    """

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = field(default_factory=dict[str, Any])


ProgressFunction: TypeAlias = Callable[[float, float | None, str], Awaitable[None]]
"""Callback for progress: done, total (None if unknown), and a message (may be empty)."""

AskFunction: TypeAlias = Callable[[Question], Awaitable[QuestionAnswer]]
"""Asks a person and waits for the answer."""


KeepTaskFunction: TypeAlias = Callable[[str], Awaitable[None]]
"""Records the id of the task of another server that a call has become."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """Context of a tool call, in addition to its arguments.

    Attributes:
        progress: reports progress.
        ask: asks a person; None if no one can be asked.
        seconds: timeout of the call; None for the tool's own limit.
        depth: number of agents above this call, each started by a tool of the one before.
        run_id: the run that makes the call; empty if there is none.
        call_id: id of the call. A call repeated after a crash has the same one: with `run_id` it is the
            idempotency key.
        keep_task: to be called when another server continues the call as a task, before the tool waits for
            it: the call survives a crash as that task. Then a cancelled call leaves the task running, and
            `Tool.abandon` cancels it. None if no run keeps it: then a cancelled call cancels the task.
        task_id: the task that the call has become before a crash: the tool waits for it instead of doing
            anything again. Empty if there is none.
    """

    progress: ProgressFunction | None = None
    ask: AskFunction | None = None
    seconds: float | None = None
    depth: int = 0
    run_id: str = ""
    call_id: str = ""
    keep_task: KeepTaskFunction | None = None
    task_id: str = ""


class Tool(ABC):
    """Base class of tools that a model can call.

    Several tasks may call the same tool; `is_concurrency_safe` says whether its calls may run concurrently.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Display name: `server:tool` for a server's tool, in any script."""

    @property
    def wire_name(self) -> str:
        """Name for models: `[A-Za-z0-9_-]`, at most 64 characters, which all vendors accept."""
        return self.name

    @property
    @abstractmethod
    def description(self) -> str:
        """When to call it, and what it returns."""

    @property
    @abstractmethod
    def args_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments, of type `object`."""

    @property
    def annotations(self) -> ToolAnnotations:
        """Hints about the effects of a call."""
        return ToolAnnotations()

    @property
    def is_concurrency_safe(self) -> bool:
        """Whether its calls may run at the same time as others."""
        return self.annotations.read_only

    @property
    def fingerprint(self) -> str:
        """Fingerprint that a person approves: it changes with the tool's definition."""
        says = [self.description, dict(self.args_schema), repr(self.annotations)]
        text = json.dumps(says, sort_keys=True, ensure_ascii=False, default=repr)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def approval_reason(self) -> str:
        """Why a person has to approve it, whatever the rules say; empty if no approval is needed."""
        return ""

    @property
    def keeps_approval(self) -> bool:
        """Whether an approval holds until the tool's definition changes; else for one call."""
        return False

    @property
    def is_trusted(self) -> bool:
        """Whether the operator trusts its provider: then a rule that allows it also approves it."""
        return False

    @property
    def approval_advice(self) -> str:
        """How an operator approves it in advance, in a sentence; empty if that is impossible."""
        return ""

    async def approve(self) -> None:
        """Store a person's approval of its current version, if approvals are kept (`keeps_approval`).

        Raises:
            LoomError: the approval cannot be stored.
        """
        return

    @property
    def needs_approval(self) -> bool:
        """Whether a person has to approve its calls; see `approval_reason`.

        The caller has to get the approval: `call` does not check it.
        """
        return bool(self.approval_reason)

    @property
    def needs_seconds(self) -> float:
        """Timeout of a call in seconds; infinite for none, 0 for the scheduler's default."""
        return 0.0

    @property
    def retries(self) -> int | None:
        """Maximum number of retries of a call; None for the agent's number. See `ToolRetries`."""
        return None

    def prepare_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Validate and repair arguments, and add defaults, without other effects.

        People approve the result, and rules match it.

        Returns:
            The arguments; None, as here, if validation against `args_schema` is enough.

        Raises:
            InvalidInputError: it names the error, the expected and the received value, for a model.
        """
        return None

    @abstractmethod
    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        """Run it.

        Args:
            arguments: the model's arguments; the tool validates them itself.
            context: see `CallContext`.

        Returns:
            The output. Errors that a model can act on are an output with `is_error`: invalid arguments, a
            refusal, a server that is gone, a timeout; its `failure` says whether the call may be retried.
            Cancellation propagates.
        """

    async def abandon(self, *, context: CallContext) -> Mapping[str, Any] | None:
        """Stop the remaining work of a started call that has timed out, or whose run has ended.

        For tools whose calls start work that continues by itself, also after a crash.

        Args:
            context: identifies the call and its run, and the task that it has become, if any.

        Returns:
            Metadata for the call's output, such as its usage; None for nothing.

        Raises:
            LoomError: the work may continue; this is logged.
        """
        return None

    def spec(self) -> ToolSpec:
        """Return the definition of the tool for models.

        Raises:
            InvalidInputError: its schema has values outside of JSON, or is nested too deeply.
        """
        return ToolSpec(self.wire_name, self.description, self.args_schema)
