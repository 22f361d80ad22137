"""The database of a journal: opened on first use, read by a thread pool, written by one thread.

Also: waiting for events and changes of a run, in any process that executes it; and the copy of a journal to
another place, from a file to PostgreSQL or back.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from anyio import to_thread
from anyio.lowlevel import checkpoint_if_cancelled

from loom_core.errors import InvalidInputError, StoreBusyError, StoreError
from loom_core.runs.commands import revives
from loom_core.runs.events import FINAL_EVENTS
from loom_core.runs.journal.drivers import LEASE_SECONDS, LeasingDrivers, LockingDrivers
from loom_core.runs.journal.notifier import Notifier
from loom_core.runs.journal.rows.commands import load_commands
from loom_core.runs.journal.rows.runs import FINAL_STATUSES, events_of, find_run
from loom_core.runs.journal.rows.schema import POSTGRES_SCRIPTS, SCHEMA
from loom_core.runs.journal.search import index_batch
from loom_core.runs.journal.writer import Writer
from loom_core.runs.run import is_for_call
from loom_core.storage import Database
from loom_core.storage.postgres import PostgresDatabase
from loom_core.storage.postgres_pool import check_address
from loom_core.storage.sql import refuse_unfinished_copy
from loom_core.storage.table_copy import copy_tables

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from pydantic import SecretStr

    from loom_core.runs.events import StreamEvent
    from loom_core.runs.journal.drivers import DriverRegistry
    from loom_core.runs.journal.notifier import WakeBatch
    from loom_core.runs.run import Run
    from loom_core.storage.sql import SQLConnection, SQLDatabase

__all__ = [
    "EVENTS_AT_ONCE",
    "JournalStore",
    "Place",
    "PostgresPlace",
    "copy_journal",
    "follow_events",
    "open_database",
    "wait_until_applied",
    "wait_until_idle",
]

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


EVENTS_AT_ONCE = 500
"""Page size for reading events."""

_STANDING = FINAL_STATUSES | {"input_required", "paused"}


async def follow_events(store: JournalStore, run_id: str, *, after: int) -> AsyncGenerator[StreamEvent]:
    """Stream the events of a run; see `Journal.follow`."""
    stored = await store.read(lambda db: find_run(db, run_id))
    with store.notifier.watch(stored.key, follows=True) as watch:
        at_end = True  # as far as known
        while True:
            count = watch.count
            events = watch.events_after(after)
            if events is None:
                events = await store.read(partial(_read_page, run_id=run_id, run=stored.key, after=after))
            for event in events:
                after = event.seq
                yield event
            at_end = events[-1].type in FINAL_EVENTS if events else at_end or watch.status in FINAL_STATUSES
            if at_end:
                run, _ = await store.read(partial(_read_state, run_id=run_id))
                if run.status in FINAL_STATUSES and run.last_seq <= after:
                    return
                at_end = False
            if len(events) < EVENTS_AT_ONCE:
                await watch.wait_for_change(count)


async def wait_until_idle(store: JournalStore, run_id: str, *, after: int) -> None:
    """Wait until a run has ended, is paused, or waits for a person; see `Journal.wait_until_idle`."""
    stored = await store.read(lambda db: find_run(db, run_id))
    with store.notifier.watch(stored.key) as watch:
        while True:
            count = watch.count
            if watch.status in {"", *_STANDING}:
                run, goes_on = await store.read(partial(_read_state, run_id=run_id))
                news = run.last_seq > after or run.status in FINAL_STATUSES
                if run.status in _STANDING and news and not goes_on:
                    return
            await watch.wait_for_change(count)


async def wait_until_applied(store: JournalStore, run_id: str) -> None:
    """Wait until the queued commands of a run are applied; see `Journal.wait_until_applied`."""
    stored = await store.read(lambda db: find_run(db, run_id))
    with store.notifier.watch(stored.key) as watch:
        while True:
            count = watch.count
            if not await store.read(lambda db: load_commands(db, stored.key)):
                return
            await watch.wait_for_change(count)


def _read_page(db: SQLConnection, *, run_id: str, run: int, after: int) -> list[StreamEvent]:
    return events_of(db, run_id, run, after=after, limit=EVENTS_AT_ONCE)


def _read_state(db: SQLConnection, *, run_id: str) -> tuple[Run, bool]:
    """Return the run, and whether its queued commands will make it continue."""
    stored = find_run(db, run_id)
    run, orders = stored.run, [each.command for each in load_commands(db, stored.key)]
    if run.status not in FINAL_STATUSES:
        return run, bool(orders)
    # A child run has ended with its parent: no process would adopt it.
    return run, not is_for_call(run) and any(revives(order, run.status) for order in orders)


def copy_journal(
    source: Path | PostgresPlace,
    target: Path | PostgresPlace,
    *,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Copy all runs, sessions and memories of a journal, and verify the copy; see `copy_tables`. Blocks.

    Registered processes are not copied: those that open the target take over the runs that have not ended.

    Args:
        source: the journal to read.
        target: where there is no journal, or the beginning of such a copy.
        progress: see `copy_tables`.

    Raises:
        InvalidInputError: there is no such journal, or both are the same.
        StoreBusyError: a process executes runs of one of them.
        StoreError: see `copy_tables`.
    """
    if source == target:
        raise InvalidInputError(
            f"The journal is in {source} already.",
            advice="Name another target. Without LOOM_DATABASE and --database, the source is the file.",
        )
    if not source.exists():
        raise InvalidInputError(f"There is no journal in {source}.", advice="Nothing needs to be copied.")
    read, readers = open_database(source)
    with closing(read):
        _require_idle(source, read, readers)
        written, writers = open_database(target)
        with closing(written):
            _require_idle(target, written, writers)
            copy_tables(read, written, SCHEMA, without={"drivers": "TRUE"}, progress=progress)
            _require_idle(source, read, readers)  # one may have begun meanwhile


def _require_idle(place: Path | PostgresPlace, database: SQLDatabase, drivers: DriverRegistry) -> None:
    with database.read() as db:
        titles = drivers.live_titles(db)
    if titles:
        raise StoreBusyError(
            f"Processes execute runs of {place}: {', '.join(titles)}.",
            advice="Stop all servers that use it, and try again.",
        )
