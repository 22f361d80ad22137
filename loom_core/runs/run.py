"""Data of a run: its request, its progress and its result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from loom_core.errors import ConfigError
from loom_core.llm.interface import Usage

__all__ = [
    "CALLER_NAME",
    "CONTEXT",
    "FORK_OF",
    "FORK_STEP",
    "OF_ONE_RUN",
    "PARALLEL_RUNS",
    "PARENT_CALL",
    "PARENT_RUN",
    "TRACE",
    "Attachment",
    "Budget",
    "Pending",
    "PendingKind",
    "Run",
    "RunRequest",
    "RunStatus",
    "RunUsage",
    "caller_name",
    "is_for_call",
    "is_overdue",
]

PARENT_RUN = "parent_run"
PARENT_CALL = "parent_call"
"""Keys of `RunRequest.metadata`: the parent run, and its call that this run is for."""

TRACE = "trace"
"""Key of `RunRequest.metadata`: the trace context (`traceparent`), for a process that resumes the run."""

CALLER_NAME = "caller_name"
"""Key of `RunRequest.metadata`: the caller's display name, besides the id `RunRequest.caller`."""

FORK_OF = "fork_of"
FORK_STEP = "fork_step"
"""Keys of `RunRequest.metadata`: the run that this one is a fork of, and the step from which it differs."""
CONTEXT = "context"
"""Key of `RunRequest.metadata`: the caller's data about the run, an object."""

PARALLEL_RUNS = "parallel_runs"
"""Key of `RunRequest.metadata`: ids of the session's runs that it may run in parallel with.
Only for runs that do not change the session's memory."""

OF_ONE_RUN = frozenset({PARENT_RUN, PARENT_CALL, TRACE, CALLER_NAME, PARALLEL_RUNS, FORK_OF, FORK_STEP})
"""Keys of `RunRequest.metadata` above: a fork does not take them along."""

RunStatus = Literal["working", "input_required", "paused", "completed", "failed", "aborted"]
"""`working`: a process executes it, or the next one that polls will; `input_required`: it waits for a
decision or an answer (see `Run.pending`); the last three are final."""


_COUNTED = frozenset({"iterations", "tokens", "tool_calls"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Budget: the limits of a run. A run that reaches a limit ends as `failed`, with its results so far.

    Attributes:
        iterations: turns of the model.
        tokens: input and output tokens of all turns; None for no limit.
        cost: US dollars; None for no limit. Answers with an unknown price count as 0.
        tool_calls: tool calls; None for no limit. When they are used up the run does not end: the model gets
            no tools any more, and answers with what it has.
        seconds: working time; waiting for a person and pauses do not count. None for no limit.

    Raises:
        ConfigError: a limit is not a number, or below 0; or turns, tokens or calls are not integers.
    """

    iterations: int = 50
    tokens: int | None = None
    cost: float | None = None
    tool_calls: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            most: object = getattr(self, each.name)
            if most is None and each.name != "iterations":
                continue
            whole = each.name in _COUNTED
            kinds = int if whole else int | float
            if isinstance(most, bool) or not isinstance(most, kinds) or not most >= 0:
                raise ConfigError(
                    f"`{each.name}` of a budget cannot be {most!r}.",
                    advice=f"Use a {'whole ' if whole else ''}number from 0 on.",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUsage:
    """Resources that a run has used; see `Budget`."""

    iterations: int = 0
    usage: Usage = Usage()  # noqa: RUF009 - frozen
    tool_calls: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that a run gets with its goal.

    The journal stores its bytes once, as one of the first blobs of the run; they are left out of lists of
    runs.

    Attributes:
        data: its bytes; empty in runs that are not being executed.
        name: its file name or URL, which the model reads.
        media_type: such as `application/pdf`; empty if it is unknown. In a request, that of an image, or
            `text/plain` for a text in UTF-8.
        digest: SHA-256 of the bytes, which identifies them.
    """

    data: bytes = field(repr=False, compare=False)
    name: str = ""
    media_type: str = ""
    digest: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not self.digest:
            object.__setattr__(self, "digest", sha256(self.data).hexdigest())

    @property
    def is_image(self) -> bool:
        """Whether it is an image."""
        return self.media_type.startswith("image/")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Request for a run. It is in the journal before the run starts.

    Attributes:
        goal: what the user wants, in their words.
        session_id: the conversation it belongs to; empty for a new one.
        profile: name of the configuration that executes it; a resumed run uses the one of this name.
        budget: its limits.
        allowed_tools: name patterns of the tools it may call; None for all tools of the profile.
        output_schema: JSON Schema of the final answer; None for a text.
        idempotency_key: the same request of the same caller with this key returns the first run, and a
            different request is refused; empty for none.
        caller: id of the caller, such as a token's name; empty for the user of this machine. A caller does
            not see the runs of another one.
        depth: number of agents above this one.
        metadata: other data that the caller stores with it; JSON.
        attachments: files that the model reads with the goal, loaded by `load_attachments`.
    """

    goal: str
    session_id: str = ""
    profile: str = "default"
    budget: Budget = Budget()
    allowed_tools: tuple[str, ...] | None = None
    output_schema: Mapping[str, Any] | None = None
    idempotency_key: str = ""
    caller: str = ""
    depth: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    attachments: tuple[Attachment, ...] = ()


PendingKind: TypeAlias = Literal["approval", "unknown", "question", "event", "operator"]
"""`approval`: may the call run, or the flow continue; `unknown`: the call was running when the process died,
and its outcome is unknown: run it again, or not; `question`: a tool or a flow asks for input (`schema`);
`event`: a flow waits for an event from outside, or for a time (`deadline`); `operator`: a person of the
business has the conversation, until they return it. The last two are not for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Pending request of a run: see `PendingKind`.

    Attributes:
        id: the id for the response: that of the call to approve, or of the question.
        kind: the kind.
        tool: the tool, by the name for people: `researcher/read_file` for a tool that a child agent wants to
            call; the id of a flow that asks; the name of an event; the queue of an operator; empty for a
            question of the agent itself.
        arguments: arguments of the call; for a flow that asks, its inputs, which the answer may correct; for
            an event, its key; for an operator, `taken_by`.
        arguments_schema: JSON Schema of the tool's arguments, for editing them; empty if unknown, and in
            events.
        reason: why the run asks, in a sentence, for people.
        remark: the end or the beginning of `reason` that says why it asks again, such as what was wrong with
            the previous answer; left out if the question is only repeated.
        for_run: whether the tool can be approved for the rest of the run; some tools need each call approved.
        of_tool: whether only the tool needs approval, as the rules allow the call: an approval covers all
            its calls, until the tool's description changes.
        fingerprint: fingerprint of the tool when this was asked (`Tool.fingerprint`); empty if the decision
            is not stored.
        schema: JSON Schema of the answer to a question.
        asks_again: whether the sender reads any answer, and asks again if it does not fit: the answer may be
            conversational, or correct an earlier one.
        deadline: when the request counts as refused, in seconds since 1970; None for never. For a time that
            a flow waits for, that time. For an operator who has taken it, when it is in the queue again.
        reply_seconds: for an operator: the seconds to answer the user, once they have taken it; None for no
            limit.
        since: for an operator: when the user began to wait for one, in seconds since 1970; None if unknown.
    """

    id: str
    kind: PendingKind
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    arguments_schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reason: str = ""
    remark: str = ""
    for_run: bool = False
    of_tool: bool = False
    fingerprint: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    asks_again: bool = False
    deadline: float | None = None
    reply_seconds: float | None = None
    since: float | None = None

    @property
    def for_user(self) -> bool:
        """Whether it is for the user who started the run."""
        return self.kind not in {"event", "operator"}

    @property
    def taken_by(self) -> str:
        """The operator who has the conversation; empty as long as it waits in the queue."""
        return str(self.arguments.get("taken_by", "")) if self.kind == "operator" else ""

    def taken(self, operator: str, *, replied: bool) -> Pending:
        """Return the request as an operator has taken it; they have a deadline until they reply."""
        limit = None if replied else self.reply_seconds
        deadline = None if limit is None else time.time() + limit
        return replace(self, arguments={**self.arguments, "taken_by": operator}, deadline=deadline)

    def current(self) -> Pending:
        """Return the request as it is now: without an operator who has not answered the user in time."""
        if not self.taken_by or self.deadline is None or time.time() < self.deadline:
            return self
        kept = {name: value for name, value in self.arguments.items() if name != "taken_by"}
        return replace(self, arguments=kept, deadline=None)

    @property
    def takes_answer(self) -> bool:
        """Whether it takes an answer (`InputResponse`), not a decision."""
        return self.kind not in {"approval", "unknown"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run in its current state.

    Attributes:
        id: `run_` and 16 letters or digits.
        request: the request; its session_id is never empty here.
        status: the status.
        created: when it was requested, in seconds since 1970.
        updated: time of its last event.
        output: the final answer, or its beginning; empty before.
        structured: the final answer as data, if `output_schema` was given.
        problem: why it failed or was aborted, and what to do; empty otherwise.
        pending: pending requests, oldest first.
        spent: resources used so far.
        last_seq: seq of its last event.
        driver: the process that executes it, such as `pid 4711 on host`; empty for none.
    """

    id: str
    request: RunRequest
    status: RunStatus
    created: float
    updated: float
    output: str = ""
    structured: Any = None
    problem: str = ""
    pending: tuple[Pending, ...] = ()
    spent: RunUsage = RunUsage()
    last_seq: int = 0
    driver: str = ""

    @property
    def questions(self) -> tuple[Pending, ...]:
        """Pending requests to the user, oldest first."""
        return tuple(each for each in self.pending if each.for_user)


def caller_name(run: Run) -> str:
    """Return the display name of a run's caller; empty if unknown."""
    return str(run.request.metadata.get(CALLER_NAME, ""))


def is_for_call(run: Run) -> bool:
    """Whether a run is a child run, for a call of another one: only the parent's process executes it."""
    return PARENT_RUN in run.request.metadata


def is_overdue(run: Run) -> bool:
    """Whether a run waits for an answer whose deadline has passed."""
    return any(each.deadline is not None and each.deadline < time.time() for each in run.pending)
