"""Creation of runs: idempotency, sessions and ids."""

from __future__ import annotations

import re
import secrets
import time
from base64 import b32encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import InvalidInputError
from loom_core.runs.commands import revives
from loom_core.runs.journal.rows.commands import load_commands
from loom_core.runs.journal.rows.json_column import check_text, from_column, to_column
from loom_core.runs.journal.rows.runs import (
    FINAL_STATUSES,
    event_keys,
    find_run,
    request_column,
    select_runs,
    standing_column,
)
from loom_core.runs.journal.rows.schema import SEQ_BITS
from loom_core.runs.journal.rows.sessions import begin_session, find_session
from loom_core.runs.run import CONTEXT, PARALLEL_RUNS, Run

if TYPE_CHECKING:
    from loom_core.runs.events import EventType
    from loom_core.runs.journal.rows.runs import StoredRun
    from loom_core.runs.run import RunRequest, RunStatus
    from loom_core.storage.sql import SQLConnection

__all__ = ["NewEvent", "create_run", "fork_run", "id_for", "new_id"]

_ID_BYTES = 10
_SAME = {
    "goal": "goal",
    "profile": "profile",
    "allowed_tools": "set of allowed tools",
    "output_schema": "output schema",
    "budget": "budget",
    "attachments": "set of attachments",
}
"""Fields that two requests with the same idempotency key must share, and their names for people."""


def create_run(db: SQLConnection, request: RunRequest, *, begins_session: bool = False) -> Run:
    """Create a run, or find the run of the same idempotency key; part of a transaction.

    Args:
        db: the database.
        request: the request.
        begins_session: see `Journal.create`.

    Raises:
        InvalidInputError: the key was used for another request; or the session has a run that has not ended.
        NotFoundError: there is no such session of this caller.
    """
    for name in ("caller", "idempotency_key", "session_id"):
        check_text(name, getattr(request, name))
    if request.idempotency_key:
        where = "runs.caller = ? AND runs.idempotency_key = ?"
        for stored in select_runs(db, where, (request.caller, request.idempotency_key)):
            if other := _difference(stored.run.request, request):
                raise InvalidInputError(
                    f"The idempotency key {request.idempotency_key[:200]!r} was used for another {other} "
                    f"(run {stored.run.id}).",
                    advice="Use a new key for each run; the same one only to ask for the same run again.",
                )
            return stored.run
    # A request that cannot be written as JSON is refused before anything is written.
    body, now = request_column(request), time.time()
    session_id = request.session_id or new_id("ses")
    if request.session_id and not (begins_session and _is_new_session(db, session_id)):
        session = _find_free_session(db, request)
    else:
        session = begin_session(db, session_id, request.caller)
    run = Run(
        id=new_id("run"),
        request=replace(request, session_id=session_id),
        status="working",
        created=now,
        updated=now,
    )
    (key,) = db.execute(
        "INSERT INTO runs (id, session, caller, idempotency_key, created, status, standing)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING key",
        (
            run.id,
            session,
            request.caller,
            request.idempotency_key or None,
            now,
            run.status,
            standing_column(run),
        ),
    ).fetchone()
    db.execute("INSERT INTO requests VALUES (?, ?)", (key, body))
    db.executemany(
        "INSERT INTO blobs VALUES (?, ?, ?, ?)",
        [
            (key, number, each.media_type, each.data)
            for number, each in enumerate(request.attachments, start=1)
            if each.data
        ],
    )
    return run


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event of a fork that the original does not have; see `RunLog.add`."""

    type: EventType
    payload: Mapping[str, Any]
    state: Any


def fork_run(
    db: SQLConnection, source: StoredRun, request: RunRequest, events: Sequence[int | NewEvent]
) -> Run:
    """Create a run that begins with events of another one; see `Journal.fork`; part of a transaction.

    The attachments, and the blobs that these events name, are copied, so that they outlive the original.
    """
    made = create_run(db, request)
    key, at = find_run(db, made.id).key, 0.0
    old, new = (f"loom://runs/{each.id}/blobs/" for each in (source.run, made))
    sql = "SELECT key, at, type, payload, state FROM events WHERE key BETWEEN ? AND ?"
    first = source.key << SEQ_BITS
    known = {row["key"] - first: row for row in db.execute(sql, event_keys(source.key))}
    rows: list[tuple[object, ...]] = []
    blobs = len(request.attachments)
    for seq, event in enumerate(events, start=1):
        if isinstance(event, NewEvent):
            state = None if event.state is None else to_column(event.state)
            at, type_, texts = made.created, event.type, [to_column(event.payload), state]
        else:
            _, copied, type_, *texts = known[event]
            at = max(at, copied)
        named = (int(each) for text in texts if text for each in re.findall(rf"{old}(\d+)", text))
        blobs = max(blobs, *named, 0)
        payload, state = (text and text.replace(old, new) for text in texts)
        rows.append(((key << SEQ_BITS) + seq, at, type_, payload, state))
    db.executemany("INSERT INTO events (key, at, type, payload, state) VALUES (?, ?, ?, ?, ?)", rows)
    sql = "INSERT INTO blobs SELECT ?, number, media_type, content FROM blobs WHERE run = ? AND number <= ?"
    db.execute(sql, (key, source.key, blobs))
    return find_run(db, made.id).run


def _difference(known: RunRequest, request: RunRequest) -> str:
    """Name what differs in the second request with an idempotency key; empty if both are the same."""
    if request.session_id not in {"", known.session_id}:
        return "session"
    before, now = (from_column(request_column(each)) for each in (known, request))
    if before["metadata"].get(CONTEXT) != now["metadata"].get(CONTEXT):
        return "context"
    return next((told for name, told in _SAME.items() if before.get(name) != now.get(name)), "")


def _is_new_session(db: SQLConnection, session_id: str) -> bool:
    """Whether no caller has a session of this id."""
    return db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone() is None


def _find_free_session(db: SQLConnection, request: RunRequest) -> int:
    """Return the key of the session for a new run; it must have no other active run."""
    session = find_session(db, request.session_id, request.caller)
    known: object = request.metadata.get(PARALLEL_RUNS)
    parallel = cast("list[object]", known) if isinstance(known, list) else []
    sql = "SELECT key, id, status FROM runs WHERE session = ? ORDER BY key DESC"
    # Fetch all rows at once: an error keeps its traceback alive, and an unfinished statement would keep this
    # connection from seeing what other processes write.
    for row in db.execute(sql, (session,)).fetchall():
        if row["id"] in parallel:
            continue
        status: RunStatus = row["status"]
        resumed = any(revives(each.command, status) for each in load_commands(db, row["key"]))
        if status not in FINAL_STATUSES or resumed:
            raise InvalidInputError(
                f"Session {request.session_id[:200]} has a run that has not ended: {row['id']} "
                f"({'it is about to be resumed' if resumed else status}).",
                advice="Wait for it, send it a message, or abort it; or leave out the session.",
            )
    return session


def new_id(kind: str) -> str:
    """Create a random id that cannot be guessed."""
    return _id(kind, secrets.token_bytes(_ID_BYTES))


def id_for(kind: str, caller: str, key: str) -> str:
    """Derive the id of an object from its caller and idempotency key.

    Raises:
        InvalidInputError: the caller or the key is not valid text.
    """
    check_text("caller", caller)
    check_text("idempotency_key", key)
    return _id(kind, sha256(f"{len(caller)}:{caller}:{key}".encode()).digest()[:_ID_BYTES])


def _id(kind: str, content: bytes) -> str:
    return f"{kind}_{b32encode(content).decode().lower()}"
