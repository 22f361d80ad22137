"""Carrying out jobs: list, load, prepare, write, index words, link."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from loom_core.errors import DocumentError, IndexDamagedError, InvalidInputError
from loom_core.knowledge.linking import NameIndex
from loom_core.knowledge.loaders import LoadLimits, load_bytes, load_file, scan
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.text import lookup_tokens
from loom_core.knowledge.uris import path_of, uri_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loom_core.knowledge.indexing import WordIndex
    from loom_core.knowledge.pipeline import Pipeline
    from loom_core.knowledge.record import Job, JobItem, PreparedDocument, Record

__all__ = ["Ingest", "draft_payload"]

_log = logging.getLogger(__name__)
_BATCH_SECONDS = 1.0  # what a batch should take: progress is told and a cancellation seen between two
_BATCH_ITEMS = 256
_BATCH_BYTES = 4 << 20
_FIRST_BYTES = 128 << 10  # of a batch before it is known how fast this goes, and of any afterwards
_LOAD_SECONDS = 0.25  # loading is interrupted as often, so that a server that stops need not wait for it
_ALL = 1 << 31


def draft_payload(draft: DocumentDraft) -> bytes:
    """A document as a job keeps it until it is in the record.

    Halves of surrogate pairs become question marks, and what JSON does not know in the metadata, text.
    """
    return json.dumps(
        {
            "text": draft.text,
            "title": draft.title,
            "title_source": draft.title_source,
            "mime": draft.mime,
            "metadata": draft.metadata,
        },
        ensure_ascii=False,
        default=str,
    ).encode("utf-8", "replace")


@dataclass(slots=True)
class _Batch:
    """The documents of a job that are written together, as far as they are loaded."""

    loaded: list[tuple[JobItem, DocumentDraft]] = field(default_factory=list["tuple[JobItem, DocumentDraft]"])
    failed: list[tuple[JobItem, str]] = field(default_factory=list["tuple[JobItem, str]"])
    unchanged: list[JobItem] = field(default_factory=list["JobItem"])
    changing: set[str] = field(default_factory=set[str])
    size: int = 0


class Ingest:
    """Carries out the jobs of a knowledge base, oldest first, a batch of documents at a time.

    Whatever happens between two steps, the next step (of this process or another) goes on where the
    record says. Only the holder of the knowledge base's lock calls `step`.

    Args:
        record: where jobs are read and documents written.
        pipeline: prepares documents.
        words: index of words, kept in step with every batch.
        limits: what a file may be at the most.
    """

    def __init__(
        self, record: Record, pipeline: Pipeline, words: WordIndex, *, limits: LoadLimits | None = None
    ) -> None:
        self._record = record
        self._pipeline = pipeline
        self._words = words
        self._limits = limits or LoadLimits()
        self._names: NameIndex | None = None
        self._bytes = _FIRST_BYTES

    async def step(self) -> bool:
        """Do the next piece of work.

        Returns:
            Whether there was any.
        """
        job = await to_thread.run_sync(self._record.jobs.next)
        if job is None:
            return await to_thread.run_sync(self._link_earlier)
        if job.state == "queued":
            await to_thread.run_sync(self._list, job)
            return True
        items = await to_thread.run_sync(self._next_items, job)
        if items:
            await self._process(job, items)
        else:
            await to_thread.run_sync(self._record.jobs.finish, job)
        return True

    def forget(self) -> None:
        """Drop what is held in memory, as another process may write from now on."""
        self._names = None

    # -- a job's documents -------------------------------------------------------------------------

    def _list(self, job: Job) -> None:
        request = job.request
        files: list[tuple[str, int, str]] = []
        for root in map(Path, request["paths"]):
            if not root.exists():
                files.append((uri_of(root), 0, "there is no such file or folder"))
                continue
            try:
                entries = scan(root, include=request.get("include", ()), exclude=request.get("exclude", ()))
            except InvalidInputError as error:
                self._record.jobs.finish(job, "failed", error=str(error))
                return
            files += [(uri_of(entry.path), entry.size, entry.skipped or "") for entry in entries]
        self._record.jobs.listed(job, files)

    def _next_items(self, job: Job) -> list[JobItem]:
        return self._record.jobs.pending(job, _BATCH_ITEMS, size=min(self._bytes, _BATCH_BYTES))

    async def _process(self, job: Job, items: Sequence[JobItem]) -> None:
        started = time.monotonic()
        batch, rest = _Batch(), iter(items)
        while await to_thread.run_sync(self._load_some, job, rest, batch):
            if time.monotonic() - started > _BATCH_SECONDS:
                break  # the others are still pending
        prepared = await self._prepare([draft for _, draft in batch.loaded])
        before = await to_thread.run_sync(self._write, job, batch, prepared)
        await to_thread.run_sync(self._words.sync_all)
        await to_thread.run_sync(self._link_earlier, before)
        in_time = int(batch.size * _BATCH_SECONDS / max(time.monotonic() - started, 1e-3))
        self._bytes = max(_FIRST_BYTES, min(in_time, 2 * self._bytes, _BATCH_BYTES))

    def _load_some(self, job: Job, rest: Iterator[JobItem], batch: _Batch) -> bool:
        """Load documents for a while.

        Returns:
            Whether there may be more of them.
        """
        until = time.monotonic() + _LOAD_SECONDS
        for item in rest:
            batch.size += item.size
            try:
                draft = self._load(job, item)
            except DocumentError as error:
                batch.failed.append((item, str(error)))
            else:
                hash_ = self._pipeline.hash(draft)
                # What the record has says nothing of a document that this batch changes further up.
                if draft.uri not in batch.changing and self._record.documents.is_current(draft.uri, hash_):
                    batch.unchanged.append(item)
                else:
                    batch.loaded.append((item, draft))
                    batch.changing.add(draft.uri)
            if time.monotonic() > until:
                return True
        return False

    async def _prepare(self, drafts: Sequence[DocumentDraft]) -> dict[str, PreparedDocument | str]:
        """Prepared documents by URI, and for those that could not be, the reason."""
        try:
            prepared = await self._pipeline.prepare(drafts)
        except Exception as error:  # noqa: BLE001 - extractors may be anybody's, texts are anything
            if len(drafts) == 1:
                _log.exception("preparing %s failed", drafts[0].uri)
                return {drafts[0].uri: f"it could not be prepared: {type(error).__name__}: {error}"}
            # One of them is the cause, and must not take the others with it.
            one_by_one = [await self._prepare([draft]) for draft in drafts]
            return {uri: document for part in one_by_one for uri, document in part.items()}
        return {document.draft.uri: document for document in prepared}

    def _load(self, job: Job, item: JobItem) -> DocumentDraft:
        metadata: dict[str, Any] = job.request.get("metadata", {})
        if item.payload is None:
            draft = load_file(path_of(item.uri), limits=self._limits)
        else:
            draft = _from_payload(item)
        if not metadata:
            return draft
        return DocumentDraft(
            uri=draft.uri,
            text=draft.text,
            title=draft.title,
            title_source=draft.title_source,
            blocks=draft.blocks,
            mime=draft.mime,
            metadata={**draft.metadata, **metadata},
        )

    def _write(self, job: Job, batch: _Batch, prepared: dict[str, PreparedDocument | str]) -> int:
        """Write a batch, with the links from its own chunks.

        Returns:
            Key of the newest chunk there was before.
        """
        record = self._record
        before = record.documents.last_chunk()
        try:
            with record.database.write():
                for item, draft in batch.loaded:
                    document = prepared.get(draft.uri, "there is no text in it")
                    if isinstance(document, str):
                        record.jobs.settle(job, item, "failed", reason=document)
                        continue
                    outcome = record.documents.put(document)
                    record.jobs.settle(job, item, outcome, chunks=len(document.chunks))
                for item, reason in batch.failed:
                    record.jobs.settle(job, item, "failed", reason=reason)
                for item in batch.unchanged:
                    record.jobs.settle(job, item, "unchanged")
                self._link_new(record.documents.chunk_keys(after=before, limit=_ALL))
        except BaseException:
            self._names = None  # it may hold names that were not written in the end
            raise
        return before

    # -- links -------------------------------------------------------------------------------------

    def _name_index(self) -> NameIndex:
        if self._names is None:
            self._names = NameIndex()
            for entity, id_ in self._record.graph.subjects():
                self._names.add(entity, id_)
        return self._names

    def _link_new(self, chunks: Sequence[int]) -> None:
        """Look for all known names in new chunks; part of the transaction that writes them."""
        names = self._name_index()
        for entity, id_ in self._record.graph.new_names():
            names.add(entity, id_)
        self._add_links(self._links_in(chunks, names))

    def _link_earlier(self, newest: int = _ALL) -> bool:
        """Look for new names in the chunks that were there before them.

        Args:
            newest: key of the last chunk to look at. A name is looked for in the chunks that are written
                with it or after it when they are written, so that those before it are enough.

        Returns:
            Whether there were new names.
        """
        graph = self._record.graph
        new = graph.new_names()
        if not new:
            return False
        names = NameIndex()
        try:
            candidates = {key for key in self._candidates(new, names) if key <= newest}
        except IndexDamagedError as error:
            self._words.report_damage(error)
            return True
        with self._record.database.write():
            self._add_links(self._links_in(sorted(candidates), names))
            graph.forget_new_names(entity for entity, _ in new)
        return True

    def _candidates(self, new: Sequence[tuple[int, str]], names: NameIndex) -> set[int]:
        """The chunks that may hold one of some new names, which are added to an index of names."""
        found: set[int] = set()
        self._words.sync_all()
        words = self._words.searcher()
        if words is None:
            raise IndexDamagedError("The index of words does not open.")
        for entity, id_ in new:
            tokens = lookup_tokens(id_)
            if tokens and names.add(entity, id_):
                found.update(words.containing(tokens))
        return found

    def _links_in(self, chunks: Sequence[int], names: NameIndex) -> Iterable[tuple[int, int, int, int, str]]:
        for start in range(0, len(chunks), 1000):
            for key, text in self._record.graph.texts(chunks[start : start + 1000]).items():
                for match in names.find(text):
                    yield key, match.entity, match.start, match.end, text[match.start : match.end]

    def _add_links(self, links: Iterable[tuple[int, int, int, int, str]]) -> None:
        found = list(links)
        # The index in memory may know names whose last title is gone.
        alive = self._record.graph.still_subjects(sorted({entity for _, entity, *_ in found}))
        touched = self._record.graph.add_links(link for link in found if link[1] in alive)
        self._record.changes.note("entity", sorted(touched))


def _from_payload(item: JobItem) -> DocumentDraft:
    fields: dict[str, Any] = json.loads(item.payload or b"{}")
    text: str = fields.pop("text")
    draft = load_bytes(text.encode(), uri=item.uri, name="", mime=fields["mime"])
    title = fields["title"]
    return DocumentDraft(
        uri=item.uri,
        text=draft.text,
        title=title or draft.title,
        title_source=fields["title_source"] if title else draft.title_source,
        blocks=draft.blocks,
        mime=fields["mime"],
        metadata={**draft.metadata, **fields["metadata"]},
    )
