"""What can be saved of a damaged record: its documents, vectors and unfinished jobs, into a new one."""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, get_args

from loom_core.errors import DocumentError, StoreBusyError
from loom_core.knowledge.maintenance.finding import Finding
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.record import Record
from loom_core.knowledge.record.changes import IndexName
from loom_core.knowledge.record.receiving import Receiving
from loom_core.knowledge.stored import draft_of_row, packed_draft
from loom_core.storage import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Salvaged", "check_file", "salvage"]

_log = logging.getLogger(__name__)
_MESSAGES = 20
_PAGE = 200
_TABLES = ("meta", "alias_decisions")  # what people have decided, as far as it refers to nothing by key


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What was saved.

    Attributes:
        documents: how many documents.
        lost: how many rows of documents could not be read.
        vectors: how many vectors.
        jobs: how many documents of unfinished jobs.
        kept: where the damaged file is now; None where mending its indexes was enough.
    """

    documents: int
    lost: int
    vectors: int
    jobs: int
    kept: Path | None


def check_file(path: Path) -> list[Finding]:
    """Whether the file of a record is a whole SQLite database. Blocks; reads all of it."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            rows = db.execute(f"PRAGMA integrity_check({_MESSAGES})").fetchall()
    except sqlite3.Error as error:
        return [Finding("file", f"{path.name} cannot be read: {error}", "salvage")]
    messages = [line for (text,) in rows for line in str(text).splitlines()]
    if messages == ["ok"]:
        return []
    more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
    return [Finding("file", f"{path.name} is damaged: {messages[0]}{more}", "salvage")]


def salvage(folder: Path) -> Salvaged:
    """Make a sound record out of a damaged one; the damaged file stays beside it under another name. Blocks.

    Where only SQLite's own indexes are damaged they are made anew, and nothing is lost. Else the documents
    that can be read become a job of a new record, which is carried out when the knowledge base is opened;
    their vectors are kept.

    Args:
        folder: of the knowledge base. No program may have it open.

    Raises:
        StoreBusyError: another process works on it.
        RecordError: the new record cannot be written.
    """
    lock = ProcessLock(folder / "lock")
    if not lock.acquire():
        raise StoreBusyError(
            f"Process {lock.holder()} works on {folder}.",
            advice="Close the programs that use it and try again.",
        )
    try:
        path = folder / "record.db"
        if _reindexed(path):
            return Salvaged(0, 0, 0, 0, None)
        fresh = folder / "record.db.salvaged"
        _remove_database(fresh)
        record = Record(fresh)
        try:
            saved = _copied(path, record)
            with record.database.read() as db:
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            record.close()
        kept = _put_in_place(fresh, path)
        for name in get_args(IndexName):
            for directory in folder.glob(f"{name}-*"):
                shutil.rmtree(directory) if directory.is_dir() else directory.unlink()
        return Salvaged(*saved, kept)
    finally:
        lock.release()


def _reindexed(path: Path) -> bool:
    """Whether making SQLite's indexes anew was enough."""
    try:
        with closing(sqlite3.connect(path)) as db:
            messages = [str(text) for (text,) in db.execute(f"PRAGMA integrity_check({_MESSAGES})")]
            if not all("index" in message for message in messages):
                return False
            db.execute("REINDEX")
            return [text for (text,) in db.execute("PRAGMA integrity_check")] == ["ok"]
    except sqlite3.Error:
        return False


def _copied(path: Path, record: Record) -> tuple[int, int, int, int]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source:
        source.row_factory = sqlite3.Row
        source.text_factory = _any_text
        for table in _TABLES:
            _copy_table(source, record, table)
        vectors = _copy_vectors(source, record)
        lost = 0
        documents = 0

        def drafts() -> Iterator[DocumentDraft]:
            nonlocal lost, documents
            for row in _rows(source, "documents"):
                draft = None
                if row is not None:
                    with suppress(DocumentError, IndexError, KeyError):
                        draft = draft_of_row(row)
                if draft is None:
                    lost += 1
                else:
                    documents += 1
                    yield draft

        _submit(record, drafts())
        jobs = _copy_jobs(source, record)
        return documents, lost, vectors, jobs


def _any_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _rows(source: sqlite3.Connection, table: str) -> Iterator[sqlite3.Row | None]:
    """Rows of a table by rowid as far as they can be read; None for one that can not."""
    after = 0
    last = _last(source, table)
    while True:
        try:
            rows = source.execute(
                f"SELECT rowid AS _row, * FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT ?", (after, _PAGE)
            ).fetchall()
        except sqlite3.Error:
            break
        if not rows:
            return
        yield from rows
        after = rows[-1]["_row"]
    # From here on one by one: which of them lie on a damaged page is not known.
    for rowid in range(after + 1, last + 1):
        try:
            row = source.execute(f"SELECT * FROM {table} WHERE rowid = ?", (rowid,)).fetchone()
        except sqlite3.Error:
            yield None
        else:
            if row is not None:
                yield row


def _last(source: sqlite3.Connection, table: str) -> int:
    for sql in (
        f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'",
        f"SELECT MAX(rowid) FROM {table}",
    ):
        with suppress(sqlite3.Error):
            row = source.execute(sql).fetchone()
            if row is not None and row[0]:
                return int(row[0])
    return 0


def _copy_table(source: sqlite3.Connection, record: Record, table: str) -> None:
    rows: list[sqlite3.Row] = []
    with suppress(sqlite3.Error):
        rows.extend(source.execute(f"SELECT * FROM {table}"))  # as far as they can be read
    with record.database.write() as db:
        known = [row["name"] for row in db.execute(f"PRAGMA table_info({table})")]
        for row in rows:
            columns = [name for name in row.keys() if name in known]  # noqa: SIM118 - a Row, not a dict
            marks = ", ".join("?" * len(columns))
            db.execute(
                f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({marks})",
                [row[name] for name in columns],
            )


def _copy_vectors(source: sqlite3.Connection, record: Record) -> int:
    found = (row for row in _rows(source, "vectors") if row is not None)
    count = 0
    while page := list(islice(found, _PAGE)):
        rows = [(row["hash"], row["vector"]) for row in page]
        with record.database.write() as db:
            db.executemany("INSERT OR IGNORE INTO offered_vectors VALUES (?, ?)", rows)
        count += len(rows)
    return count


def _submit(record: Record, drafts: Iterator[DocumentDraft]) -> None:
    with record.database.write():
        job = Receiving(record.database, {"salvaged": True})
        while page := list(islice(drafts, _PAGE)):
            packed = [(d.uri, json.dumps(packed_draft(d), ensure_ascii=False).encode()) for d in page]
            job.take(packed)
        job.acknowledge()


def _copy_jobs(source: sqlite3.Connection, record: Record) -> int:
    """Unfinished jobs with what is left of them: their documents were acknowledged."""
    count = 0
    try:
        jobs = source.execute(
            "SELECT key, state, request FROM jobs "
            "WHERE state IN ('queued', 'listing', 'running') ORDER BY key"
        ).fetchall()
        for job in jobs:
            request = json.loads(job["request"])
            given = source.execute(
                "SELECT uri, payload FROM items WHERE job = ? AND state = 'pending' ORDER BY ordinal",
                (job["key"],),
            ).fetchall()
            if all(item["payload"] is None for item in given):
                if "paths" in request:  # found again when the folders are listed again
                    record.jobs.submit(request)
                    count += len(given)
                continue
            items = [(item["uri"], item["payload"]) for item in given if item["payload"] is not None]
            record.jobs.submit(request, items, listed=True)
            count += len(items)
    except (sqlite3.Error, ValueError) as error:
        _log.warning("the unfinished jobs of a damaged record cannot be read: %s", error)
    return count


def _put_in_place(fresh: Path, path: Path) -> Path:
    kept = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    for suffix in ("-wal", "-shm"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.replace(kept.with_name(kept.name + suffix))
    path.replace(kept)
    fresh.replace(path)
    return kept


def _remove_database(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
