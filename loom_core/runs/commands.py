"""Commands that people give a run while it is under way.

Orders go through the journal, so that any process can give them, and none is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from loom_core.errors import InvalidInputError
from loom_core.runs.run import Pending, RunStatus

__all__ = [
    "Abort",
    "ApprovalDecision",
    "Command",
    "InputResponse",
    "Pause",
    "Reply",
    "Resume",
    "Retry",
    "check_response",
    "revives",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecision:
    """Decision on a call that needs approval, or of which it is not known whether it was done.

    Attributes:
        id: `Pending.id`.
        action: run it; do not; run it with other arguments. For an unknown call, `approve` runs it again and
            `deny` tells the model that it is unknown.
        arguments: for `edit`.
        reason: shown to the model where it is denied.
        by: who decided.
        scope: what an approval holds for: this call; or all calls of the tool in this run, those that are
            asked about now included, as long as the tool stays what it is (`Pending.for_run`).
        ask_again: for an `edit` of what a flow goes on with: it is changed, and asked about once more.
        keep: whether an approval of a tool holds for later runs, too, where approvals of it are kept
            (`Tool.keeps_approval`); not where who decides may do so for this run only.
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
    """The answer to a question of a tool.

    Attributes:
        id: `Pending.id`.
        action: as in `loom_core.tools.interface.Answer`.
        content: what was answered.
        by: who.
    """

    id: str
    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = field(default_factory=dict[str, Any])
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Something the user says while the run goes on: the model reads it before its next turn."""

    text: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Begin nothing new; what runs is let end."""

    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Go on: after a pause, or where it failed or was aborted."""

    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """End now: what runs is cancelled."""

    reason: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Go on with a flow from a step: what came of it and of what followed it is forgotten.

    Attributes:
        step: its id; `outer/0/inner` for one of a branch, `outer/inner` for one of a flow that is a step.
            Empty: where it failed.
        inputs: of the flow, by name, that are others now: it goes on from the first step that has used one of
            them, if that comes first. Refused where something was done with what they were.
        by: who.
    """

    step: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    by: str = ""


Command = ApprovalDecision | InputResponse | Reply | Pause | Resume | Abort | Retry


def revives(order: Command, status: RunStatus) -> bool:
    """Whether a run that has ended as `status` goes on by an order: the user's last words are always read."""
    return isinstance(order, Resume | Retry) or (isinstance(order, Reply) and status == "completed")


def check_response(pending: Pending, said: ApprovalDecision | InputResponse) -> None:
    """Refuse an answer that is none to the question, and arguments that the tool does not take.

    A schema that cannot be used refuses nothing: then it is for the tool to say. Who asks again is told all.

    Raises:
        InvalidInputError: it says where something is wrong, what is expected and what was received.
    """
    from loom_core.tools.arguments import ToolArguments, find_mismatches
    from loom_core.tools.schemas.form import schema_problem

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
            f"This is no answer to {pending.id!r}: {'; '.join(wrong)}.",
            advice="Answer as the schema of the question says; it is still open.",
        )
