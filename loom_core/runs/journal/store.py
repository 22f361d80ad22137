"""The database of a journal: opened on first use, read by a thread pool, written by one thread."""

from __future__ import annotations

import asyncio
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from anyio import to_thread
from anyio.lowlevel import checkpoint_if_cancelled

from loom_core.errors import StoreError
from loom_core.runs.journal.drivers import LEASE_SECONDS, LeasingDrivers, LockingDrivers
from loom_core.runs.journal.notifier import Notifier
from loom_core.runs.journal.rows.schema import POSTGRES_SCRIPTS, SCHEMA
from loom_core.runs.journal.search import index_batch
from loom_core.runs.journal.writer import Writer
from loom_core.storage import Database
from loom_core.storage.postgres import PostgresDatabase
from loom_core.storage.postgres_pool import check_address
from loom_core.storage.sql import refuse_unfinished_copy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pydantic import SecretStr

    from loom_core.runs.journal.drivers import DriverRegistry
    from loom_core.runs.journal.notifier import WakeBatch
    from loom_core.storage.sql import SQLConnection, SQLDatabase

__all__ = ["JournalStore", "Place", "PostgresPlace", "open_database"]

_T = TypeVar("_T")
_READERS = 4
_CHECKPOINT_PAGES = 4000  # 16 MB: few enough to be copied back unnoticed


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """Journal in PostgreSQL: a schema of a database, see `PostgresDatabase`.

    Attributes:
        url: the database, `postgresql://user@host/database`.
        name: end of the schema's name: `loom_runs`, or with `?schema=team` in the URL, `team_runs`.
        secret: the password; None as for `PostgresDatabase`.
        lease_seconds: time after which a process that is not heard of counts as dead; the same for all.

    Raises:
        ConfigError: the URL is not one of PostgreSQL, or holds a password.
    """

    url: str
    name: str = "runs"
    secret: SecretStr | None = None
    lease_seconds: float = LEASE_SECONDS

    def __post_init__(self) -> None:
        check_address(self.url)

    def exists(self) -> bool:
        """Whether there may be a journal, as of a path: only the server knows."""
        return True

    def __str__(self) -> str:
        return f"{self.url} ({self.name})"


Place: TypeAlias = "Path | PostgresPlace | None"
"""Where a journal is: in a file, in PostgreSQL, or in memory."""


class _OpenDatabase:
    """Resources that exist while the database is open."""

    def __init__(self, place: Place, switchboard: Notifier) -> None:
        self.database, self.drivers = open_database(place)
        try:
            refuse_unfinished_copy(self.database, place)
        except StoreError:
            self.database.close()
            raise
        self.readers = ThreadPoolExecutor(_READERS, "loom-journal-reader")
        self.writer = Writer(
            self.database,
            notifier=None if place is None else switchboard,
            listen=self.database.listen if isinstance(self.database, PostgresDatabase) else None,
            idle=index_batch,
            last=self._close,
        )

    def _close(self) -> None:
        """Release the runs of this process; the last step."""
        if own := self.drivers.own:
            try:
                with self.database.write(durable=False) as db:
                    self.drivers.release_runs(db, own)
            except StoreError:
                pass  # leaving has the same effect
        self.drivers.leave()
        self.database.close()


def open_database(place: Place) -> tuple[SQLDatabase, DriverRegistry]:
    """Open the database of a journal, made if absent, and its registry of drivers. Blocks."""
    if isinstance(place, PostgresPlace):
        shared = PostgresDatabase(
            place.url, name=place.name, schema=SCHEMA, more=POSTGRES_SCRIPTS, secret=place.secret
        )
        return shared, LeasingDrivers(shared, seconds=place.lease_seconds)
    if place is not None:
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"The folder of {place} cannot be created: {error.strerror or error}.",
                advice="Create it yourself, or choose another place for the journal.",
            ) from error
    database = Database(
        place,
        schema=SCHEMA,
        checkpoint_pages=_CHECKPOINT_PAGES,
        repair="Restore it from a backup, or start a new one.",
    )
    return database, LockingDrivers(None if place is None else place.with_name(f"{place.name}.drivers"))


class JournalStore:
    """Database of a journal. Every coroutine raises StoreError if it fails.

    Args:
        place: where it is.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.notifier = Notifier()
        self._opened: _OpenDatabase | None = None
        self._opening = threading.Lock()
        self._closed = False

    async def read(self, function: Callable[[SQLConnection], _T]) -> _T:
        """Call a function with a snapshot of the file."""
        opened = await self._open()
        if self.place is None:  # one connection for all: read in the writer's thread
            await checkpoint_if_cancelled()  # a loop that only reads must be cancellable
            return await opened.writer.run_in_transaction(function)

        def read() -> _T:
            with opened.database.snapshot() as db:
                return function(db)

        try:
            return await asyncio.get_running_loop().run_in_executor(opened.readers, read)
        except RuntimeError as error:
            if self._closed:
                raise self._closing_error() from error
            raise

    async def write(
        self,
        function: Callable[[SQLConnection], _T],
        *,
        after: Callable[[_T, WakeBatch], object] | None = None,
    ) -> _T:
        """Call a function in a transaction; see `Writer.run_in_transaction`."""
        return await (await self._open()).writer.run_in_transaction(function, after=after)

    @property
    def writer(self) -> Writer:
        """The writer of the open file."""
        if self._opened is None:
            raise self._closing_error()
        return self._opened.writer

    async def drivers(self) -> DriverRegistry:
        """Return the registry of drivers."""
        return (await self._open()).drivers

    async def enter(self) -> DriverRegistry:
        """Register this process as a driver; return the registry."""
        drivers = await self.drivers()
        if not drivers.own:
            await to_thread.run_sync(drivers.enter)

            def register(db: SQLConnection) -> None:
                drivers.clean(db)
                drivers.register(db)

            await self.write(register)
        return drivers

    async def aclose(self) -> None:
        """Write queued changes, and close the file."""
        self._closed = True
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.writer.stop()
            await to_thread.run_sync(opened.writer.join)
            opened.readers.shutdown(wait=False)

    async def _open(self) -> _OpenDatabase:
        if self._closed:
            raise self._closing_error()
        return self._opened or await to_thread.run_sync(self._open_now)

    def _open_now(self) -> _OpenDatabase:
        with self._opening:
            if self._opened is None:
                self._opened = opened = _OpenDatabase(self.place, self.notifier)
                if self.place is not None:
                    self.notifier.on_first_waiter = opened.writer.wake_up
                # If a program does not close the store, the thread still stops.
                weakref.finalize(self, opened.writer.stop).atexit = False
            return self._opened

    def _closing_error(self) -> StoreError:
        return StoreError("The journal is closed.", advice="Open it again to go on.")
