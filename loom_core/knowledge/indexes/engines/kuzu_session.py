"""One connection to a Kùzu database: statements prepared once, errors in Loom's words."""

from __future__ import annotations

import importlib
import logging
import time
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from loom_core.errors import IndexDamagedError, InvalidInputError, LoomError, StoreBusyError
from loom_core.knowledge.indexes.engines.damage import REBUILD_ADVICE, first_line

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    import kuzu

__all__ = ["ENGINE_ERRORS", "KuzuSession", "connect", "lacks_memory", "open_database", "translated"]

_log = logging.getLogger(__name__)

_ASK_LESS = "Ask for fewer hops or a more particular entity."

ENGINE_ERRORS = (RuntimeError, IndexError, ValueError, MemoryError, OSError)
"""What the engine raises: its own errors are all RuntimeError, the rest are translated C++ exceptions."""


class KuzuSession:
    """A connection, used by one thread at a time."""

    def __init__(self, connection: kuzu.Connection, *, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._prepared: dict[str, kuzu.PreparedStatement] = {}
        self._deadline: float | None = None

    def rows(self, statement: str, **parameters: float | str | list[int]) -> list[list[object]]:
        """Run one statement of ours and give all its rows.

        Raises:
            InvalidInputError: a question did not end in time or needs too much memory, or a parameter is no
                64-bit number or UTF-8.
            IndexDamagedError: the engine failed.
        """
        try:
            if self._deadline is not None:
                left = self._deadline - time.monotonic()
                self._connection.set_query_timeout(max(1, round(left * 1000)))
            found = self._connection.execute(self._prepare(statement), parameters)
            return cast("list[list[object]]", list(found))
        except ENGINE_ERRORS as error:
            if self._deadline is not None and lacks_memory(error):  # a change that does has to be a rebuild
                raise InvalidInputError(
                    "The graph would need more memory for the answer than it may take.", advice=_ASK_LESS
                ) from error
            raise translated(error, path=self._path) from error

    def run(self, statement: str) -> None:
        """Run one statement that cannot be prepared: a definition, a COPY, the bound of a transaction.

        Raises:
            InvalidInputError: a COPY names an entity that does not exist, or one twice.
            IndexDamagedError: the engine failed.
        """
        try:
            self._connection.execute(statement)
        except ENGINE_ERRORS as error:
            raise translated(error, path=self._path) from error

    @contextmanager
    def change(self) -> Generator[None]:
        """All the block's statements or none, without a time limit: deleting a hub takes seconds."""
        self.run("BEGIN TRANSACTION")
        with self._ended():
            yield

    @contextmanager
    def question(self, *, timeout_ms: int) -> Generator[None]:
        """One state of the graph for all the block's statements, and one time limit."""
        self.run("BEGIN TRANSACTION READ ONLY")
        self._deadline = time.monotonic() + timeout_ms / 1000
        try:
            with self._ended():
                yield
        finally:
            self._deadline = None

    def close(self) -> None:
        """Release the connection."""
        self._prepared.clear()
        self._connection.close()

    @contextmanager
    def _ended(self) -> Generator[None]:
        try:
            yield
        except BaseException:
            self._roll_back()
            raise
        self.run("COMMIT")

    def _roll_back(self) -> None:
        try:
            self.run("ROLLBACK")
        except LoomError as error:
            # An error of the engine inside a transaction has rolled it back already.
            _log.debug("Nothing to roll back: %s", error)

    def _prepare(self, statement: str) -> kuzu.PreparedStatement:
        prepared = self._prepared.get(statement)
        if prepared is None:
            with warnings.catch_warnings():
                # Deprecated in 0.11, yet three times as fast as preparing at every call.
                warnings.simplefilter("ignore", DeprecationWarning)
                prepared = self._connection.prepare(statement)
            self._prepared[statement] = prepared
        return prepared


def open_database(
    module: str, path: Path, *, buffer_pool: int, max_db_size: int, read_only: bool = False
) -> kuzu.Database:
    """Open a database file, or make it.

    Args:
        module: name of the engine's Python module, `kuzu` or its fork `ladybug`.
        path: the database file.
        buffer_pool: bytes; the default would be four fifths of the machine's memory.
        max_db_size: bytes of address space, a power of 2; the default of 8 TiB fails in containers.
        read_only: change nothing, replay the log in memory.
    """
    engine = importlib.import_module(module)
    return engine.Database(
        str(path),
        buffer_pool_size=buffer_pool,
        max_num_threads=2,
        max_db_size=max_db_size,
        read_only=read_only,
    )


def connect(module: str, database: kuzu.Database) -> kuzu.Connection:
    """A connection to an open database: one for each thread."""
    return importlib.import_module(module).Connection(database)


def lacks_memory(error: Exception) -> bool:
    """Whether the engine had too little memory, as it says in several ways."""
    return isinstance(error, MemoryError) or any(
        sign in str(error) for sign in ("bad_alloc", "Buffer manager")
    )


def translated(error: Exception, *, path: Path) -> LoomError:
    """The engine's error as one of ours, told by its text: all of them are RuntimeError."""
    text = str(error)
    if text.startswith("Interrupted"):
        return InvalidInputError("The graph did not answer in time.", advice=_ASK_LESS)
    if "Unable to cast Python instance" in text or isinstance(error, UnicodeError):
        return InvalidInputError(
            "The graph cannot store a value.", advice="Use keys below 2^63 and text that is valid Unicode."
        )
    if text.startswith("Copy exception") and "primary key" in text:
        return InvalidInputError(
            f"The graph cannot be loaded: {first_line(error)}.",
            advice="Give every entity once, and relations between those only.",
        )
    if "Could not set lock" in text:
        return StoreBusyError(
            f"Another process holds the graph at {path}.",
            advice="Close that process, or ask the one that owns the knowledge base.",
        )
    return IndexDamagedError(f"The graph at {path} failed: {first_line(error)}.", advice=REBUILD_ADVICE)
