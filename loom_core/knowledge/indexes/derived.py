"""Base class of the derived indexes: follow the store's changes, and rebuild on damage."""

from __future__ import annotations

import logging
import re
import shutil
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

from loom_core.errors import IndexDamagedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.changes import IndexName, PendingChanges

__all__ = ["DerivedIndex", "SteppedIndex"]

_log = logging.getLogger(__name__)
_Index = TypeVar("_Index")


class DerivedIndex(ABC):
    """An index that can be rebuilt from the store at any time.

    It lives in `<name>-<generation>` next to the store, or in memory. A rebuild creates the directory of the
    next generation, and the store names the current one: an interrupted rebuild leaves the old generation
    current, and its remains are removed later. Only the process that holds the knowledge
    base's lock calls `sync`.

    Args:
        store: the store that it is derived from.
        folder: where its directories are; None keeps it in memory.
    """

    name: ClassVar[IndexName]

    def __init__(self, store: KnowledgeStore, folder: Path | None) -> None:
        self._store = store
        self._folder = folder
        self._lock = threading.RLock()
        self._probed = 0  # last generation that was probed and opens
        self._compared = 0  # last generation that was compared with the store
        self._swept = False  # whether stale generations were removed
        self._wanted: Callable[[int], object] | None = None

    def sync(self, *, limit: int = 2000) -> bool:
        """Apply up to `limit` changes of the store.

        Returns:
            Whether there may be more to apply.
        """
        with self._lock:
            if not self._swept:
                self._remove_stale_generations()
            try:
                return self._catch_up(limit)
            except IndexDamagedError as error:
                self._replace(error)
                return True

    def sync_all(self) -> None:
        """Apply all pending changes; wait for an index that is being built."""
        while self.sync() or self.wait():
            pass

    def wait(self) -> bool:
        """Wait a moment for an index that is being built elsewhere; return False if none is."""
        return False

    def lag(self) -> int:
        """Return how many changes are still to be applied."""
        changes = self._store.changes
        return changes.head() - max(0, changes.state(self.name).watermark)

    def has(self, head: int) -> bool:
        """Whether the changes up to `head` are applied."""
        return max(0, self._store.changes.state(self.name).watermark) >= head

    def close(self) -> None:
        """Release files; the next use opens them again."""
        with self._lock:
            self._close()
            self._swept = False  # meanwhile another process may be the worker

    def discard(self) -> None:
        """Delete the index, as it is no longer configured."""
        with self._lock:
            generation = self._store.changes.state(self.name).generation
            if generation or self._is_open():
                self._close()
                self._store.changes.forget(self.name)
                self._remove(generation)
                self._remove(generation + 1)

    @abstractmethod
    def _build(self, generation: int) -> None:
        """Create a new index and fill it from the store."""

    @abstractmethod
    def _apply(self, pending: PendingChanges, generation: int) -> None:
        """Apply changes; idempotent."""

    @abstractmethod
    def _close(self) -> None: ...

    def _probe(self, path: Path) -> str | None:
        """Return why the index at a path cannot be opened, or None; a child process opens it."""
        return None

    def _is_large(self, pending: PendingChanges) -> bool:
        """Whether a rebuild is cheaper than applying these changes."""
        return False

    def _path(self, generation: int) -> Path:
        if self._folder is None:
            raise AssertionError("an index in memory has no path")
        return self._folder / f"{self.name}-{generation}"

    def _catch_up(self, limit: int) -> bool:
        changes = self._store.changes
        if not (head := changes.head()):
            return False
        state = changes.state(self.name)
        in_memory = self._folder is None and not self._is_open()
        from_scratch = in_memory or not state.built or changes.must_restart(self.name, head)
        is_behind = not from_scratch and state.watermark < head
        pending = changes.since(state.watermark, limit=limit) if is_behind else None
        if pending is None and not from_scratch:
            self._open_if_wanted(state.generation)
            self._verify_existing(state.generation)
            return False
        if pending is None or self._is_large(pending):
            self._rebuild()
        else:
            self._apply(pending, state.generation)
            changes.advance(self.name, pending.watermark)
        return True

    def _current(self, open_: Callable[[int], _Index]) -> _Index | None:
        """Return the index if it is open and up to date, else None; the next `sync` opens it.

        A question does not wait for an index that lags or has to be opened. For the holder of the lock.

        Args:
            open_: returns the index of a generation, and opens it if necessary.
        """
        if not self._lock.acquire(blocking=False):
            return None  # changes are being applied
        try:
            if not self._is_open() or self.lag() > 0:
                self._wanted = open_
                return None
            return open_(self._store.changes.state(self.name).generation)
        finally:
            self._lock.release()

    def _open_if_wanted(self, generation: int) -> None:
        open_, self._wanted = self._wanted, None
        if open_ is not None and not self._is_open():
            open_(generation)

    def _verify_existing(self, generation: int) -> None:
        """Verify an index found on disk against the store: it may belong to another one.

        Raises:
            IndexDamagedError: it differs from the store.
        """
        if self._folder is None or self._compared == generation or not self._is_open():
            return
        with self._store.database.snapshot():
            if self.lag() > 0:
                return  # compared after the new changes are applied
            if not self._is_consistent():
                raise IndexDamagedError(f"The {self.name} index does not match the store.")
        self._compared = generation

    def _is_consistent(self) -> bool:
        """Whether the index, which is open and up to date, holds a sample of the store's content."""
        return True

    def _spread_chunks(self, count: int) -> list[int]:
        """Return up to `count` chunks that are evenly spread over all of them."""
        documents = self._store.documents
        last = documents.last_chunk()
        places = sorted({last * n // count for n in range(count)})
        return [key for place in places for key in documents.chunk_keys(after=place, limit=1)]

    def report_damage(self, error: IndexDamagedError) -> None:
        """Mark the index as damaged, to be rebuilt by the next `sync`: some damage shows only in use."""
        with self._lock:
            self._mark_damaged(self._store.changes.state(self.name).generation, error)

    def _check(self, generation: int) -> None:
        """Probe, once per generation and in a child process, whether an index opens: a damaged one may hang.

        Raises:
            IndexDamagedError: it does not open.
        """
        path = self._path(generation)
        if generation == self._probed and path.exists():
            return
        reason = self._probe(path)
        if reason is not None:
            raise IndexDamagedError(reason)
        self._probed = generation

    def _mark_damaged(self, generation: int, error: IndexDamagedError) -> None:
        """Mark the index as damaged: the next `sync`, in this process or another, rebuilds it."""
        _log.warning("The %s index cannot be used; it will be rebuilt from the store: %s", self.name, error)
        with suppress(IndexDamagedError):
            self._close()
        self._store.changes.mark_damaged(self.name, generation=generation)

    def _replace(self, error: IndexDamagedError) -> None:
        _log.warning("The %s index cannot be used; it is rebuilt from the store: %s", self.name, error)
        self._rebuild()

    @abstractmethod
    def _is_open(self) -> bool: ...

    def _rebuild(self) -> None:
        changes = self._store.changes
        generation = changes.state(self.name).generation + 1
        with suppress(IndexDamagedError):  # a damaged index may fail to close
            self._close()
        self._remove_stale_generations()  # remains of an interrupted rebuild
        self._probed = self._compared = generation
        watermark = changes.head()
        self._build(generation)
        self._adopt(generation, watermark)

    def _adopt(self, generation: int, watermark: int) -> None:
        """Replace the current generation with a new one that holds the changes up to a watermark."""
        self._store.changes.restart(self.name, generation=generation, watermark=watermark)
        self._remove_stale_generations()

    def _remove_stale_generations(self) -> None:
        """Remove all generations but the current one: a kill may have left some."""
        if self._folder is not None:
            current = self._store.changes.state(self.name).generation
            for path in self._folder.glob(f"{self.name}-*"):
                match = re.fullmatch(rf"{self.name}-(\d+)(\..*)?", path.name)
                if match is not None and int(match[1]) != current:
                    _remove(path)
        self._swept = True

    def _remove(self, generation: int) -> None:
        if self._folder is None:
            return
        name = f"{self.name}-{generation}"
        for path in (self._folder / name, *self._folder.glob(f"{name}.*")):
            _remove(path)


@dataclass(slots=True)
class _PartialBuild:
    """An index under construction: generation, watermark at its start, and the last chunk it holds."""

    generation: int
    watermark: int
    after: int


class SteppedIndex(DerivedIndex):
    """An index that is built in steps, since that may take minutes. An interrupted build starts over."""

    step_size: ClassVar[int] = 1000

    def __init__(self, store: KnowledgeStore, folder: Path | None) -> None:
        super().__init__(store, folder)
        self._growing: _PartialBuild | None = None

    @abstractmethod
    def _take(self, keys: Sequence[int], generation: int) -> None:
        """Add chunks, or those that are in the store and have what is indexed."""

    def _next_keys(self, after: int) -> list[int]:
        """Return the keys of the next step of a build, in order."""
        return self._store.documents.chunk_keys(after=after, limit=self.step_size)

    def _begin(self, generation: int) -> None:
        """Prepare a new, empty index, in place of the remains of an interrupted build."""
        self._remove(generation)

    def _finish(self, generation: int) -> None:
        """Finish a new index that holds everything."""

    def _replace(self, error: IndexDamagedError) -> None:
        # The next step starts over.
        self._mark_damaged(self._store.changes.state(self.name).generation, error)

    def _rebuild(self) -> None:
        changes = self._store.changes
        old = changes.state(self.name).generation
        if self._growing is None:
            self._close()
            watermark = changes.head()
            self._begin(old + 1)
            self._growing = _PartialBuild(old + 1, watermark, 0)
        growing = self._growing
        if self._grow(growing):
            return
        self._finish(growing.generation)
        changes.restart(self.name, generation=growing.generation, watermark=growing.watermark)
        self._probed = growing.generation
        self._growing = None
        self._remove(old)

    def _grow(self, growing: _PartialBuild) -> bool:
        """Add what has the next keys; return False once there are no more."""
        keys = self._next_keys(growing.after)
        self._take(keys, growing.generation)
        growing.after = keys[-1] if keys else growing.after
        return bool(keys)

    def _build(self, generation: int) -> None:
        self._begin(generation)
        growing = _PartialBuild(generation, 0, 0)
        while self._grow(growing):
            pass
        self._finish(generation)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
