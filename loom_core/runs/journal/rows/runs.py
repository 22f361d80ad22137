"""Rows of runs, and of their events and blobs."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from math import inf
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import NotFoundError
from loom_core.llm.interface import Usage
from loom_core.runs.events import StreamEvent
from loom_core.runs.journal.rows.json_column import from_column, to_column
from loom_core.runs.journal.rows.schema import SEQ_BITS
from loom_core.runs.run import Attachment, Budget, Pending, Run, RunRequest, RunStatus, RunUsage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_core.runs.run import PendingKind
    from loom_core.storage.sql import SQLConnection, SQLRow

__all__ = [
    "CHANGING",
    "FINAL_STATUSES",
    "LAST_EVENT",
    "MAX_ROWS",
    "Step",
    "StoredRun",
    "attachments_of",
    "blob_of",
    "condition",
    "event_keys",
    "events_of",
    "find_run",
    "parse_usage",
    "request_column",
    "row_limit",
    "select_runs",
    "standing_column",
    "steps_of",
]

FINAL_STATUSES: frozenset[RunStatus] = frozenset({"completed", "failed", "aborted"})

MAX_ROWS = 2**63 - 1
"""The databases take no larger number."""

CHANGING = frozenset({"status", "output", "structured", "problem", "pending", "spent"})
"""The fields of a `Run` that events change."""

LAST_EVENT = (
    f"(SELECT key FROM events WHERE key BETWEEN runs.key << {SEQ_BITS} AND (runs.key + 1) << {SEQ_BITS}"
    " ORDER BY key DESC LIMIT 1)"
)
"""SQL expression for the key of a run's last event."""

_SELECT = f"""
SELECT runs.*, sessions.id AS session_id, requests.body, {LAST_EVENT} AS last_event
FROM runs JOIN sessions ON sessions.key = runs.session JOIN requests ON requests.run = runs.key
"""
_SPECIAL = re.compile(r"[^\w.:-]+")
_SPENT = [field.name for field in fields(RunUsage) if field.name != "usage"]
_USAGE = [field.name for field in fields(Usage)]
_PENDING = [field.name for field in fields(Pending)]
_BUDGET = [field.name for field in fields(Budget)]
_REQUEST = [
    field.name
    for field in fields(RunRequest)
    if field.name not in {"attachments", "budget", "session_id", "caller"}
]
_ATTACHMENT = [field.name for field in fields(Attachment) if field.name != "data"]


def row_limit(limit: int) -> int:
    """Return a number for LIMIT; a negative one stands for all rows."""
    return MAX_ROWS if limit < 0 else min(limit, MAX_ROWS)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run with the journal's internal data about it; `run.driver` is not filled in.

    Attributes:
        key: key of its row.
        run: the run.
        driver: id of the process that executes it, or empty.
    """

    key: int
    run: Run
    driver: str


def event_keys(run: int, *, after: int = 0) -> tuple[int, int]:
    """Return the range of keys for the events of a run after a seq: first and last."""
    most = (1 << SEQ_BITS) - 1
    return (run << SEQ_BITS) + min(max(after, 0), most) + 1, (run << SEQ_BITS) + most


def request_column(request: RunRequest) -> str:
    """Serialize a request to JSON, without what is in other columns: the bytes of attachments are blobs."""
    body = {name: getattr(request, name) for name in _REQUEST}
    if request.attachments:
        body["attachments"] = [
            {name: getattr(each, name) for name in _ATTACHMENT} for each in request.attachments
        ]
    limits = {name: getattr(request.budget, name) for name in _BUDGET}
    body["budget"] = {name: None if limit == inf else limit for name, limit in limits.items()}
    return to_column(body, allow_nan=False)  # `condition` searches in it


def standing_column(run: Run) -> str:
    """Return the mutable part of a run as JSON, without its status."""
    usage = {name: getattr(run.spent.usage, name) for name in _USAGE}
    return to_column(
        {
            "output": run.output,
            "structured": run.structured,
            "problem": run.problem,
            "pending": [{name: getattr(each, name) for name in _PENDING} for each in run.pending],
            "spent": {**{name: getattr(run.spent, name) for name in _SPENT}, "usage": usage},
        }
    )


def select_runs(
    db: SQLConnection, where: str, parameters: Sequence[object], *, order: str = "", limit: int = MAX_ROWS
) -> list[StoredRun]:
    """Select the runs that fit a condition.

    Args:
        db: the database.
        where: the SQL condition, on `runs` and `sessions`.
        parameters: parameters of the condition.
        order: the SQL order.
        limit: maximum number of runs.
    """
    sql = f"{_SELECT} WHERE {where} {f'ORDER BY {order}' if order else ''} LIMIT ?"
    found = [_parse_run(row) for row in db.execute(sql, [*parameters, row_limit(limit)])]
    return [_with_time(db, *each) for each in found]


def find_run(db: SQLConnection, run_id: str, caller: str | None = None) -> StoredRun:
    """Find a run by its id.

    Raises:
        NotFoundError: there is none, or it is another caller's (None: any caller).
    """
    # Every id is ASCII, and SQLite accepts no lone surrogates.
    for stored in select_runs(db, "runs.id = ?", (run_id,)) if run_id.isascii() else ():
        if caller in {None, stored.run.request.caller}:
            return stored
    raise NotFoundError(f"There is no run {run_id[:200]!r}.", advice="Look for its id in the list of runs.")


def _parse_run(row: SQLRow) -> tuple[StoredRun, int | None]:
    body = cast("dict[str, Any]", from_column(row["body"]))
    standing = cast("dict[str, Any]", from_column(row["standing"]))
    last: int | None = row["last_event"]
    run = Run(
        id=row["id"],
        request=_parse_request(body, session_id=row["session_id"], caller=row["caller"]),
        status=row["status"],
        created=row["created"],
        updated=row["created"],
        output=standing["output"],
        structured=standing["structured"],
        problem=standing["problem"],
        pending=tuple(Pending(**each) for each in standing["pending"]),
        spent=parse_usage(standing["spent"]),
        last_seq=0 if last is None else last & (1 << SEQ_BITS) - 1,
    )
    return StoredRun(row["key"], run, row["driver"] or ""), last


def _with_time(db: SQLConnection, stored: StoredRun, last: int | None) -> StoredRun:
    if last is None:
        return stored
    (at,) = db.execute("SELECT at FROM events WHERE key = ?", (last,)).fetchone()
    return replace(stored, run=replace(stored.run, updated=at))


def _parse_request(body: Mapping[str, Any], *, session_id: str, caller: str) -> RunRequest:
    own = {"attachments", "budget", "allowed_tools"}
    others = {name: value for name, value in body.items() if name not in own}
    tools: list[str] | None = body["allowed_tools"]
    return RunRequest(
        **others,
        attachments=tuple(Attachment(b"", **each) for each in body.get("attachments", ())),
        budget=Budget(**body["budget"]),
        allowed_tools=None if tools is None else tuple(tools),
        session_id=session_id,
        caller=caller,
    )


def parse_usage(data: Mapping[str, Any]) -> RunUsage:
    """Parse the JSON of a run's usage."""
    others = {name: value for name, value in data.items() if name != "usage"}
    return RunUsage(**others, usage=Usage(**data["usage"]))


def condition(
    caller: str | None,
    *,
    profiles: Sequence[str] = (),
    session_id: str = "",
    status: Sequence[RunStatus] = (),
    waits_for: PendingKind | None = None,
    waits_for_name: str = "",
) -> tuple[str, list[str]]:
    """Return the SQL condition that selects runs, and its parameters; see `Journal.runs`."""
    conditions, parameters = ["TRUE"], list[str]()
    if caller is not None:
        own = "runs.caller = ?"
        if profiles:
            marks = ",".join("?" * len(profiles))
            own = f"({own} OR json_extract(requests.body, '$.profile') IN ({marks}))"
        conditions.append(own)
        parameters += [caller, *profiles]
    if session_id:
        conditions.append("sessions.id = ?")
        parameters.append(session_id)
    if status:
        conditions.append(f"runs.status IN ({','.join('?' * len(status))})")
        parameters += status
    if waits_for is not None:
        conditions.append("runs.status = 'input_required' AND runs.standing LIKE ?")
        # As `standing_column` writes it; what JSON or LIKE might escape in a name stands for anything.
        name = f',"tool":"{_SPECIAL.sub("%", waits_for_name)}"' if waits_for_name else ""
        parameters.append(f'%"kind":"{waits_for}"{name}%')
    return " AND ".join(conditions), parameters


@dataclass(frozen=True, slots=True)
class Step:
    """An event with the internal state that the executor resumes from: JSON, with whole messages."""

    event: StreamEvent
    state: Any


def events_of(
    db: SQLConnection, run_id: str, run: int, *, after: int = 0, limit: int = MAX_ROWS
) -> list[StreamEvent]:
    """Return the events of a run after a seq, oldest first."""
    rows = db.execute(
        "SELECT key, at, type, payload FROM events WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?",
        (*event_keys(run, after=after), row_limit(limit)),
    )
    return [_event(row, run_id) for row in rows]


def steps_of(db: SQLConnection, run_id: str, run: int) -> list[Step]:
    """Return the events of a run that have a state, oldest first."""
    rows = db.execute(
        "SELECT * FROM events WHERE key BETWEEN ? AND ? AND state IS NOT NULL ORDER BY key", event_keys(run)
    )
    return [Step(_event(row, run_id), from_column(row["state"])) for row in rows]


def _event(row: SQLRow, run_id: str) -> StreamEvent:
    seq = row["key"] & (1 << SEQ_BITS) - 1
    return StreamEvent(row["type"], from_column(row["payload"]), run_id=run_id, seq=seq, at=row["at"])


def attachments_of(db: SQLConnection, run: Run, key: int) -> tuple[Attachment, ...]:
    """Return the attachments of a run with their bytes."""
    sql = "SELECT content FROM blobs WHERE run = ? AND number <= ? ORDER BY number"
    rows = db.execute(sql, (key, len(run.request.attachments)))
    return tuple(
        replace(each, data=row["content"]) for each, row in zip(run.request.attachments, rows, strict=True)
    )


def blob_of(db: SQLConnection, stored: StoredRun, number: int) -> tuple[bytes, str]:
    """Return a blob of a run, and its media type.

    Raises:
        NotFoundError: it has none of this number.
    """
    sql = "SELECT content, media_type FROM blobs WHERE run = ? AND number = ?"
    row = db.execute(sql, (stored.key, number)).fetchone() if 0 <= number <= MAX_ROWS else None
    if row is None:
        raise NotFoundError(f"Run {stored.run.id} has no blob {number}.")
    return row["content"], row["media_type"]
