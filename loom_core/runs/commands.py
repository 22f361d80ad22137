"""Commands to a run: decide, answer, reply, pause, resume, abort, retry; and whom a run asks for decisions.

Commands go through the journal, so that any process can send them, and none is lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from loom_core.errors import InvalidInputError
from loom_core.runs.run import Pending, RunStatus

if TYPE_CHECKING:
    from loom_core.tools.interface import Tool

__all__ = [
    "NO_ONE_IN_TIME",
    "Abort",
    "ApprovalDecision",
    "ApproveFunction",
    "Command",
    "HumanInputPolicy",
    "InputResponse",
    "OperatorMessage",
    "Pause",
    "Reply",
    "Resume",
    "Retry",
    "check_response",
    "deny_by_timeout",
    "is_denied_by_timeout",
    "revives",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecision:
    """Decision on a call that needs approval, or on a call whose outcome is unknown.

    Attributes:
        id: `Pending.id`.
        action: run it; do not run it; run it with other arguments. For an unknown call, `approve` runs it
            again, and `deny` tells the model that the outcome is unknown.
        arguments: for `edit`.
        reason: shown to the model if the call is denied.
        by: who decided.
        scope: what an approval covers: this call; or all calls of the tool in this run, including other
            pending ones, as long as the tool does not change (`Pending.for_run`).
        ask_again: for an `edit` of a flow's inputs: change them, and ask once more.
        keep: whether the approval of a tool also covers later runs, if its approvals are stored
            (`Tool.keeps_approval`); False if the person may decide for this run only.
    """

    id: str
    action: Literal["approve", "deny", "edit"]
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reason: str = ""
    by: str = ""
    scope: Literal["once", "run"] = "once"
    ask_again: bool = False
    keep: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class InputResponse:
    """The answer to a question of a tool or a flow, an event, or what an operator has agreed with the user.

    Attributes:
        id: `Pending.id`.
        action: as in `loom_core.tools.interface.QuestionAnswer`.
        content: the answer.
        by: who answered.
    """

    id: str
    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = field(default_factory=dict[str, Any])
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Message of the user to a running run: the model reads it before its next turn."""

    text: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorMessage:
    """Message of an operator to the user of a run that was handed over; the operator takes it by this.

    Attributes:
        id: `Pending.id` of the handover.
        text: the message; empty to take the conversation, and say nothing yet.
        by: the operator.
        takes_over: whether to take it from another operator.
    """

    id: str
    text: str = ""
    by: str = ""
    takes_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Start nothing new; let running work finish."""

    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Resume the run: after a pause, a failure or an abort."""

    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """End the run now; cancel running work."""

    reason: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Retry a flow from a step: the results of this step and of the later ones are discarded.

    Attributes:
        step: the step's id; `outer/0/inner` for a step of a branch, `outer/inner` for a step of a nested
            flow. Empty for the step that failed.
        inputs: changed inputs of the flow, by name: the flow restarts from the first step that used one of
            them, if that step comes earlier. Refused if an action with outside effects used the old values.
        by: who wants it.
    """

    step: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    by: str = ""


Command = ApprovalDecision | InputResponse | Reply | OperatorMessage | Pause | Resume | Abort | Retry


def revives(order: Command, status: RunStatus) -> bool:
    """Whether a command revives a run that ended with `status`. A user's reply is always read."""
    return isinstance(order, Resume | Retry) or (isinstance(order, Reply) and status == "completed")


def check_response(pending: Pending, said: ApprovalDecision | InputResponse) -> None:
    """Check an answer against the schema of the question, and edited arguments against the tool's schema.

    A call whose outcome is unknown cannot be edited. An invalid schema refuses nothing: the tool has to check
    then. Nor is a request checked that asks again.

    Raises:
        InvalidInputError: the response does not fit; the message says where, what is expected and what came.
    """
    from loom_core.tools.arguments import ToolArguments, find_mismatches
    from loom_core.tools.schemas.form import schema_problem

    if said.action == "edit" and pending.kind == "unknown":
        raise InvalidInputError(
            f"{said.id!r} may have been done already, with the arguments that it had.",
            advice="Approve it to run it again as it was, or deny it.",
        )
    is_answer = isinstance(said, InputResponse)
    schema = pending.schema if is_answer else pending.arguments_schema
    if said.action not in {"accept", "edit"} or pending.asks_again:
        return
    if not schema or schema_problem(schema):
        return
    if not is_answer:
        ToolArguments(pending.tool, schema).validate(said.arguments)
    elif wrong := find_mismatches(said.content, schema):
        raise InvalidInputError(
            f"The answer to {pending.id!r} does not fit its schema: {'; '.join(wrong)}.",
            advice="Answer as the schema of the question says; it is still open.",
        )


ApproveFunction: TypeAlias = "Callable[[Pending], Awaitable[bool | ApprovalDecision | InputResponse]]"
"""Asks a person, in a program that uses the library, and returns their response: True or False for a call
that needs approval; an `ApprovalDecision` to edit its arguments or give a reason; an `InputResponse` for the
question of a tool."""

NO_ONE_IN_TIME = "no one, in time"
"""Who decided, where no person did before the deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanInputPolicy:
    """Human input policy of a run: whom it asks, and for how long it waits.

    Attributes:
        approve: called with each request; None if there is no such function.
        accepts_commands: whether people can respond by commands (`Agent.send_command`, a server's clients).
        seconds: time to respond; without a response, the request counts as refused. None for no limit.
        unapproved: message about a tool that no operator has approved: customers can confirm calls, but not
            approve tools. Empty if operators are asked.
        confirmation: phrases the question to customers about a call, by its tool and arguments; by default
            they see the reason.
    """

    approve: ApproveFunction | None = None
    accepts_commands: bool = False
    seconds: float | None = 600.0
    unapproved: str = ""
    confirmation: Callable[[Tool, Mapping[str, Any]], str] | None = None

    @property
    def has_approver(self) -> bool:
        """Whether there is a person to ask."""
        return self.accepts_commands or self.approve is not None

    def deadline(self) -> float | None:
        """Return the deadline of a request that is made now."""
        return None if self.seconds is None else time() + self.seconds


def deny_by_timeout(id_: str) -> ApprovalDecision:
    """Return the denial of a call that was not decided before the deadline."""
    return ApprovalDecision(id=id_, action="deny", by=NO_ONE_IN_TIME)


def is_denied_by_timeout(decision: ApprovalDecision) -> bool:
    """Whether a denial means that the deadline passed without a decision."""
    return decision.action == "deny" and decision.by == NO_ONE_IN_TIME
