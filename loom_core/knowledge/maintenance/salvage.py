"""Salvage of a damaged store: copy the readable documents, vectors and jobs into a new one."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, get_args

from loom_core.errors import DocumentError, StoreBusyError, StoreError, first_line
from loom_core.knowledge.ingest.stored_documents import draft_of_row, pack_draft, unpack_draft
from loom_core.knowledge.maintenance.finding import CheckFinding
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.store import JobItem, KnowledgeStore
from loom_core.knowledge.store.changes import IndexName
from loom_core.knowledge.store.job_upload import JobUpload
from loom_core.knowledge.store.opening import is_emptied, require_accessible
from loom_core.knowledge.store.schema import SCHEMA
from loom_core.knowledge.uris import path_of
from loom_core.storage import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["SalvageReport", "check_file", "salvage"]

_MESSAGES = 20
_PAGE = 200
_TABLES = ("meta", "alias_decisions")  # tables without references to keys


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """Result of a salvage: what was saved, and what was lost.

    Attributes:
        documents: how many documents.
        vectors: how many vectors.
        jobs: how many documents of unfinished jobs.
        lost: URIs of the documents that could not be read and exist nowhere else, as far as known.
        reloaded: URIs of unreadable documents that are loaded again from their files.
        incomplete: whether documents may be lost whose URIs could not be read either.
        kept: new path of the damaged file; None if rebuilding its indexes was enough.
    """

    documents: int = 0
    vectors: int = 0
    jobs: int = 0
    lost: tuple[str, ...] = ()
    reloaded: tuple[str, ...] = ()
    incomplete: bool = False
    kept: Path | None = None


def check_file(path: Path) -> list[CheckFinding]:
    """Check that a store's file is a whole SQLite database, texts included. Blocks; reads all of it.

    Raises:
        StoreError: see `require_accessible`.
    """
    require_accessible(path)
    if is_emptied(path):
        return [CheckFinding("file", f"{path.name} is empty, but there are indexes made from it", "salvage")]
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            rows = db.execute(f"PRAGMA integrity_check({_MESSAGES})").fetchall()
            messages = [line for (text,) in rows for line in str(text).splitlines()]
            if messages == ["ok"]:
                _decode_texts(db)
                return []
    except sqlite3.Error as error:
        return [CheckFinding("file", f"{path.name} cannot be read: {first_line(error)}", "salvage")]
    more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
    return [CheckFinding("file", f"{path.name} is damaged: {messages[0]}{more}", "salvage")]


def _decode_texts(db: sqlite3.Connection) -> None:
    """Decode every text, which SQLite itself does not.

    Raises:
        sqlite3.OperationalError: one is not UTF-8.
    """
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[2] == "TEXT"]
        if columns:
            deque(db.execute(f"SELECT {', '.join(columns)} FROM {table}"), maxlen=0)


def salvage(folder: Path) -> SalvageReport:
    """Replace a damaged store by a sound one; the damaged file is kept under another name. Blocks.

    If only SQLite's own indexes are damaged, they are rebuilt, and nothing is lost. Else the readable
    documents become a job of a new store, which is carried out when the knowledge base is opened; their
    vectors are kept.

    Args:
        folder: the knowledge base's folder. No program may have it open.

    Raises:
        StoreBusyError: another process works on it.
        StoreError: the new store cannot be written, or the old one cannot be accessed or has a newer format.
    """
    require_accessible(folder / "record.db")
    lock = ProcessLock(folder / "lock")
    if not lock.acquire():
        raise StoreBusyError(
            f"Process {lock.holder()} works on {folder}.",
            advice="Close the programs that use it and try again.",
        )
    try:
        path = folder / "record.db"
        _refuse_newer(path)
        if _reindex(path):
            return SalvageReport()
        fresh = folder / "record.db.salvaged"
        _remove_database(fresh)
        store = KnowledgeStore(fresh)
        try:
            _empty_log(store)
            saved = _salvage_into(path, store, fresh)
            _empty_log(store)
        finally:
            store.close()
        kept = _swap_in(fresh, path)
        for name in get_args(IndexName):
            for index in folder.glob(f"{name}-*"):
                if index.is_dir() and not index.is_symlink():
                    shutil.rmtree(index)
                else:
                    index.unlink()
        return replace(saved, kept=kept)
    finally:
        lock.release()


def _refuse_newer(path: Path) -> None:
    """Raise if a store is of a newer format: its new content would be lost."""
    with closing(DamagedStore(path)) as source:
        version = source.version()
    if version > len(SCHEMA):
        raise StoreError(
            f"{path} was written by a newer Loom (format {version}, this one knows {len(SCHEMA)}).",
            advice="Upgrade this installation and try again; nothing was changed.",
        )


def _empty_log(store: KnowledgeStore) -> None:
    with store.database.read() as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _reindex(path: Path) -> bool:
    """Rebuild SQLite's indexes; return whether that was enough."""
    try:
        with closing(sqlite3.connect(path)) as db:
            messages = [str(text) for (text,) in db.execute(f"PRAGMA integrity_check({_MESSAGES})")]
            if not all("index" in message for message in messages):
                return False
            db.execute("REINDEX")
            _decode_texts(db)
            return [text for (text,) in db.execute("PRAGMA integrity_check")] == ["ok"]
    except sqlite3.Error:
        return False


def _salvage_into(path: Path, store: KnowledgeStore, fresh: Path) -> SalvageReport:
    if is_database(path):
        return _copy_readable(path, store)
    mended = path.with_name("record.db.mended")
    try:
        for suffix in ("", "-wal"):
            sidecar = path.with_name(path.name + suffix)
            if sidecar.exists():
                shutil.copyfile(sidecar, mended.with_name(mended.name + suffix))
        repair_header(mended, like=fresh)
        return replace(_copy_readable(mended, store), incomplete=True)
    finally:
        _remove_database(mended)


def _copy_readable(path: Path, store: KnowledgeStore) -> SalvageReport:
    with closing(DamagedStore(path)) as source:
        for table in _TABLES:
            _copy_table(source, store, table)
        vectors = _copy_vectors(source, store)
        saved: set[str] = set()

        def drafts() -> Iterator[DocumentDraft]:
            for row in source.rows("documents"):
                with suppress(DocumentError, IndexError, KeyError):
                    # A damaged page may hold anything: unpacking validates the fields.
                    draft = unpack_draft(pack_draft(draft_of_row(row)))
                    saved.add(draft.uri)
                    yield draft

        _submit(store, drafts())
        unread = sorted(source.uris() - saved)
        reloaded = [uri for uri in unread if uri.startswith("file:") and path_of(uri).is_file()]
        if reloaded:
            paths = [str(path_of(uri)) for uri in reloaded]
            store.jobs.submit({"paths": paths, "include": [], "exclude": [], "metadata": {}})
        return SalvageReport(
            documents=len(saved),
            vectors=vectors,
            jobs=_copy_jobs(source, store),
            lost=tuple(uri for uri in unread if uri not in set(reloaded)),
            reloaded=tuple(reloaded),
            incomplete=source.incomplete,
        )


def _copy_table(source: DamagedStore, store: KnowledgeStore, table: str) -> None:
    with store.database.write() as db:
        texts = {row["name"]: row["type"] == "TEXT" for row in db.execute(f"PRAGMA table_info({table})")}
        for row in source.select(f"SELECT * FROM {table}"):
            columns = [name for name in row.keys() if name in texts]  # noqa: SIM118 - a Row, not a dict
            if any(texts[name] and not isinstance(row[name], str) for name in columns):
                source.incomplete = True
                continue
            marks = ", ".join("?" * len(columns))
            db.execute(
                f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({marks})",
                [row[name] for name in columns],
            )


def _copy_vectors(source: DamagedStore, store: KnowledgeStore) -> int:
    found = source.rows("vectors")
    count = 0
    while page := list(islice(found, _PAGE)):
        rows = [(row["hash"], row["vector"]) for row in page if isinstance(row["vector"], bytes)]
        with store.database.write() as db:
            db.executemany("INSERT OR IGNORE INTO offered_vectors VALUES (?, ?)", rows)
        count += len(rows)
    return count


def _submit(store: KnowledgeStore, drafts: Iterator[DocumentDraft]) -> None:
    with store.database.write():
        job = JobUpload(store.database, {"salvaged": True})
        while page := list(islice(drafts, _PAGE)):
            packed = [(d.uri, json.dumps(pack_draft(d), ensure_ascii=False).encode()) for d in page]
            job.append(packed)
        job.acknowledge()


def _copy_jobs(source: DamagedStore, store: KnowledgeStore) -> int:
    """Copy unfinished jobs with their remaining documents, which were acknowledged."""
    count = 0
    for job in source.select(
        "SELECT key, kind, request FROM jobs WHERE state IN ('queued', 'listing', 'running') ORDER BY key"
    ):
        try:
            request = json.loads(job["request"])
        except (TypeError, ValueError):
            source.incomplete = True
            continue
        given = source.select(
            "SELECT uri, payload FROM items WHERE job = ? AND state = 'pending' ORDER BY ordinal",
            (job["key"],),
        )
        items = [
            JobItem(item["uri"], item["payload"]) for item in given if isinstance(item["payload"], bytes)
        ]
        if items:
            store.jobs.submit(request, items, listed=True)
            count += len(items)
        elif "paths" in request or "urls" in request:  # the job lists its files again
            store.jobs.submit(request, kind="sync" if job["kind"] == "sync" else "add")
            count += len(given)
    return count


def _swap_in(fresh: Path, path: Path) -> Path:
    """Swap a new store in for a damaged one; one of the two exists at every moment."""
    kept = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    for suffix in ("-wal", "-shm"):  # else SQLite would apply them to the new one
        sidecar = path.with_name(path.name + suffix)
        if sidecar.exists():
            sidecar.replace(kept.with_name(kept.name + suffix))
    _link_or_copy(path, kept)
    fresh.replace(path)
    return kept


def _link_or_copy(path: Path, kept: Path) -> None:
    """Hard-link a file under a second name; copy it where the file system has no links."""
    try:
        kept.hardlink_to(path)
    except OSError:
        shutil.copy2(path, kept)


def _remove_database(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


_MOST_TRIES = 10_000_000  # some minutes
_HEADER = 100  # bytes, see "The Database Header" in SQLite's description of its file format
_PAGES_AT = slice(28, 32)  # in the header: number of pages of the file
_FREE_PAGES_AT = slice(32, 40)


class DamagedStore:
    """Reads the tables of a damaged store, as far as possible; writes nothing.

    Args:
        path: the damaged file.

    Attributes:
        incomplete: whether some requested rows could not even be counted.
    """

    def __init__(self, path: Path) -> None:
        self.incomplete = False
        self._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        self._db.row_factory = sqlite3.Row
        self._db.text_factory = _any_text
        with suppress(sqlite3.Error):
            # Else SQLite refuses to read a truncated file at all.
            self._db.execute("PRAGMA writable_schema=ON")

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def version(self) -> int:
        """Return the format of the file; 0 if it cannot be read."""
        with suppress(sqlite3.Error):
            return int(self._db.execute("PRAGMA user_version").fetchone()[0])
        return 0

    def select(self, sql: str, parameters: tuple[object, ...] = ()) -> list[sqlite3.Row]:
        """Return the rows of a statement up to the first that cannot be read."""
        found: list[sqlite3.Row] = []
        try:
            found.extend(self._db.execute(sql, parameters))
        except sqlite3.Error:
            self.incomplete = True
        return found

    def rows(self, table: str) -> Iterator[sqlite3.Row]:
        """Yield the rows of a table that can be read, by rowid."""
        after = 0
        while True:
            try:
                rows = self._db.execute(
                    f"SELECT rowid AS _row, * FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT ?",
                    (after, _PAGE),
                ).fetchall()
            except sqlite3.Error:
                break
            if not rows:
                return
            yield from rows
            after = rows[-1]["_row"]
        # From here on row by row, as the extent of the damage is unknown.
        last = self._last(table)
        if last - after > _MOST_TRIES:  # implausible: the number itself is damaged
            self.incomplete, last = True, after + _MOST_TRIES
        for rowid in range(after + 1, last + 1):
            with suppress(sqlite3.Error):
                row = self._db.execute(f"SELECT * FROM {table} WHERE rowid = ?", (rowid,)).fetchone()
                if row is not None:
                    yield row

    def uris(self) -> set[str]:
        """Return the URIs of the documents that should exist, by table and index."""
        known: set[object] = set()  # a damaged page may hold anything
        whole = False
        for order in ("rowid", "uri"):  # the latter is read from a separate index
            with suppress(sqlite3.Error):
                known.update(
                    row["uri"] for row in self._db.execute(f"SELECT uri FROM documents ORDER BY {order}")
                )
                whole = True
        uris = {uri for uri in known if isinstance(uri, str)}
        self.incomplete = self.incomplete or not whole or uris != known
        return uris

    def _last(self, table: str) -> int:
        for sql in (
            f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'",
            f"SELECT MAX(rowid) FROM {table}",
        ):
            with suppress(sqlite3.Error):
                row = self._db.execute(sql).fetchone()
                if row is not None and isinstance(row[0], int):
                    return row[0]
        return 0


def is_database(path: Path) -> bool:
    """Whether a file begins with a SQLite header, whatever follows."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            db.execute("PRAGMA writable_schema=ON")
            db.execute("PRAGMA schema_version").fetchone()
    except sqlite3.DatabaseError as error:
        return error.sqlite_errorcode != sqlite3.SQLITE_NOTADB
    return True


def repair_header(path: Path, *, like: Path) -> None:
    """Replace the header of a database, which describes its pages and holds no data.

    Args:
        path: the database, which is changed.
        like: a sound database of the same format, with an empty log.
    """
    with like.open("rb") as sound:
        header = bytearray(sound.read(_HEADER))
    page_size = int.from_bytes(header[16:18], "big")
    header[_PAGES_AT] = (path.stat().st_size // page_size).to_bytes(4, "big")
    header[_FREE_PAGES_AT] = bytes(8)
    with path.open("r+b") as file:
        file.write(header)


def _any_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
