"""The database of a journal: opened on first use, read by a thread pool, written by one thread."""

from __future__ import annotations

import asyncio
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from anyio import to_thread
from anyio.lowlevel import checkpoint_if_cancelled

from loom_core.errors import RecordError
from loom_core.runs.journal.drivers import Drivers
from loom_core.runs.journal.notifier import Switchboard
from loom_core.runs.journal.rows.schema import SCHEMA
from loom_core.runs.journal.search import read_some
from loom_core.runs.journal.writer import Writer
from loom_core.storage import Database

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

    from loom_core.runs.journal.notifier import Wake

__all__ = ["Store"]

_T = TypeVar("_T")
_READERS = 4


class _Opened:
    """Resources that exist while the file is open."""

    def __init__(self, path: Path | None, switchboard: Switchboard) -> None:
        if path is not None:
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise RecordError(
                    f"The folder of {path} cannot be created: {error.strerror or error}.",
                    advice="Create it yourself, or choose another place for the journal.",
                ) from error
        self.database = Database(path, schema=SCHEMA, repair="Restore it from a backup, or start a new one.")
        self.drivers = Drivers(None if path is None else path.with_name(f"{path.name}.drivers"))
        self.readers = ThreadPoolExecutor(_READERS, "loom-journal-reader")
        self.writer = Writer(
            self.database,
            poll=None if path is None else switchboard.poll,
            polling=lambda: switchboard.polling,
            idle=read_some,
            last=self._close,
        )

    def _close(self) -> None:
        """Release the runs of this process; the last step."""
        if self.drivers.own:
            try:
                with self.database.write() as db:
                    db.execute("UPDATE runs SET driver = NULL WHERE driver = ?", (self.drivers.own,))
                    db.execute("DELETE FROM drivers WHERE id = ?", (self.drivers.own,))
            except RecordError:
                pass  # releasing the lock has the same effect
        self.drivers.leave()
        self.database.close()


class Store:
    """Database of a journal, in a file or in memory. Every coroutine raises RecordError if it fails.

    Args:
        path: the file; None keeps everything in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.switchboard = Switchboard()
        self._opened: _Opened | None = None
        self._opening = threading.Lock()
        self._closed = False

    async def read(self, function: Callable[[sqlite3.Connection], _T]) -> _T:
        """Call a function with a snapshot of the file."""
        opened = await self._open()
        if self.path is None:  # one connection for all: read in the writer's thread
            await checkpoint_if_cancelled()  # a loop that only reads must be cancellable
            return await opened.writer.do(function)

        def read() -> _T:
            with opened.database.snapshot() as db:
                return function(db)

        try:
            return await asyncio.get_running_loop().run_in_executor(opened.readers, read)
        except RuntimeError as error:
            if self._closed:
                raise self._gone() from error
            raise

    async def write(
        self,
        function: Callable[[sqlite3.Connection], _T],
        *,
        after: Callable[[_T, Wake], object] | None = None,
    ) -> _T:
        """Call a function in a transaction; see `Writer.run_in_transaction`."""
        return await (await self._open()).writer.do(function, after=after)

    @property
    def writer(self) -> Writer:
        """The writer of the open file."""
        if self._opened is None:
            raise self._gone()
        return self._opened.writer

    async def drivers(self) -> Drivers:
        """Return the registry of drivers."""
        return (await self._open()).drivers

    async def enter(self) -> Drivers:
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

    async def _open(self) -> _Opened:
        if self._closed:
            raise self._gone()
        return self._opened or await to_thread.run_sync(self._open_now)

    def _open_now(self) -> _Opened:
        with self._opening:
            if self._opened is None:
                self._opened = opened = _Opened(self.path, self.switchboard)
                if self.path is not None:
                    self.switchboard.nudge = opened.writer.nudge
                # If a program does not close the store, the thread still stops.
                weakref.finalize(self, opened.writer.stop).atexit = False
            return self._opened

    def _gone(self) -> RecordError:
        return RecordError("The journal is closed.", advice="Open it again to go on.")
