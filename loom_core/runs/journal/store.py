"""The database of a journal: opened on first use, read by a thread pool, written by one thread."""

from __future__ import annotations

import asyncio
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from anyio import to_thread
from anyio.lowlevel import checkpoint_if_cancelled

from loom_core.errors import StoreError
from loom_core.runs.journal.drivers import DriverRegistry
from loom_core.runs.journal.notifier import Notifier
from loom_core.runs.journal.rows.schema import SCHEMA
from loom_core.runs.journal.search import index_batch
from loom_core.runs.journal.writer import Writer
from loom_core.storage import Database

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

    from loom_core.runs.journal.notifier import WakeBatch

__all__ = ["JournalStore"]

_T = TypeVar("_T")
_READERS = 4


class _OpenDatabase:
    """Resources that exist while the file is open."""

    def __init__(self, path: Path | None, switchboard: Notifier) -> None:
        if path is not None:
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(
                    f"The folder of {path} cannot be created: {error.strerror or error}.",
                    advice="Create it yourself, or choose another place for the journal.",
                ) from error
        self.database = Database(path, schema=SCHEMA, repair="Restore it from a backup, or start a new one.")
        self.drivers = DriverRegistry(None if path is None else path.with_name(f"{path.name}.drivers"))
        self.readers = ThreadPoolExecutor(_READERS, "loom-journal-reader")
        self.writer = Writer(
            self.database,
            poll=None if path is None else switchboard.poll,
            polling=lambda: switchboard.needs_polling,
            idle=index_batch,
            last=self._close,
        )

    def _close(self) -> None:
        """Release the runs of this process; the last step."""
        if self.drivers.own:
            try:
                with self.database.write() as db:
                    db.execute("UPDATE runs SET driver = NULL WHERE driver = ?", (self.drivers.own,))
                    db.execute("DELETE FROM drivers WHERE id = ?", (self.drivers.own,))
            except StoreError:
                pass  # releasing the lock has the same effect
        self.drivers.leave()
        self.database.close()


class JournalStore:
    """Database of a journal, in a file or in memory. Every coroutine raises StoreError if it fails.

    Args:
        path: the file; None keeps everything in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.notifier = Notifier()
        self._opened: _OpenDatabase | None = None
        self._opening = threading.Lock()
        self._closed = False

    async def read(self, function: Callable[[sqlite3.Connection], _T]) -> _T:
        """Call a function with a snapshot of the file."""
        opened = await self._open()
        if self.path is None:  # one connection for all: read in the writer's thread
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
        function: Callable[[sqlite3.Connection], _T],
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

            def register(db: sqlite3.Connection) -> None:
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
                self._opened = opened = _OpenDatabase(self.path, self.notifier)
                if self.path is not None:
                    self.notifier.on_first_waiter = opened.writer.wake_up
                # If a program does not close the store, the thread still stops.
                weakref.finalize(self, opened.writer.stop).atexit = False
            return self._opened

    def _closing_error(self) -> StoreError:
        return StoreError("The journal is closed.", advice="Open it again to go on.")
