"""Rows of queued commands, and checks of commands against the state of their run."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from loom_core.errors import InvalidInputError
from loom_core.runs.commands import (
    Abort,
    ApprovalDecision,
    Command,
    InputResponse,
    OperatorMessage,
    Pause,
    Reply,
    Resume,
    Retry,
    check_response,
)
from loom_core.runs.journal.rows.json_column import from_column, to_column
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.runs.run import PARENT_RUN, is_for_call

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom_core.runs.journal.rows.runs import StoredRun
    from loom_core.runs.run import Run
    from loom_core.storage.sql import SQLConnection

__all__ = [
    "QueuedCommand",
    "check_command",
    "check_is_latest",
    "command_column",
    "load_commands",
    "predict_run",
]

_AnyCommand: TypeAlias = type[
    ApprovalDecision | InputResponse | Reply | OperatorMessage | Pause | Resume | Abort | Retry
]
_KINDS: dict[str, _AnyCommand] = {
    "decided": ApprovalDecision,
    "answered": InputResponse,
    "reply": Reply,
    "operator": OperatorMessage,
    "pause": Pause,
    "resume": Resume,
    "abort": Abort,
    "retry": Retry,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class QueuedCommand:
    """A queued command that was not applied yet.

    Attributes:
        key: key of its row; a later command has a higher one.
        command: the command.
    """

    key: int
    command: Command


def command_column(order: Command) -> str:
    """Serialize a command to JSON."""
    return to_column({"kind": _NAMES[type(order)], **asdict(order)})


def load_commands(db: SQLConnection, run: int, *, after: int = 0) -> list[QueuedCommand]:
    """Load the queued commands of a run, oldest first."""
    rows = db.execute("SELECT key, body FROM orders WHERE run = ? AND key > ? ORDER BY key", (run, after))
    return [QueuedCommand(row["key"], _parse_command(row["body"])) for row in rows]


def _parse_command(text: str) -> Command:
    body = cast("dict[str, Any]", from_column(text))
    return _KINDS[body.pop("kind")](**body)


def predict_run(run: Run, orders: Iterable[Command]) -> Run:
    """Return the run as it will be when these commands are applied."""
    for order in orders:
        match order:
            case ApprovalDecision() | InputResponse():
                pending = tuple(each for each in run.pending if each.id != order.id)
                status = "working" if run.status == "input_required" and not pending else run.status
                run = replace(run, pending=pending, status=status)
            case Pause():
                run = replace(run, status="paused")
            case Resume() | Retry():
                run = replace(run, status="working")
            case Abort():
                run = replace(run, status="aborted", pending=())
            case OperatorMessage(id=id_, by=by, text=text):
                replied = bool(text)
                asked = (each.taken(by, replied=replied) if each.id == id_ else each for each in run.pending)
                run = replace(run, pending=tuple(asked))
            case Reply():
                pass
    return run


def check_command(run: Run, order: Command, given: Sequence[Command]) -> None:
    """Check a command against the state of its run after the commands that are queued before it.

    Raises:
        InvalidInputError: it does not fit.
    """
    soon = predict_run(run, given)
    match order:
        case ApprovalDecision() | InputResponse() | OperatorMessage():
            _check_answer(run, soon, order, given)
        case Resume():
            if soon.status == "completed":
                raise InvalidInputError(
                    f"Run {run.id} is completed.", advice="Start a new run in the same session to go on."
                )
            if soon.status not in {"paused", "failed", "aborted"}:
                raise InvalidInputError(f"Run {run.id} is running already: it is {soon.status}.")
            _check_own_end(run, soon)
        case Retry():
            _check_retry(run, soon)
        case _ if soon.status in FINAL_STATUSES:
            raise _error_for_ended_run(soon)
        case Pause() if soon.status == "paused":
            raise InvalidInputError(f"Run {run.id} is paused already.", advice="Resume it to go on.")
        case Reply() if not order.text.strip():
            raise InvalidInputError("The message is empty.", advice="Write a message, or send none.")
        case _:
            pass


def _check_own_end(run: Run, soon: Run) -> None:
    """Refuse to resume a child run that ended with the call of its parent."""
    if soon.status in FINAL_STATUSES and is_for_call(run):
        caller = run.request.metadata[PARENT_RUN]
        raise InvalidInputError(
            f"Run {run.id} was for a call of run {caller}, and has ended with it.",
            advice=f"Resume {caller} instead, or start a new run.",
        )


def _check_retry(run: Run, soon: Run) -> None:
    if run.request.metadata.get("kind") != "flow":
        raise InvalidInputError(f"Run {run.id} is not a flow and has no steps.", advice="Resume it instead.")
    if soon.status == "completed":
        raise InvalidInputError(f"Run {run.id} is completed.", advice="Start the flow again.")
    if soon.status not in {"failed", "aborted"}:
        raise InvalidInputError(
            f"Run {run.id} is running already: it is {soon.status}.", advice="Abort it first, or wait."
        )
    _check_own_end(run, soon)


def check_is_latest(db: SQLConnection, stored: StoredRun) -> None:
    """Refuse to resume a run if its session has later runs.

    A flow does not use the conversation, so it may be resumed once the later runs have ended.

    Raises:
        InvalidInputError: there is a later run.
    """
    sql = "SELECT id, status FROM runs WHERE session = (SELECT session FROM runs WHERE key = ?) AND key > ?"
    rows = db.execute(sql, (stored.key, stored.key)).fetchall()
    is_flow = stored.run.request.metadata.get("kind") == "flow"
    later = [row["id"] for row in rows if not is_flow or row["status"] not in FINAL_STATUSES]
    if later and is_flow:
        raise InvalidInputError(
            f"The session has another active run: {later[0]} has not ended.",
            advice="Wait for it, or abort it.",
        )
    if later:
        raise InvalidInputError(
            f"The session has continued without run {stored.run.id}: {later[0]} came after it.",
            advice="Start a new run in the session instead.",
        )


def _check_answer(
    run: Run,
    soon: Run,
    order: ApprovalDecision | InputResponse | OperatorMessage,
    given: Sequence[Command],
) -> None:
    pending = next((each.current() for each in soon.pending if each.id == order.id), None)
    if pending is None:
        if any(isinstance(each, ApprovalDecision | InputResponse) and each.id == order.id for each in given):
            raise InvalidInputError(
                f"{order.id!r} was decided already; the first decision holds.",
                advice="Wait for the run to apply it.",
            )
        if soon.status in FINAL_STATUSES:
            raise _error_for_ended_run(soon)
        waiting = ", ".join(repr(each.id) for each in soon.pending)
        raise InvalidInputError(
            f"Run {run.id} does not wait for {order.id[:200]!r}.",
            advice=f"It waits for {waiting}."
            if waiting
            else "It waits for nothing; it may be decided already.",
        )
    if pending.deadline is not None and pending.deadline < time.time():
        raise InvalidInputError(
            f"The deadline for {order.id!r} has passed: it counts as refused.",
            advice="Send the run a message with what you want.",
        )
    takes_over = isinstance(order, OperatorMessage) and order.takes_over
    if pending.taken_by not in {"", order.by} and not takes_over:
        raise InvalidInputError(
            f"{pending.taken_by} has this conversation.",
            advice="Take it over from them first, if it is yours now.",
        )
    if isinstance(order, OperatorMessage):
        if pending.kind != "operator":
            raise InvalidInputError(f"{order.id!r} is not with an operator.")
        return
    if isinstance(order, ApprovalDecision) and pending.takes_answer:
        raise InvalidInputError(
            f"{order.id!r} is a question, which is answered, not approved.",
            advice="Answer it with accept, decline or cancel.",
        )
    if isinstance(order, InputResponse) and not pending.takes_answer:
        raise InvalidInputError(
            f"{order.id!r} is a call, not a question.", advice="Decide it with approve or deny."
        )
    if isinstance(order, ApprovalDecision) and order.scope == "run" and not pending.for_run:
        raise InvalidInputError(
            f"{order.id!r} cannot be approved for the rest of the run: each call needs an approval.",
            advice="Approve it once.",
        )
    check_response(pending, order)


def _error_for_ended_run(run: Run) -> InvalidInputError:
    further = "Start a new run in the same session" if run.status == "completed" else "Resume it"
    return InvalidInputError(f"Run {run.id} has ended: it is {run.status}.", advice=f"{further} to go on.")
