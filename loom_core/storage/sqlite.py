"""SQLite as Loom uses it: WAL, one writer at a time, a connection for each thread."""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from loom_core.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

__all__ = ["Database"]

_BUSY_SECONDS = 30.0
_LIST = 900  # below the 999 parameters that every SQLite takes


class Database:
    """One SQLite database, usable from every thread and by several processes.

    In a file it is in WAL mode with `synchronous=FULL`: what a transaction committed survives a kill
    and a power cut, and readers never wait for the writer. In memory (`path=None`) every thread
    takes its turn at one connection.

    Args:
        path: the database file, made if absent; None for a database in memory.
        schema: one SQL script per version; version n of a file means that the first n scripts ran.

    Raises:
        RecordError: the file cannot be opened or written, is not a database, or was written by a
            newer Loom.
    """

    def __init__(self, path: Path | None, *, schema: Sequence[str]) -> None:
        self._path = path
        self._schema = schema
        self._local = threading.local()
        self._writing = threading.RLock()
        self._idle: deque[sqlite3.Connection] = deque()
        self._closed = False
        with self._explained():
            self._migrate()

    @contextmanager
    def read(self) -> Generator[sqlite3.Connection]:
        """A connection for reading; statements see what was committed when each began.

        Inside a `write` of the same thread it is that transaction's connection.
        """
        with self._explained(), self._borrowed() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Generator[sqlite3.Connection]:
        """A connection whose statements all see the same moment."""
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
    def write(self) -> Generator[sqlite3.Connection]:
        """One transaction: committed at the end of the block, undone if the block raises."""
        with self._explained(), self._writing, self._borrowed() as connection:
            if connection.in_transaction:  # part of a transaction further up
                yield connection
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """All rows of one reading statement."""
        with self.read() as connection:
            return connection.execute(sql, parameters).fetchall()

    def rows_in(self, sql: str, values: Sequence[Any], parameters: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """All rows of a reading statement about a list of any length.

        Args:
            sql: the statement, with `IN ({})` where the list goes, before any other parameter.
            values: the list.
            parameters: those that come after it.
        """
        found: list[sqlite3.Row] = []
        with self.read() as connection:
            for start in range(0, len(values), _LIST):
                part = values[start : start + _LIST]
                marks = ",".join("?" * len(part))
                found += connection.execute(sql.format(marks), [*part, *parameters]).fetchall()
        return found

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Row | None:
        """The first row of one reading statement, or None."""
        with self.read() as connection:
            return connection.execute(sql, parameters).fetchone()

    def close(self) -> None:
        """Close every idle connection; those in use close when they are given back."""
        with self._writing:
            self._closed = True
            while self._idle:
                self._idle.pop().close()

    @contextmanager
    def _borrowed(self) -> Generator[sqlite3.Connection]:
        current: sqlite3.Connection | None = getattr(self._local, "current", None)
        if current is not None:
            yield current
            return
        # In memory there is one connection only, and holding the lock is having it.
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

    def _take(self) -> sqlite3.Connection:
        if self._closed:
            raise sqlite3.ProgrammingError("the database is closed")
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path or ":memory:", timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA temp_store=MEMORY")
        if self._path is not None:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA cache_size=-32768")
            connection.execute("PRAGMA mmap_size=268435456")
        return connection

    def _migrate(self) -> None:
        schema = self._schema
        with self.read() as connection:
            if connection.execute("PRAGMA user_version").fetchone()[0] == len(schema):
                return
        with self.write() as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > len(schema):
                raise RecordError(
                    f"{self._path} was written by a newer Loom (format {version}, this one knows "
                    f"{len(schema)}).",
                    advice="Upgrade this installation; nothing was changed.",
                )
            for script in schema[version:]:
                for statement in filter(str.strip, script.split(";\n")):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version={len(schema)}")

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise RecordError(f"{self._path or 'the database'}: {error}.", advice=_advice(error)) from error


def _advice(error: sqlite3.Error) -> str:
    text = str(error)
    if "full" in text:
        return "The disk is full: free some space; everything acknowledged so far is safe."
    if "readonly" in text or "unable to open" in text:
        return "Check that the folder exists and that this user may write to it."
    if "not a database" in text or "malformed" in text:
        return "The file is damaged or not Loom's: restore it from a backup, or move it away to start anew."
    if "locked" in text or "busy" in text:
        return f"Another process has been writing for over {_BUSY_SECONDS:.0f} s: try again, or stop it."
    return "Run the command again with --debug for details."
