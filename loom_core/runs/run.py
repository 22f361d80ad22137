"""Data of a run: its request, its progress and its result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from loom_core.errors import ConfigError
from loom_core.llm.interface import Usage

__all__ = [
    "CALLER_NAME",
    "PARALLEL_RUNS",
    "PARENT_CALL",
    "PARENT_RUN",
    "TRACE",
    "Budget",
    "Pending",
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
"""Where a run (`RunRequest.metadata`) says for which call of which run it is."""

TRACE = "trace"
"""Where a run says which trace it was asked for in (`traceparent`), for another process that takes it up."""

CALLER_NAME = "caller_name"
"""Where a run says what the caller is called, whom `RunRequest.caller` tells apart; see `caller_name`."""

PARALLEL_RUNS = "beside"
"""Where a run names the others of its session that it runs in parallel with, by id: they need not have ended.
It is for runs that leave the session's memory alone."""

RunStatus = Literal["working", "input_required", "paused", "completed", "failed", "aborted"]
"""`working`: it is driven, or will be by the next process that looks; `input_required`: it waits for a
decision or an answer (see `Run.pending`); the last three are final."""


_COUNTED = frozenset({"iterations", "tokens", "tool_calls"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of a run. A limit that is reached ends it as `failed`, with what was done so far.

    Attributes:
        iterations: turns of the model.
        tokens: input and output of all turns together; None for no limit.
        cost: US dollars; None for no limit. Answers whose price is not known count as nothing.
        tool_calls: calls that are run; None for no limit. When they are used up the run does not end: the
            model is offered no tools any more, and answers with what it has.
        seconds: while it is driven; time in which it waits for a person or is paused does not count. None for
            no limit.

    Raises:
        ConfigError: one is no number, or below 0; or turns, tokens or calls are no whole number.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Request for a run. It is in the journal before anything is done.

    Attributes:
        goal: what the user wants, in their words.
        session_id: the conversation it belongs to; empty for a new one.
        profile: which configuration drives it, by name; who resumes it takes the one of this name.
        budget: what it may take.
        allowed_tools: patterns of names of tools, and it may call no others; None for all of the profile.
        output_schema: JSON Schema of the final answer; None for a text.
        idempotency_key: the same request of the same caller with this key gets the first one's run, and
            another one is refused; empty for none.
        caller: who asks, such as a token's name; empty for the user of this machine. Runs of one caller are
            not shown to another.
        depth: how many agents stand above.
        metadata: what else the caller wants kept with it; JSON.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Something that a run waits for a person to say.

    Attributes:
        id: what the answer names: the id of the call that has to be approved, or of the question.
        kind: `approval`: may the call run, or the flow go on; `unknown`: the call had begun when the process
            died, and it is unknown whether it was done: run it again, or not; `question`: a tool or a flow
            asks for something (`schema`).
        tool: which tool it is about, as people call it: `researcher/read_file` for one that another agent
            wants to call for a call; the id of a flow that asks; empty for a question of the agent itself.
        arguments: of the call; the inputs of a flow that asks, which the answer may correct.
        arguments_schema: JSON Schema of those that the tool takes, for who edits them; empty where it is not
            known, and in events.
        reason: why it is asked, in a sentence, for people.
        remark: its end, where that says what was wrong with the answer before; left out where the question is
            only repeated.
        for_run: whether the tool can be approved for the rest of the run; some are asked about each time.
        of_tool: whether only the tool has to be approved, as the rules allow the call: a yes holds for all
            its calls, until it says something else of itself.
        fingerprint: of the tool as it was when this was asked (`Tool.fingerprint`); empty where nothing is to
            be kept of the answer.
        schema: JSON Schema of the answer to a question.
        asks_again: whether who asks reads any answer, and asks again where it does not fit: it may be words
            of a conversation, or correct what was said before.
        deadline: when it counts as refused, in seconds since 1970; None for never.
    """

    id: str
    kind: Literal["approval", "unknown", "question"]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as it stands now.

    Attributes:
        id: `run_` and 16 letters or digits.
        request: what was asked; its session_id is never empty here.
        status: how it is.
        created: when it was asked for, in seconds since 1970.
        updated: when something last happened in it.
        output: the final answer, or as much as there is of it; empty before.
        structured: the final answer as data, where `output_schema` asked for that.
        problem: why it failed or was aborted, and what to do; empty otherwise.
        pending: what it waits for, oldest first.
        spent: what it has taken.
        last_seq: of its last event.
        driver: which process drives it, such as `pid 4711 on host`; empty for none.
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


def caller_name(run: Run) -> str:
    """Return the display name of a run's caller; empty if unknown."""
    return str(run.request.metadata.get(CALLER_NAME, ""))


def is_for_call(run: Run) -> bool:
    """Whether a run is for a call of another one: only the process that drives that one drives it."""
    return PARENT_RUN in run.request.metadata


def is_overdue(run: Run) -> bool:
    """Whether a run waits for an answer whose time is over."""
    return any(each.deadline is not None and each.deadline < time.time() for each in run.pending)
