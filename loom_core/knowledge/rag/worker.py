"""Worker of a knowledge base: ingest documents, make vectors, keep indexes in sync."""

from __future__ import annotations

import json
import logging
import math
import time
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import RunFinishedError, from_thread, to_thread
from anyio.lowlevel import current_token

from loom_core.embedding.numpy_import import import_numpy
from loom_core.errors import EmbeddingError, LLMError, LoomError, StoreError, unwrap_group
from loom_core.knowledge.rag.owner.protocol import OwnerStatus
from loom_core.knowledge.rag.passage_embedding import ReembeddingStep, embed_preemptibly
from loom_core.knowledge.retrieval.current_embedder import CALIBRATION_TEXTS, LanguageCentroids
from loom_core.knowledge.store.changes import IN_SERVERS
from loom_core.knowledge.store.node import LeaseLostError
from loom_core.knowledge.text.passage_text import embedding_text
from loom_core.observability.propagation import detach_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import numpy as np
    from anyio.abc import TaskGroup
    from anyio.lowlevel import EventLoopToken
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind
    from loom_core.knowledge.indexes import GraphIndexes, LexicalIndexes
    from loom_core.knowledge.indexes.links import LinkIndex
    from loom_core.knowledge.indexes.vectors import VectorIndexes
    from loom_core.knowledge.ingest.runner import IngestRunner
    from loom_core.knowledge.rag.owner.client import OwnerClient
    from loom_core.knowledge.rag.owner.server import OwnerServer
    from loom_core.knowledge.retrieval.config import WaitSettings
    from loom_core.knowledge.retrieval.current_embedder import CurrentEmbedder
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.storage import ProcessLock
    from loom_core.storage.commit_listener import CommitListener

__all__ = ["KnowledgeBaseWorker"]

_log = logging.getLogger(__name__)
_EMBED_BATCHES = (16, 512)  # minimum and maximum texts of a batch, which takes about `_EMBED_SECONDS`
_EMBED_SECONDS = 0.8
_OFFERED_BATCH = 1000
_POLL_SECONDS = 0.05  # polling interval of a job on which another process works
_PAIRS = 32  # pairs of names that are compared at a time
_REPORT_SECONDS = 5.0  # between reports of a node
_HEARING_FACTOR = 10  # how much longer the intervals between looks are while notifications arrive
_LEASE_LOOK_SECONDS = 1.0
_YIELD_SECONDS = 3.0  # in which another machine can take the lease: it tries once a second


class KnowledgeBaseWorker:
    """Does the pending work of the store, while this process holds the lock.

    One process works for a knowledge base, its owner; the others write their jobs into the store, wake the
    owner, and see the results there. The owner also answers the others' questions. When it ends, in any way,
    the next process that tries the lock takes over.

    Where several machines share the store, each has an owner of its folder, which keeps the indexes there in
    step; and of these, the one with the lease of the work (`WorkLease`) does all that changes the store, but
    for vectors, which all make.

    Args:
        store: the store, which holds the pending work.
        ingest: carries out jobs.
        words: lexical index.
        graph: graph store.
        vectors: indexes of vectors.
        links: index of links.
        embedder: makes vectors, or None for a knowledge base without.
        lock: of the knowledge base's folder, or None in memory.
        server: answers other processes, or None in memory.
        owner: client of the process that holds the lock, if it is another one; or None in memory.
        waits: polling and retry intervals.
    """

    def __init__(
        self,
        store: KnowledgeStore,
        *,
        ingest: IngestRunner,
        words: LexicalIndexes,
        graph: GraphIndexes,
        vectors: VectorIndexes,
        links: LinkIndex,
        embedder: CurrentEmbedder | None,
        lock: ProcessLock | None,
        server: OwnerServer | None,
        owner: OwnerClient | None,
        waits: WaitSettings,
    ) -> None:
        self._store = store
        self._ingest = ingest
        self._words = words
        self._graph = graph
        self._vectors = vectors
        self._links = links
        self._embedder = embedder
        self._reembedding = self._centroids = None
        if embedder is not None:
            self._centroids = LanguageCentroids(store, embedder)
            self._reembedding = ReembeddingStep(store, embedder, urgent=self._is_text_left, waits=waits)
        self._lock = lock
        self._server = server
        self._owner = owner
        self._waits = waits
        self._turn = anyio.Lock()
        self._users = 0
        self._forever = False
        self._wake = anyio.Event()
        self._next_step = anyio.Event()
        self._retry_at = -math.inf
        self._stopped: LLMError | None = None  # why jobs are paused
        self._jobs_at = -math.inf  # when they are tried again
        self._embed_batch = _EMBED_BATCHES[0]
        self._problem = ""
        self._lease = None if store.sharing is None else store.sharing.lease
        self._listener: CommitListener | None = None
        self._lease_taken = 0  # the lease that the state in memory belongs to
        self._report_at = -math.inf
        if self._lease is not None:
            self._lease.report(lambda: json.dumps(asdict(self.status)))

    @property
    def is_running(self) -> bool:
        """Whether this process works in the background."""
        return self._forever

    @property
    def problem(self) -> str:
        """Why work or a part of it, such as making or storing vectors, has stopped for now; or empty."""
        return self._problem or self._words.server.problem or self._vectors.server.problem

    @property
    def stopped(self) -> str:
        """Why jobs are paused, if a language model that they need cannot be asked; or empty."""
        return "" if self._stopped is None else str(self._stopped)

    @property
    def stopped_change(self) -> str:
        """Why the change to another embedder is paused, or empty."""
        return "" if self._reembedding is None else self._reembedding.problem

    @property
    def status(self) -> OwnerStatus:
        """Status of the work, as other processes see it."""
        return OwnerStatus(self.problem, embeds=self._embedder is not None, stopped=self.stopped)

    @property
    def is_owner(self) -> bool:
        """Whether this process is the one that works, or that works for this machine's folder."""
        return self._lock is None or self._lock.held

    def acquire(self) -> bool:
        """Become the worker process, if there is none on any machine. Blocks.

        Raises:
            StoreError: the database that several machines share cannot be asked, or see `acquire_folder`.
        """
        if not self.acquire_folder():
            return False
        leads = self._lead()
        if not leads and not self._users:
            self.release()
        return leads

    def acquire_folder(self) -> bool:
        """Become the process that works for this machine's folder, if there is none. Blocks.

        Raises:
            StoreError: the file of the lock cannot be written.
        """
        try:
            return self._lock is None or self._lock.acquire()
        except OSError as error:
            raise StoreError(
                f"The lock of the knowledge base cannot be taken: {error}.",
                advice="Check that its folder exists, and that this user may write there.",
            ) from error

    def find_leader(self) -> str:
        """Return the process on any machine that works for the store they share, for people; or empty."""
        holder = None if self._lease is None else self._lease.holder()
        return "" if holder is None else holder.title

    async def run(self) -> None:
        """Work until cancelled."""
        self._forever = True
        try:
            with detach_context():  # not part of the trace of the request that started it
                await self._work(self._run)
        finally:
            self._forever = False

    def wake(self) -> None:
        """Wake `run` for new work, here or in the worker process; called from `run`'s event loop.

        A language model that failed is tried again: the caller may have fixed the cause.
        """
        self._stopped = None
        self._wake.set()

    @property
    def next_step(self) -> anyio.Event:
        """Set when the next piece of work on jobs is done in this process, or a job is cancelled in it."""
        return self._next_step

    def notify_step(self) -> None:
        """Notify all tasks that wait for `next_step`; called from `run`'s event loop."""
        self._next_step.set()
        self._next_step = anyio.Event()

    async def wait_for_step(self, step: anyio.Event) -> None:
        """Wait until a job may have changed since `next_step` was taken; misses no change.

        A process that works, or cancels a job, does not notify the others: so this returns after a moment,
        and the caller reads the job again.
        """
        works = self.is_owner and self._users > 0
        with anyio.move_on_after(self._waits.work if works else _POLL_SECONDS):
            await step.wait()

    async def drain(self, *, progress: Callable[[], None] | None = None) -> None:
        """Work until nothing is left to do; if another process works, wait until it has done so.

        Args:
            progress: called after every step.

        Raises:
            LLMError: jobs wait for a language model that cannot be asked now, by this process or by the one
                that works; all else is done.
        """
        await self._work(partial(self._drain, progress))

    async def restore(self) -> bool:
        """Bring the lexical index and the vectors up to date, between two steps of other work.

        Returns:
            Whether they are up to date; False if another process is the worker, which will do it.
        """
        restored = False

        async def follow(tasks: TaskGroup) -> None:
            nonlocal restored
            async with self._turn:
                restored = await self._become_owner(tasks)
                for sync in (self._words.sync, self._vectors.sync_files) if restored else ():
                    while await to_thread.run_sync(sync):
                        pass

        await self._work(follow)
        return restored

    async def _work(self, work: Callable[[TaskGroup], Awaitable[None]]) -> None:
        """Do some work, answer other processes concurrently, and release the lock at the end."""
        self._users += 1
        try:
            async with anyio.create_task_group() as tasks:
                await work(tasks)
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            raise unwrap_group(group) from group
        finally:
            self._users -= 1
            if not self._users:
                self.release()

    async def _run(self, tasks: TaskGroup) -> None:
        while True:
            async with self._turn:
                worked = await self._try_step(tasks)
            if not worked and await self._rest():
                await self._wake_owner()

    async def _rest(self) -> bool:
        """Wait until there may be work; return whether this process was woken.

        Jobs of other processes come without a notification where the store is in a file: poll for them.
        """
        hears = self._listener is not None and self._listener.hears
        until = anyio.current_time() + self._waits.work * (_HEARING_FACTOR if hears else 1)
        while not self._wake.is_set() and (left := until - anyio.current_time()) > 0:
            with anyio.move_on_after(min(left, _LEASE_LOOK_SECONDS)):
                await self._wake.wait()
            with suppress(StoreError):  # which the next step reports
                if not self._store.is_led and self.is_owner and await to_thread.run_sync(self._lead):
                    break
        woken = self._wake.is_set()
        self._wake = anyio.Event()
        return woken

    async def _drain(self, progress: Callable[[], None] | None, tasks: TaskGroup) -> None:
        woken = False
        self._stopped = None  # the caller may have fixed the cause
        while True:
            async with self._turn:
                holds = await self._become_owner(tasks)
                worked = holds and await self._step()
            if progress is not None:
                progress()
            if worked:
                continue
            leads = holds and self._store.is_led
            if not await (self._is_embedded_elsewhere() if leads else self._is_work_left(woken=woken)):
                return
            if not woken:
                await self._wake_owner()
                woken = True
            await anyio.sleep(self._waits.work / 5)

    async def _become_owner(self, tasks: TaskGroup) -> bool:
        """Become the worker process, if there is none, and begin to answer the others."""
        if not await to_thread.run_sync(self.acquire_folder):
            return False
        if self._embedder is not None:
            await import_numpy()
        if self._server is not None and not self._server.is_serving:
            await tasks.start(self._server.serve)
        if self._forever and self._listener is None:
            self._listener = self._store.listen(partial(self._hear, current_token()))
        return self.is_owner

    def _hear(self, token: EventLoopToken) -> None:
        with suppress(RunFinishedError):
            from_thread.run_sync(lambda: self._wake.set(), token=token)

    async def _wake_owner(self) -> None:
        if self._owner is not None and not self.is_owner:
            await self._owner.wake()

    def release(self) -> None:
        """Release the lock and the lease, so that another process can work."""
        if self._server is not None:
            self._server.retire()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._lease is not None:
            self._lease.release()
            if self.is_owner:
                with suppress(StoreError):  # its changes are kept for a day
                    self._report_node(is_last=True)
        if self._lock is not None and self._lock.held:
            self._ingest.forget()
            self._graph.close()
            self._words.close()
            self._vectors.close()
            self._links.close()
            self._lock.release()

    def close(self) -> None:
        """End the child processes that prepare documents, and release the lock."""
        self._ingest.forget()
        self.release()

    async def _try_step(self, tasks: TaskGroup) -> bool:
        """Do a piece of work; on an error such as a full disk, report it with every answer and retry."""
        try:
            worked = await self._become_owner(tasks) and await self._step()
        except LoomError as error:
            self._report_error(error)
            if isinstance(error, StoreError):
                await to_thread.run_sync(self._hand_over)
            with anyio.move_on_after(self._waits.retry):
                await self._wake.wait()
            return False
        if self._stopped is not None:
            self._report_error(self._stopped)
        elif worked and anyio.current_time() >= self._retry_at:
            self._problem = ""
        return worked

    def _report_error(self, error: LoomError) -> None:
        if self._problem != str(error):
            _log.error("Adding documents has stopped for now: %s", error)
        self._problem = str(error)

    async def _step(self) -> bool:
        """Do one piece of the most urgent work; return False if there is none.

        Raises:
            LLMError: jobs wait for a language model that cannot be asked now, and all else is done.
        """
        if self._lease is None:
            return await self._lead_step()
        await to_thread.run_sync(self._report_node)
        if not await to_thread.run_sync(self._lead):
            return await self._advance_indexes(leads=False)
        try:
            with self._lease.checked():
                return await self._lead_step() or await to_thread.run_sync(self._yield_lease)
        except LeaseLostError as error:
            _log.warning("%s", error)
            return True

    async def _lead_step(self) -> bool:
        if await self._do_jobs() or await self._advance_indexes():
            return True
        if self._stopped is not None:
            raise self._stopped
        return False

    def _lead(self) -> bool:
        """Take the lease, if it is free; whether this process has it now."""
        lease = self._lease
        if lease is None:
            return True
        leads = lease.acquire()
        if self._lease_taken != lease.taken or not leads:
            self._ingest.forget()  # other processes may have changed the store meanwhile
            self._lease_taken = lease.taken
        return leads

    def _yield_lease(self) -> bool:
        """Give the lease to a machine that waits for it, with a job that reads files there."""
        store, job = self._store, self._store.jobs.next()
        if self._lease is None or job is None or job.host in {"", store.host}:
            return False
        if store.changes.is_heard_of(job.host, seconds=3 * _REPORT_SECONDS):
            self._lease.release(pause=_YIELD_SECONDS)
        return False

    def _hand_over(self) -> None:
        """Let another machine work: the fault may be this one's, such as a full disk, and last for long."""
        with suppress(StoreError):  # it is the database's, which all of them need
            if self._lease is not None and self._lease.holder() is not None:
                self._lease.release(pause=self._waits.retry + _YIELD_SECONDS)

    def _report_node(self, *, is_last: bool = False) -> None:
        """Report how far the indexes here have come, from time to time and at the end."""
        if time.monotonic() < self._report_at and not is_last:
            return
        self._report_at = time.monotonic() + _REPORT_SECONDS
        maintained = [*self._words.maintained, *self._graph.maintained, *self._vectors.maintained]
        maintained.append(self._links)
        lags = [index.lag() for index in maintained if index.name not in IN_SERVERS]
        self._store.changes.report_lag(max(lags, default=0))

    async def _do_jobs(self) -> bool:
        """Continue jobs. While they wait for a language model, index what is written."""
        if self._stopped is not None and anyio.current_time() < self._jobs_at:
            return False
        try:
            worked = await self._ingest.step()
        except LLMError as error:
            self._stopped, self._jobs_at = error, anyio.current_time() + self._waits.retry
            return False
        finally:
            self.notify_step()
        self._stopped = None
        return worked

    async def _advance_indexes(self, *, leads: bool = True) -> bool:
        """Advance the lexical index, the vectors and the graph; and what they are made from, if it leads."""
        if await to_thread.run_sync(self._words.sync):
            return True
        if await to_thread.run_sync(self._vectors.sync_files):
            return True
        if await to_thread.run_sync(self._links.sync):
            return True
        if await (self._make_what_is_missing() if leads else self._help_to_embed()):
            return True
        if await to_thread.run_sync(self._graph.sync):
            return True
        if await to_thread.run_sync(self._vectors.sync):
            return True
        if self._reembedding is not None and await self._reembedding.step():
            return True
        if leads and await to_thread.run_sync(self._prune):
            return True
        return await to_thread.run_sync(self._graph.wait)

    async def _make_what_is_missing(self) -> bool:
        return (
            await self._make_centroid()
            or await self._apply_imported_vectors()
            or await self._embed()
            or await self._compare_names()
        )

    async def _help_to_embed(self) -> bool:
        """Embed for the process that leads, unless it takes the vectors from an archive."""
        return not await to_thread.run_sync(self._store.imported_vectors.has_any) and await self._embed()

    async def _make_centroid(self) -> bool:
        """Make the next language centroid that questions need, see `LanguageCentroids`."""
        centroids, embedder = self._centroids, self._embedder
        if centroids is None or embedder is None or anyio.current_time() < self._retry_at:
            return False
        languages = await to_thread.run_sync(self._vectors.languages)
        language = await to_thread.run_sync(centroids.missing, languages)
        if not language:
            return False
        space = embedder.id
        try:
            vectors = await self._vectors_of([*CALIBRATION_TEXTS[language]], kind="passage")
        except EmbeddingError:
            return False
        if vectors is not None:
            await to_thread.run_sync(partial(centroids.store, language, vectors, space=space))
        return True

    async def _apply_imported_vectors(self) -> bool:
        """Give chunks the vectors that an archive brought along."""
        imported = self._store.imported_vectors
        if self._embedder is None or not await to_thread.run_sync(imported.has_any):
            return False
        pending = await to_thread.run_sync(self._store.vectors.pending, _OFFERED_BATCH)
        hashes, vectors = await to_thread.run_sync(imported.of, [hash_ for _, hash_ in pending])
        if hashes:
            await to_thread.run_sync(self._store.vectors.store, hashes, vectors)
        elif len(pending) < _OFFERED_BATCH:
            await to_thread.run_sync(imported.clear)
        return bool(hashes)

    async def _embed(self) -> bool:
        if self._embedder is None or anyio.current_time() < self._retry_at:
            return False
        await to_thread.run_sync(self._embedder.follow)  # another process may have changed it
        claimed = await to_thread.run_sync(self._store.vectors.claim, self._embed_batch)
        if not claimed:
            return False
        keys = [key for key, _ in claimed]
        rows = await to_thread.run_sync(self._store.documents.chunks, keys)
        todo = {
            hash_: embedding_text(rows[key].title, rows[key].heading_path, rows[key].text)
            for key, hash_ in claimed
            if key in rows
        }
        began, space, stored = anyio.current_time(), self._embedder.id, False
        try:
            vectors = await self._vectors_of(list(todo.values()), kind="passage")
            if vectors is not None:
                stored = await to_thread.run_sync(self._store_vectors, space, list(todo), vectors)
                self._adapt_batch(len(claimed), anyio.current_time() - began)
        except EmbeddingError:
            return False
        finally:
            if not stored:
                with anyio.CancelScope(shield=True), suppress(StoreError):
                    await to_thread.run_sync(self._store.vectors.unclaim, keys)
        return True

    def _store_vectors(self, space: str, hashes: list[bytes], vectors: NDArray[np.float32]) -> bool:
        with self._store.database.write():
            is_same = self._store.get("embedder") == space  # another process may have changed it meanwhile
            if is_same:
                self._store.vectors.store(hashes, vectors)
        return is_same

    async def _compare_names(self) -> bool:
        """Compare the vectors of names that differ only by a space or a plural, see `AliasTable`."""
        if self._embedder is None or anyio.current_time() < self._retry_at:
            return False
        aliases = self._store.aliases
        pairs = await to_thread.run_sync(partial(aliases.pending_comparisons, limit=_PAIRS))
        if not pairs:
            return False
        entities = sorted({entity for pair in pairs for entity in pair})
        names = await to_thread.run_sync(self._store.graph.spellings, entities)
        try:
            vectors = await self._vectors_of(list(names.values()), kind="query")
        except EmbeddingError:
            return False
        if vectors is None:
            return True
        rows = dict(zip(names, vectors, strict=True))
        cosines = [
            (one, two, float(rows[one] @ rows[two]) if one in rows and two in rows else 0.0)
            for one, two in pairs
        ]
        await to_thread.run_sync(self._store_similarities, cosines)
        return True

    def _store_similarities(self, cosines: list[tuple[int, int, float]]) -> None:
        store = self._store
        with store.database.write():
            changed = store.aliases.regroup(store.aliases.store_similarities(cosines))
            store.changes.note("entity", sorted(changed))

    async def _vectors_of(self, texts: list[str], *, kind: EmbeddingKind) -> NDArray[np.float32] | None:
        """Embed texts; return None if more urgent work preempts that.

        Raises:
            EmbeddingError: the embedder does not answer. That is reported, and retried later.
        """
        if self._embedder is None:
            return None
        try:
            vectors = await embed_preemptibly(
                self._embedder, texts, kind=kind, urgent=self._is_text_left, after=self._waits.batch
            )
        except EmbeddingError as error:
            # Lexical index and graph still work; every answer reports the reason.
            if not self._problem:
                _log.warning("No vectors for now: %s", error)
            self._problem = f"No vectors for now: {error}"
            self._retry_at = anyio.current_time() + self._waits.vectors
            raise
        if vectors is not None and self._stopped is None:
            self._problem = ""
        return vectors

    def _adapt_batch(self, embedded: int, seconds: float) -> None:
        """Adapt the batch size to the speed of the embedder: a server is much faster than a local model."""
        least, most = _EMBED_BATCHES
        if seconds > 2 * _EMBED_SECONDS:
            self._embed_batch = max(least, self._embed_batch // 2)
        elif seconds < _EMBED_SECONDS / 2 and embedded == self._embed_batch:
            self._embed_batch = min(most, 2 * self._embed_batch)

    def _prune(self) -> bool:
        settled = all(index.lag() <= 0 for index in (self._words, self._graph, self._vectors))
        return settled and self._store.changes.prune()

    async def _is_embedded_elsewhere(self) -> bool:
        """Whether another process is about to store vectors that this one waits for."""
        return self._embedder is not None and await to_thread.run_sync(self._store.vectors.is_any_claimed)

    async def _is_work_left(self, *, woken: bool) -> bool:
        """Whether the worker process has still to do what this one waits for.

        Args:
            woken: whether it was woken, and so has retried what failed before.

        Raises:
            LLMError: its jobs are paused, because it cannot reach its language model now.
        """
        if await to_thread.run_sync(self._is_behind):
            return True
        jobs = await to_thread.run_sync(self._store.jobs.next) is not None
        embeds = self._embedder and await to_thread.run_sync(self._store.vectors.pending, 1)
        if not jobs and not embeds and not await to_thread.run_sync(self._servers_lag):
            return False
        status = await self._find_status() if woken else None
        if status is None:
            return True
        if jobs and status.stopped:
            raise LLMError(
                f"Another process works for this knowledge base, and cannot continue: {status.stopped}",
                advice="To use another key or model, restart that process with it.",
            )
        return jobs or (status.embeds and not status.problem)

    async def _find_status(self) -> OwnerStatus | None:
        """Return what the process that works says about it; None if there is none, or it does not answer."""
        status = await self._owner.status() if self._owner is not None else None
        if status is not None or self._lease is None:
            return status
        holder = await to_thread.run_sync(self._lease.holder)
        return None if holder is None else OwnerStatus(**json.loads(holder.status))

    def _is_text_left(self) -> bool:
        store = self._store
        if self._is_behind():
            return True
        return store.is_led and self._stopped is None and store.jobs.next(host=store.host) is not None

    def _servers_lag(self) -> int:
        return max(self._words.server.lag(), self._vectors.server.lag())

    def _is_behind(self) -> bool:
        head = self._store.changes.head()
        return not (self._words.files_have(head) and self._vectors.files_have(head))
