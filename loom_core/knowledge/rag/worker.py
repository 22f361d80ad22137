"""The work behind a knowledge base: documents in, vectors made, indexes kept in step."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from loom_core.errors import EmbeddingError, LoomError
from loom_core.knowledge.pipeline import embedding_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom_core.embedding.interface import EmbeddingProvider
    from loom_core.knowledge.indexing import GraphIndex, VectorsOnDisk, WordIndex
    from loom_core.knowledge.ingest import Ingest
    from loom_core.knowledge.record import Record
    from loom_core.storage import ProcessLock

__all__ = ["Worker"]

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.5
_EMBED_BATCH = 16
_EMBED_RETRY_SECONDS = 30.0
_RETRY_SECONDS = 5.0


class Worker:
    """Does what the record says is still to be done, while this process holds the lock.

    One process works for a knowledge base; the others write their jobs into the record and see the
    results there. When the working process ends, however it ends, the next that looks takes over.

    Args:
        record: says what is to be done.
        ingest: carries out jobs.
        words: index of words.
        graph: graph store.
        vectors: vector index on disk, or None in memory.
        embedder: makes vectors, or None for a knowledge base without.
        lock: of the knowledge base's folder, or None in memory.
    """

    def __init__(
        self,
        record: Record,
        *,
        ingest: Ingest,
        words: WordIndex,
        graph: GraphIndex,
        vectors: VectorsOnDisk | None,
        embedder: EmbeddingProvider | None,
        lock: ProcessLock | None,
    ) -> None:
        self._record = record
        self._ingest = ingest
        self._words = words
        self._graph = graph
        self._vectors = vectors
        self._embedder = embedder
        self._lock = lock
        self._turn = anyio.Lock()
        self._forever = False
        self._wake = anyio.Event()
        self._retry_at = -math.inf
        self.problem = ""
        """Why work or a part of it, such as making vectors, has stopped for now; or empty."""

    @property
    def runs(self) -> bool:
        """Whether this process works in the background."""
        return self._forever

    @property
    def holds(self) -> bool:
        """Whether this process is the one that works."""
        return self._lock is None or self._lock.held

    def acquire(self) -> bool:
        """Become the process that works, if there is none."""
        return self._lock is None or self._lock.acquire()

    async def run(self) -> None:
        """Work for ever; cancel it to stop."""
        self._forever = True
        try:
            while True:
                async with self._turn:
                    worked = await self._try_step()
                if not worked:
                    # Other processes cannot wake this one: what they write is seen by looking.
                    with anyio.move_on_after(_POLL_SECONDS):
                        await self._wake.wait()
                    self._wake = anyio.Event()
        finally:
            self._forever = False
            self.release()

    def wake(self) -> None:
        """Tell `run` that there is something new to do; from the event loop it runs in."""
        self._wake.set()

    async def drain(self, *, progress: Callable[[], None] | None = None) -> None:
        """Work until nothing is left to do; where another process works, wait until it has done so.

        Args:
            progress: called after every step.
        """
        try:
            while True:
                async with self._turn:
                    holds = await to_thread.run_sync(self.acquire)
                    worked = holds and await self._step()
                if progress is not None:
                    progress()
                if not worked:
                    if holds or not await to_thread.run_sync(self._is_work_left):
                        return
                    await anyio.sleep(_POLL_SECONDS / 5)
        finally:
            if not self._forever:
                self.release()

    def release(self) -> None:
        """Let another process work."""
        if self._lock is not None and self._lock.held:
            self._ingest.forget()
            self._graph.close()
            self._words.close()
            if self._vectors is not None:
                self._vectors.close()
            self._lock.release()

    async def _try_step(self) -> bool:
        """Do a piece of work; a disk that is full, say, is waited for and told with every answer."""
        try:
            worked = await to_thread.run_sync(self.acquire) and await self._step()
        except LoomError as error:
            if self.problem != str(error):
                _log.error("Adding documents has stopped for now: %s", error)
            self.problem = str(error)
            await anyio.sleep(_RETRY_SECONDS)
            return False
        if worked and anyio.current_time() >= self._retry_at:
            self.problem = ""
        return worked

    async def _step(self) -> bool:
        """Do one piece of the most urgent work; False if there is none."""
        if await self._ingest.step():
            return True
        if await to_thread.run_sync(self._words.sync):
            return True
        if await self._embed():
            return True
        if await to_thread.run_sync(self._graph.sync):
            return True
        if self._vectors is not None and await to_thread.run_sync(self._vectors.sync):
            return True
        await to_thread.run_sync(self._prune)
        return False

    async def _embed(self) -> bool:
        if self._embedder is None or anyio.current_time() < self._retry_at:
            return False
        pending = await to_thread.run_sync(self._record.vectors.pending, _EMBED_BATCH)
        if not pending:
            return False
        rows = await to_thread.run_sync(self._record.documents.chunks, [key for key, _ in pending])
        todo = {
            hash_: embedding_text(rows[key].title, rows[key].heading_path, rows[key].text)
            for key, hash_ in pending
            if key in rows
        }
        try:
            vectors = await self._embedder.embed(list(todo.values()))
        except EmbeddingError as error:
            # Words and graph go on working; the reason is told with every answer.
            if not self.problem:
                _log.warning("No vectors for now: %s", error)
            self.problem = f"No vectors for now: {error}"
            self._retry_at = anyio.current_time() + _EMBED_RETRY_SECONDS
            return False
        self.problem = ""
        await to_thread.run_sync(self._record.vectors.store, list(todo), vectors)
        return True

    def _prune(self) -> None:
        indexes = [self._words, self._graph, *([self._vectors] if self._vectors else [])]
        if all(index.lag() <= 0 for index in indexes):
            self._record.changes.prune()

    def _is_work_left(self) -> bool:
        if self._record.jobs.next() is not None or self._words.lag() > 0:
            return True
        return self._embedder is not None and not self.problem and bool(self._record.vectors.pending(1))
