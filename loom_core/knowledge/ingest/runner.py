"""Ingest runner: carry out jobs by listing, preparing, extracting, writing, indexing and linking."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from loom_core.errors import InvalidInputError, LLMError, unwrap_group
from loom_core.knowledge.ingest.batches import BatchBuilder, BatchWriter, FileCheck
from loom_core.knowledge.ingest.boilerplate import judge_pending
from loom_core.knowledge.ingest.entity_linker import EntityLinker
from loom_core.knowledge.ingest.extraction.config import ExtractionConfig
from loom_core.knowledge.ingest.extraction.llm.extractor import LLMEntityExtractor
from loom_core.knowledge.ingest.extraction_estimate import ExtractionEstimate
from loom_core.knowledge.ingest.listing import FileListing
from loom_core.knowledge.ingest.loaders import LoadLimits
from loom_core.knowledge.ingest.near_duplicates import compare_pending
from loom_core.knowledge.ingest.page_fetcher import PageFetcher
from loom_core.knowledge.ingest.workers import Preparer
from loom_core.knowledge.store.prepared_documents import ItemOutcome, PreparedDocument
from loom_core.llm.interface import Usage
from loom_core.observability.families import INGESTED_DOCUMENTS
from loom_core.observability.metrics import process_metrics
from loom_core.observability.propagation import extract_context
from loom_core.observability.spans import KNOWLEDGE_INGEST
from loom_core.observability.tracing import AttributeValue, record_failure, start_span

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from opentelemetry.trace import Span

    from loom_core.knowledge.indexes import LexicalIndexes
    from loom_core.knowledge.ingest.batches import IngestBatch
    from loom_core.knowledge.ingest.extraction.llm.extractor import ExtractionUsage
    from loom_core.knowledge.ingest.pipeline import Pipeline
    from loom_core.knowledge.ingest.workers.worker import WorkerLimits
    from loom_core.knowledge.store import Job, JobItem, KnowledgeStore
    from loom_core.knowledge.store.prepared_documents import Prepared

__all__ = ["ExtractionStep", "IngestLimits", "IngestRunner"]

_FIRST_BYTES = 96 << 10  # of the first batch, before the throughput is known
_REMOVE_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class IngestLimits:
    """Limits of the work done at a time.

    Attributes:
        seconds: target time of writing a batch, during which no other process can write; between two batches
            progress is reported and cancellation checked.
        items: maximum number of documents of a batch.
        size: maximum size of a batch in bytes.
        ahead: number of batches that are prepared while one is written.
        words: seconds after which written chunks are added to the lexical index, while a job runs.
        unlinked: maximum number of new chunks, and of new names, that wait for entity linking while a job
            runs; the higher, the fewer chunks are searched twice.
        flush_seconds: seconds after which the prepared part of a batch is written without the rest.
    """

    seconds: float = 0.3
    items: int = 1024
    size: int = 4 << 20
    ahead: int = 2
    words: float = 2.5
    unlinked: int = 10_000
    flush_seconds: float = 1.0


class IngestRunner:
    """Carries out the jobs of a knowledge base, oldest first, a batch of documents at a time.

    Whatever happens between two steps, the next step (of this process or another) continues from the state
    in the store. Only the holder of the knowledge base's lock calls `step`.

    Args:
        store: the store of jobs and documents.
        pipeline: prepares documents.
        words: lexical index, kept in sync.
        extraction: how much a language model may read without a confirmation.
        files: limits of a file.
        limits: limits of the work done at a time.
        children: number of child processes that prepare documents, see `Preparer`.
        child_limits: limits of each child.
    """

    def __init__(
        self,
        store: KnowledgeStore,
        pipeline: Pipeline,
        words: LexicalIndexes,
        *,
        extraction: ExtractionConfig | None = None,
        files: LoadLimits | None = None,
        limits: IngestLimits | None = None,
        children: int | None = None,
        child_limits: WorkerLimits | None = None,
    ) -> None:
        files = files or LoadLimits()
        self._store = store
        self._pipeline = pipeline
        self._words = words
        self._limits = limits or IngestLimits()
        self._files = FileCheck(store, pipeline=pipeline.id, limits=files)
        self._trace = JobTrace(store)
        self._listing: FileListing | None = None
        self._preparer = Preparer(pipeline, limits=files, children=children, child_limits=child_limits)
        self._fetcher = PageFetcher(max_bytes=files.max_bytes)
        self._extraction = ExtractionStep(store, pipeline, config=extraction)
        self._linker = EntityLinker(store, words)
        self._maker = BatchBuilder(store, self._files)
        self._writer = BatchWriter(store, self._files, words)
        self._under_way: deque[IngestBatch] = deque()
        self._job = 0  # the job of the current batches
        self._last = -1  # ordinal of the last item in these
        self._bytes = _FIRST_BYTES
        self._written_at = time.monotonic()
        self._index_at = self._written_at + self._limits.words
        self._spent = 0.0  # seconds of a job's work that are not recorded yet

    async def step(self) -> bool:
        """Do the next piece of work.

        Returns:
            Whether there was any.
        """
        job = await to_thread.run_sync(partial(self._store.jobs.next, host=self._store.host))
        await self._trace.follow(job)
        if job is None:
            return await to_thread.run_sync(self._do_background_work)
        with self._trace.piece():
            await self._go_on(job)
        return True

    async def _go_on(self, job: Job) -> None:
        if job.state in {"queued", "listing"}:
            await to_thread.run_sync(self._list_some, job)
            return
        if job.started_at is None:
            await to_thread.run_sync(self._store.jobs.start, job)
        started = time.monotonic()
        goes_on = await self._process(job)
        self._spent += time.monotonic() - started
        if goes_on:
            await to_thread.run_sync(self._note_work, job)
        elif not await to_thread.run_sync(self._finish_some, job):
            await to_thread.run_sync(self._store.jobs.finish, job)
            self._files.forget()

    def forget(self) -> None:
        """Drop the state held in memory, as another process may write from now on."""
        self._abandon()
        self._trace.interrupt()
        self._preparer.close()
        self._linker.forget()
        self._listing = None
        self._files.forget()

    # -- a job's documents -------------------------------------------------------------------------

    def _list_some(self, job: Job) -> None:
        """List some more files of a job; from the start, if this process has not begun."""
        listing = self._listing
        if listing is None or listing.job.key != job.key:
            self._store.jobs.start(job)
            listing = self._listing = FileListing(self._store, job, settings=self._files.settings(job))
        try:
            if not listing.step():
                self._listing = None
        except InvalidInputError as error:
            self._store.jobs.finish(job, "failed", error=str(error))
            self._listing = None

    def _finish_some(self, job: Job) -> bool:
        """Do some of the work left after all of a job's documents are written; return False if none is."""
        if self._linker.link_some():
            return True
        self._words.sync_all()
        leaving = self._store.jobs.pending(job, self._limits.items, state="leaving")
        if leaving:
            self._remove_some(job, leaving)
            return True
        return compare_pending(self._store, job) or judge_pending(self._store)

    def _remove_some(self, job: Job, leaving: Sequence[JobItem]) -> None:
        """Remove documents whose files are gone, for a moment."""
        until = time.monotonic() + _REMOVE_SECONDS
        store, removed = self._store, 0
        with store.database.write():
            if not store.jobs.is_open(job):
                return
            for item in leaving:
                document = store.documents.get(item.uri)
                if document is not None:
                    store.documents.remove(document.key)
                store.jobs.settle(job, item, "removed")
                removed += 1
                if time.monotonic() > until:
                    break
        process_metrics.add(INGESTED_DOCUMENTS, "removed", by=removed)
        self._words.sync_all()

    def _do_background_work(self) -> bool:
        """Do background work that no job waits for."""
        return (
            self._linker.link_some()
            or compare_pending(self._store)
            or judge_pending(self._store)
            or self._store.jobs.purge()
        )

    def _note_work(self, job: Job) -> None:
        """Note how long the last documents of a job took."""
        now = self._store.jobs.get(job.id)
        if now is not None and now.processed > job.processed:
            self._store.progress.note_work(
                job,
                seconds=self._spent,
                documents=now.processed - job.processed,
                chunks=now.chunks - job.chunks,
            )
            self._spent = 0.0

    def _next_items(self, job: Job) -> list[JobItem]:
        size = min(self._bytes, self._limits.size)
        return self._store.jobs.pending(job, self._limits.items, size=size, after=self._last)

    async def _process(self, job: Job) -> bool:
        """Write the next batch of a job when it is prepared, while others are being prepared.

        Returns:
            Whether there was any.
        """
        if self._job != job.key:
            await to_thread.run_sync(self._abandon)
            self._job = job.key
        try:
            await to_thread.run_sync(self._begin_some, job)
            if not self._under_way:
                return False
            batch = self._under_way[0]
            if await to_thread.run_sync(self._prepare_some, batch):
                self._under_way.popleft()
            else:
                # Return, so that the worker can check whether the job was cancelled.
                patient = time.monotonic() < self._written_at + self._limits.flush_seconds
                if patient or not (batch := batch.take_ready()).items:
                    return True
            made = await self._extraction.run(job, batch.ready_results())
            if made is None:
                self._abandon()
                return True
            self._written_at = started = time.monotonic()
            goes_on = await to_thread.run_sync(self._writer.write, job, batch, made)
            in_time = int(batch.size * self._limits.seconds / max(time.monotonic() - started, 1e-3))
            if self._pipeline.extractor is None:
                # Else batches stay small, so that paid findings are soon stored.
                self._bytes = max(_FIRST_BYTES, min(in_time, 2 * self._bytes))
            if not goes_on:
                await to_thread.run_sync(self._abandon)
            else:
                await to_thread.run_sync(self._index_some)
        except BaseException:
            # The work in progress is not lost: the items are still pending in the store.
            self._abandon()
            raise
        return True

    def _begin_some(self, job: Job) -> None:
        """Begin batches, so that some are prepared while one is written."""
        while len(self._under_way) <= self._limits.ahead:
            items = self._next_items(job)
            if not items:
                if not self._under_way:
                    self._last = -1  # retry items that could not be settled
                    items = self._next_items(job)
                if not items:
                    return
            if "urls" in job.request:
                items = self._fetcher.fill(job, items)
            changing = {uri for batch in self._under_way for uri in batch.changing()}
            batch, complete = self._maker.build(job, items, changing=changing)
            batch.preparation = self._preparer.begin(complete)
            self._under_way.append(batch)
            self._last = batch.last

    def _prepare_some(self, batch: IngestBatch) -> bool:
        return batch.preparation is None or self._preparer.work(batch.preparation)

    def _index_some(self) -> None:
        """Update the lexical index if that is due, and link some chunks, for a moment."""
        now = time.monotonic()
        if now > self._index_at:
            self._words.sync_all()
            self._index_at = time.monotonic() + self._limits.words
        until = now + self._limits.seconds
        while self._linker.link_some(spare=self._limits.unlinked) and time.monotonic() < until:
            pass

    def _abandon(self) -> None:
        """Drop the work in progress: it restarts from the store's state."""
        if self._under_way:
            self._preparer.close()
        self._under_way.clear()
        self._job, self._last, self._spent = 0, -1, 0.0


TRACE = "trace"
"""Key in the request of a job for the trace context of its submission (`traceparent`)."""


class JobTrace:
    """Keeps the trace span of the current job.

    Args:
        store: the store, to read jobs.
    """

    def __init__(self, store: KnowledgeStore) -> None:
        self._store = store
        self._job: Job | None = None
        self._span: Span | None = None

    async def follow(self, job: Job | None) -> None:
        """Switch to a job: end the span of the previous one, and begin one for it."""
        if self._job is not None and (job is None or job.key != self._job.key):
            await to_thread.run_sync(self._end)
        if job is not None and self._job is None:
            attributes: dict[str, AttributeValue | None] = {"loom.job.id": job.id, "loom.job.kind": job.kind}
            parent = extract_context(job.request.get(TRACE))
            self._job, self._span = job, start_span(KNOWLEDGE_INGEST, attributes, parent=parent)

    @contextmanager
    def piece(self) -> Generator[None]:
        """Run the block within the span of the job."""
        if self._span is None:
            yield
            return
        from opentelemetry.trace import use_span

        with use_span(self._span, record_exception=False, set_status_on_exception=False):
            yield

    def interrupt(self) -> None:
        """End the span as interrupted: another process may continue the job."""
        self._end(interrupted=True)

    def _end(self, *, interrupted: bool = False) -> None:
        job, span = self._job, self._span
        self._job = self._span = None
        if job is None or span is None:
            return
        now = self._store.jobs.get(job.id) if span.is_recording() else None
        if now is not None:
            state = "interrupted" if interrupted and not now.finished else now.state
            span.set_attributes(
                {
                    "loom.job.state": state,
                    "loom.job.documents": now.processed,
                    "loom.job.failed": now.counts.get("failed", 0),
                    "loom.job.chunks": now.chunks,
                }
            )
            if now.state == "failed":
                record_failure(span, "job_failed")
        span.end()


_log = logging.getLogger(__name__)


class ExtractionStep:
    """Runs a pipeline's custom extractor on documents, until their job is cancelled.

    The usage of a language model is stored with the job. An unconfirmed job fails when the model would exceed
    the limits of the configuration: the size of web pages is unknown before they are fetched, and the process
    that submitted the job may have no model while the worker process has one.

    Args:
        store: the store; chunks stored unchanged are not extracted from again.
        pipeline: the pipeline with the extractor.
        config: limits above which a job needs a confirmation.
        look_seconds: interval between checks whether the job was cancelled.
    """

    def __init__(
        self,
        store: KnowledgeStore,
        pipeline: Pipeline,
        *,
        config: ExtractionConfig | None = None,
        look_seconds: float = 1.0,
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._config = config or ExtractionConfig()
        self._look_seconds = look_seconds
        extractor = pipeline.extractor
        self._model = extractor if isinstance(extractor, LLMEntityExtractor) else None

    async def run(self, job: Job, made: Sequence[Prepared]) -> list[Prepared] | None:
        """Return the prepared documents with the extractor's results, or with the reason why there are none.

        Returns:
            The documents; None if the job was cancelled meanwhile, or has failed.

        Raises:
            LLMError: the extractor cannot extract now.
        """
        if reason := await to_thread.run_sync(self._reason_to_end, job, made):
            await to_thread.run_sync(partial(self._store.jobs.finish, job, "failed", error=reason))
            return None
        if self._pipeline.extractor is None:
            return list(made)
        before = self._model.spent if self._model is not None else None
        try:
            return await self._extract_while_wanted(job, made)
        finally:
            if self._model is not None and before is not None:
                with anyio.CancelScope(shield=True):  # usage counts even if cancelled
                    await to_thread.run_sync(self._add_llm_usage, job, self._model, before)

    async def _extract_while_wanted(self, job: Job, made: Sequence[Prepared]) -> list[Prepared] | None:
        results: list[Prepared] | None = None

        async def watch() -> None:
            while True:
                await anyio.sleep(self._look_seconds)
                if not await to_thread.run_sync(self._store.jobs.is_open, job):
                    tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                results = await self._extract(made)
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            raise unwrap_group(group) from group
        return results

    async def _extract(self, made: Sequence[Prepared]) -> list[Prepared]:
        documents = [result for result in made if isinstance(result, PreparedDocument)]
        known = await to_thread.run_sync(self._find_known_chunks, documents)
        try:
            found = iter(await self._pipeline.extract(documents, known=known))
        except LLMError:
            raise
        except Exception as error:  # noqa: BLE001 - extractors may be third-party code
            if len(made) == 1:
                _log.exception("extracting from %s failed", documents[0].uri)
                return [ItemOutcome("failed", f"it could not be prepared: {type(error).__name__}: {error}")]
            # Extract from each separately, so that only the cause fails.
            return [result for one in made for result in await self._extract([one])]
        return [next(found) if isinstance(result, PreparedDocument) else result for result in made]

    def _find_known_chunks(self, documents: Sequence[PreparedDocument]) -> set[str]:
        """Return the ids of chunks that are stored unchanged, of documents that occur once.

        For two versions of one document, writing the first may remove chunks of the second.
        """
        times = Counter(document.uri for document in documents)
        once = [document for document in documents if times[document.uri] == 1]
        return self._store.documents.same_chunks([chunk for document in once for chunk in document.chunks])

    def _reason_to_end(self, job: Job, made: Sequence[Prepared]) -> str:
        """Return why a job must not continue with these documents; or empty."""
        model = self._model
        if model is None:
            if not job.request.get("by_model"):
                return ""
            return (
                "A language model should read the documents, but the process that owns the knowledge base "
                "has none. Close it, or start it with the same model, and add them again."
            )
        if job.request.get("confirmed"):
            return ""
        documents = [result for result in made if isinstance(result, PreparedDocument)]
        known = self._find_known_chunks(documents)
        new = [c.chunk for document in documents for c in document.chunks if c.id not in known]
        spent = self._store.jobs.llm_usage(job) or Usage(cost=0.0)
        planned = model.estimate(new) + ExtractionEstimate(
            input_tokens=spent.input_tokens, output_tokens=spent.output_tokens, cost=spent.cost
        )
        if not new or not self._config.takes_confirmation(planned.tokens, planned.cost):
            return ""
        return (
            f"A language model has read {spent.input_tokens:,} tokens and written {spent.output_tokens:,}; "
            "more needs a confirmation. Stored documents stay. Add the rest again, and confirm it."
        )

    def _add_llm_usage(self, job: Job, model: LLMEntityExtractor, before: ExtractionUsage) -> None:
        now = model.spent
        if now.calls == before.calls:
            return
        cost = None if now.cost is None or before.cost is None else now.cost - before.cost
        store = self._store
        store.progress.add_llm_usage(
            job,
            Usage(
                now.input_tokens - before.input_tokens, now.output_tokens - before.output_tokens, cost=cost
            ),
        )
        name = f"{model.llm.name}/{model.llm.model}".rstrip("/")
        if store.get("llm") != name:
            store.set("llm", name)
