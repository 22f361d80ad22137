"""SQLite databases: WAL mode, one writer at a time, a connection per thread, migrations."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import threading
import time
from collections import deque
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from loom_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

__all__ = ["Database", "back_up"]

_log = logging.getLogger(__name__)
_MIGRATION_SECONDS = 3600  # timeout while another process copies and migrates a large file
_LOOK_SECONDS = 0.01
_LIST = 900  # below 999, the limit of parameters in every SQLite


class _Connection(sqlite3.Connection):
    """A connection that knows whether its commits are flushed."""

    _is_durable: bool | None = None

    def set_durable(self, durable: bool) -> None:
        """Flush the following commits to the disk, or not."""
        if durable != self._is_durable:
            self.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._is_durable = durable


class Database:
    """One SQLite database, usable from every thread and by several processes.

    A file is in WAL mode with `synchronous=FULL`: committed transactions survive a kill and a power cut, and
    readers never wait for the writer. In memory (`path=None`) threads take turns at one connection.

    Args:
        path: the database file, created if missing; None for a database in memory.
        schema: one SQL script per version; version n of a file means that the first n scripts ran. Missing
            ones run in one transaction, after a backup of the file next to it (`back_up`).
        read_only: refuse to change anything.
        busy_seconds: timeout in seconds for another writing process.
        checkpoint_pages: pages of 4 KB in the write-ahead log before they are copied back. By default 128 MB:
            a batch of an ingest changes up to 9,000 of a large file, many of which the next batches change
            again, so that each is copied back once for several of them.
        repair: advice if the file is damaged, in a sentence.

    Raises:
        StoreError: the file cannot be opened or written, is not a database, was written by a newer Loom,
            or is older and there is no room for a copy of it.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        schema: Sequence[str],
        read_only: bool = False,
        busy_seconds: float = 30.0,
        checkpoint_pages: int = 32_000,
        repair: str = "`loom-kb check --repair` saves what can be read of it.",
    ) -> None:
        self._path = path
        self._repair = repair
        self._schema = schema
        self._read_only = read_only
        self._busy_seconds = busy_seconds
        self._checkpoint_pages = checkpoint_pages
        self._local = threading.local()
        self._writing = threading.RLock()
        self._idle: deque[_Connection] = deque()
        self._closed = False
        self._migrated = False
        with self._translate_errors():
            self._migrate()
        self._migrated = True

    @contextmanager
    def read(self) -> Generator[sqlite3.Connection]:
        """Yield a connection for reading; each statement sees the transactions committed before it.

        Inside a `write` of the same thread it is that transaction's connection.
        """
        with self._translate_errors(), self._lease_connection() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Generator[sqlite3.Connection]:
        """Yield a connection whose statements all see the same snapshot."""
        with self.read() as connection:
            if connection.in_transaction:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("COMMIT")

    @contextmanager
    def write(self, *, durable: bool = True) -> Generator[sqlite3.Connection]:
        """Run a transaction: commit at the end of the block, roll back if the block raises.

        Args:
            durable: flush the commit to the disk (fsync), so that it survives a power failure; if not, it
                survives a kill of this process.
        """
        with self._translate_errors(), self._writing, self._lease_connection() as connection:
            if connection.in_transaction:  # part of an outer transaction
                yield connection
                return
            connection.set_durable(durable)
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._check_version(connection)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def hold_connection(self) -> AbstractContextManager[object]:
        """Return a context in which this thread keeps its connection: `change_mark` compares for one.

        In memory there is one connection for all threads, which no thread may keep.
        """
        return nullcontext() if self._path is None else self.read()

    def change_mark(self) -> object:
        """Return a value that changes with each commit of another connection."""
        with self.read() as connection:
            return connection.execute("PRAGMA data_version").fetchone()[0]

    def has_table(self, name: str) -> bool:
        """Whether there is a table with a name."""
        sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return self.row(sql, (name,)) is not None

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Return all rows of a query."""
        with self.read() as connection:
            return connection.execute(sql, parameters).fetchall()

    def rows_in(self, sql: str, values: Sequence[Any], parameters: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Return all rows of a query with a list of any length.

        Args:
            sql: the query, with `IN ({})` for the list, before any other parameter.
            values: the list.
            parameters: the parameters after it.
        """
        found: list[sqlite3.Row] = []
        with self.read() as connection:
            for start in range(0, len(values), _LIST):
                part = values[start : start + _LIST]
                marks = ",".join("?" * len(part))
                found += connection.execute(sql.format(marks), [*part, *parameters]).fetchall()
        return found

    def rows_each(self, sql: str, parameters: Sequence[Sequence[Any]]) -> list[list[sqlite3.Row]]:
        """Return the rows of a query for each of several lists of parameters."""
        with self.read() as connection:
            return [connection.execute(sql, each).fetchall() for each in parameters]

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Row | None:
        """Return the first row of a query, or None."""
        with self.read() as connection:
            return connection.execute(sql, parameters).fetchone()

    def compact(self) -> None:
        """Rewrite the file without its free pages, which may hold deleted rows, and empty its log. Blocks.

        Raises:
            StoreError: another connection reads an earlier state for too long, which stays in the file.
        """
        with self.read() as connection:
            connection.execute("VACUUM")
            is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if is_busy:
            raise StoreError(
                f"{self._path} may still hold deleted rows: it was read for over {self._busy_seconds:g} s.",
                advice="Close the other programs that use it, and try again.",
            )

    def close(self) -> None:
        """Close every idle connection; those in use close when they are returned."""
        with self._writing:
            self._closed = True
            while self._idle:
                self._idle.pop().close()

    @contextmanager
    def _lease_connection(self) -> Generator[_Connection]:
        current: _Connection | None = getattr(self._local, "current", None)
        if current is not None:
            yield current
            return
        # In memory there is only one connection, guarded by the lock.
        with self._writing if self._path is None else nullcontext():
            connection = self._local.current = self._take()
            try:
                yield connection
            finally:
                self._local.current = None
                if self._closed:
                    connection.close()
                else:
                    self._idle.append(connection)

    def _take(self) -> _Connection:
        if self._closed:
            raise sqlite3.ProgrammingError("the database is closed")
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _connect(self) -> _Connection:
        connection = sqlite3.connect(
            self._path or ":memory:",
            timeout=self._busy_seconds,
            isolation_level=None,
            check_same_thread=False,
            factory=_Connection,
        )
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA temp_store=MEMORY")
        if self._path is not None:
            self._use_wal(connection)
            connection.set_durable(True)
            connection.execute("PRAGMA fullfsync=ON")  # else macOS leaves it in the disk's own cache
            connection.execute(f"PRAGMA wal_autocheckpoint={self._checkpoint_pages}")
            connection.execute("PRAGMA cache_size=-32768")
            connection.execute("PRAGMA mmap_size=268435456")
        if self._read_only:
            connection.execute("PRAGMA query_only=ON")
        return connection

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Switch the file to WAL mode. SQLite does not wait here if others create the file: so we retry."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(_LOOK_SECONDS)

    def _migrate(self) -> None:
        known = len(self._schema)
        with self._lease_connection() as connection:
            if self._version_of(connection) == known:
                return
            # The first process migrates; the others wait for as long as that takes.
            connection.execute(f"PRAGMA busy_timeout={1000 * _MIGRATION_SECONDS}")
            try:
                with self.write() as db:
                    self._run_missing(db)
            finally:
                connection.execute(f"PRAGMA busy_timeout={round(1000 * self._busy_seconds)}")

    def _run_missing(self, db: sqlite3.Connection) -> None:
        """Run the missing migrations, inside a transaction, so that no other process can write."""
        version, known = self._version_of(db), len(self._schema)
        if version == known:
            return
        if version > known:
            raise StoreError(
                f"{self._path} was written by a newer Loom (format {version}, this one knows {known}).",
                advice="Upgrade this installation; nothing was changed.",
            )
        backup = None
        if self._path is not None and version > 0:
            backup = back_up(self._path, version=version)
        for script in self._schema[version:]:
            for statement in filter(str.strip, script.split(";\n")):
                db.execute(statement)
        db.execute(f"PRAGMA user_version={known}")
        if backup is not None:
            _log.warning(
                "%s is migrated from format %d to %d. A backup is kept as %s, which you may delete.",
                self._path,
                version,
                known,
                backup,
            )

    def _check_version(self, db: sqlite3.Connection) -> None:
        """Refuse to write a file that a newer Loom has migrated while it was open here."""
        if self._migrated and self._version_of(db) != len(self._schema):
            raise StoreError(
                f"{self._path} was migrated by a newer Loom while it was open here.",
                advice="Restart this program with the newer version; nothing was changed.",
            )

    @staticmethod
    def _version_of(connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            advice = self._advice(error)
            raise StoreError(f"{self._path or 'the database'}: {error}.", advice=advice) from error

    def _advice(self, error: sqlite3.Error) -> str:
        text = str(error)
        if "full" in text:
            return "The disk is full: free some space; everything acknowledged so far is safe."
        if "readonly" in text or "unable to open" in text:
            return "Check that the folder exists and that this user may write to it."
        if any(sign in text for sign in ("not a database", "malformed", "decode to UTF-8")):
            return f"It is damaged. {self._repair}"
        if "locked" in text or "busy" in text:
            return f"Another process was writing for over {self._busy_seconds:g} s: try again, or stop it."
        if "disk I/O" in text:  # also for a full disk, if SQLite cannot tell
            return "Check whether the disk is full or failing; everything acknowledged so far is safe."
        return "Run the command again with --debug for details."


_SPARE = 64 << 20  # bytes for the migration after the copy


def back_up(path: Path, *, version: int) -> Path:
    """Back up a database to `<name>.v<version>.backup` next to it.

    The write is atomic: the backup is complete, or as it was before. An older one is replaced. Hold the
    database's write lock during the call, so that the copy is the final state of that version.

    Args:
        path: the database file.
        version: its format, for the name.

    Returns:
        The copy.

    Raises:
        StoreError: there is no room for it, or it cannot be written.
    """
    copy = path.with_name(f"{path.name}.v{version}.backup")
    partial = copy.with_name(copy.name + ".partial")
    try:
        partial.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as source:
            _check_room(source, path)
            with closing(sqlite3.connect(partial)) as target:
                # It is flushed below, and discarded if that fails.
                target.execute("PRAGMA journal_mode=OFF")
                target.execute("PRAGMA synchronous=OFF")
                source.backup(target)
        _flush(partial)
        partial.replace(copy)
        _flush(path.parent)
    except OSError as error:
        raise StoreError(
            f"No copy of {path} can be made before it is changed: {error.strerror}.",
            advice="Make room or the folder writable; nothing was changed.",
        ) from error
    return copy


def _check_room(source: sqlite3.Connection, path: Path) -> None:
    pages, size = (source.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    needed = pages * size + _SPARE
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise StoreError(
            f"{path} is of an older format and has to be copied before it is changed, which takes "
            f"{needed >> 20:,} MiB; {free >> 20:,} are free.",
            advice="Make room on the disk; nothing was changed.",
        )


def _flush(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # folders cannot be flushed there
    file = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
