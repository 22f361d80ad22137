"""Batches: documents of a job that are written together, from the file check to the transaction."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.loaders.titles import readable_name
from loom_core.knowledge.ingest.pipeline import document_id
from loom_core.knowledge.ingest.stored_documents import load_draft, pack_draft
from loom_core.knowledge.store.files import FileFingerprint, read_fingerprint
from loom_core.knowledge.store.prepared_documents import ItemOutcome, JobItem, PreparedDocument
from loom_core.knowledge.uris import display_uri, path_of
from loom_core.observability.families import INGESTED_CHUNKS, INGESTED_DOCUMENTS
from loom_core.observability.metrics import process_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.indexes import LexicalIndexes
    from loom_core.knowledge.ingest.loaders import LoadLimits
    from loom_core.knowledge.ingest.workers import Preparation
    from loom_core.knowledge.store import Job, JobItem, KnowledgeStore
    from loom_core.knowledge.store.files import KnownFile
    from loom_core.knowledge.store.prepared_documents import ItemState, Prepared

__all__ = ["BatchBuilder", "BatchWriter", "FileCheck", "IngestBatch", "ItemAction"]

_IN_RECORD: tuple[ItemState, ...] = ("added", "updated", "moved", "unchanged")
"""Outcomes with a document in the store, for which the fingerprint of the file is stored, too."""


@dataclass(frozen=True, slots=True)
class ItemAction:
    """Next action for an item, by the state of its file.

    Attributes:
        kind: `prepare` the item; else its file is `unchanged`, has `moved` here, is `gone`, or `failed`.
        state: fingerprint of the file, if it could be read unchanged.
        source: for `moved`, the document that gets the new address.
        reason: for `failed`, the reason.
    """

    kind: Literal["prepare", "unchanged", "moved", "gone", "failed"]
    state: FileFingerprint | None = None
    source: KnownFile | None = None
    reason: str = ""


@dataclass(slots=True)
class IngestBatch:
    """Items of a job, in order.

    Attributes:
        items: the items, each with its action.
        size: size of the items in bytes.
        preparation: preparation of the items with the action `prepare`, in order.
        taken: how many of these were split off already.
    """

    items: list[tuple[JobItem, ItemAction]] = field(default_factory=list["tuple[JobItem, ItemAction]"])
    size: int = 0
    preparation: Preparation | None = None
    taken: int = 0

    @property
    def last(self) -> int:
        """Ordinal of the last item."""
        return self.items[-1][0].ordinal

    def ready_results(self) -> list[Prepared]:
        """Return the results of the prepared items, in order, up to the first that is not done."""
        if self.preparation is None:
            return []
        end = self.taken + sum(action.kind == "prepare" for _, action in self.items)
        results = self.preparation.made[self.taken : end]
        return [result for result in takewhile(lambda result: result is not None, results) if result]

    def take_ready(self) -> IngestBatch:
        """Split off the first items, up to the first that is not prepared, as a separate batch."""
        made = ready = len(self.ready_results())  # counted once, as workers prepare more meanwhile
        count = 0
        for _, action in self.items:
            if action.kind == "prepare":
                if not ready:
                    break
                ready -= 1
            count += 1
        part = IngestBatch(self.items[:count], preparation=self.preparation, taken=self.taken)
        part.size = sum(item.size for item, _ in part.items)
        self.taken += made
        self.items, self.size = self.items[count:], self.size - part.size
        return part

    def changing(self) -> set[str]:
        """Return the URIs whose documents this batch may change."""
        return {item.uri for item, action in self.items if action.kind != "failed"}


class FileCheck:
    """Compares the files of jobs with the store before they are loaded.

    Args:
        store: the store with the fingerprints of files.
        pipeline: id of the pipeline.
        limits: limits of a file; a larger one is not read.
    """

    def __init__(self, store: KnowledgeStore, *, pipeline: str, limits: LoadLimits) -> None:
        self._store = store
        self._pipeline = f"{version('loom-mcp-core')}/{pipeline}"
        self._limits = limits
        self._claimed: set[tuple[int, int]] = set()

    def settings(self, job: Job) -> bytes:
        """Return a digest of everything a document depends on besides its file."""
        described = json.dumps([self._pipeline, job.request.get("metadata", {})], sort_keys=True)
        return hashlib.sha256(described.encode()).digest()[:16]

    def check(self, job: Job, item: JobItem) -> ItemAction:
        """Decide what to do with an item by its file. Blocks: reads the file, unless it is too large.

        A document is claimed by the first file that it could have moved to; a second copy is loaded.
        """
        if item.payload is not None or not item.uri.startswith("file:") or "stored" in job.request:
            return ItemAction("prepare")
        path = path_of(item.uri)
        try:
            state = read_fingerprint(path, max_bytes=self._limits.max_bytes, roots=job.roots)
        except (FileNotFoundError, NotADirectoryError):
            return ItemAction("gone" if job.kind == "sync" else "prepare")
        except (OSError, ValueError):
            return ItemAction("prepare")
        if state is None:
            return ItemAction("prepare")
        settings = self.settings(job)
        before = self._store.files.find_known([item.uri], settings).get(item.uri)
        if before is not None and before.state.content == state.content:
            return ItemAction("unchanged", state)
        if job.kind == "sync":
            for source in self._store.files.leaving(job.key, state.content, settings):
                claim = (job.key, source.document)
                if claim not in self._claimed and _is_parsed_alike(source, path):
                    self._claimed.add(claim)
                    return ItemAction("moved", state, source)
        return ItemAction("prepare", state)

    def is_unchanged(self, item: JobItem, state: FileFingerprint) -> bool:
        """Whether a file is unchanged since the check, so that the loaded content was the checked one."""
        try:
            now = path_of(item.uri).stat(follow_symlinks=False)
        except (OSError, ValueError):
            return False
        return (now.st_size, now.st_ctime_ns) == (state.size, state.ctime_ns)

    def forget(self) -> None:
        """Drop all claims, as no job is in progress."""
        self._claimed.clear()


class BatchBuilder:
    """Builds batches: checks the files of a job's items, and loads what they need.

    Args:
        store: the store.
        files: decides the action for each item.
    """

    def __init__(self, store: KnowledgeStore, files: FileCheck) -> None:
        self._store = store
        self._files = files

    def build(
        self, job: Job, items: Sequence[JobItem], *, changing: set[str]
    ) -> tuple[IngestBatch, list[JobItem]]:
        """Build a batch. Blocks.

        Args:
            job: the job.
            items: its next items.
            changing: URIs of items in progress, which the store does not show yet.

        Returns:
            The batch without its preparation, and those of the items that are to be prepared.
        """
        batch, complete = IngestBatch(), list[JobItem]()
        changing = set(changing)
        known = self._store.documents.hashes([item.uri for item in items])
        for item in items:
            action = self._files.check(job, item)
            if action.kind == "unchanged" and item.uri in changing:
                action = ItemAction("prepare", action.state)
            if action.kind == "prepare":
                hash_ = b"" if item.uri in changing else known.get(item.uri, b"")
                try:
                    complete.append(self._complete(job, item, hash_))
                except DocumentError as error:
                    action = ItemAction("failed", action.state, reason=str(error))
            batch.items.append((item, action))
            batch.size += item.size
            changing.add(item.uri)
        return batch, complete

    def _complete(self, job: Job, item: JobItem, known: bytes) -> JobItem:
        """Return the item with all input of its preparation.

        Raises:
            DocumentError: its document was removed from the store.
        """
        if "stored" in job.request:
            return replace(item, payload=self._load_payload(item), known=known)
        return replace(item, metadata=job.request.get("metadata", {}), known=known, roots=job.roots)

    def _load_payload(self, item: JobItem) -> bytes:
        draft = load_draft(self._store.database, item.uri)
        if draft is None:
            raise DocumentError(f"{item.uri} was removed meanwhile.")
        return json.dumps(pack_draft(draft), ensure_ascii=False).encode("utf-8", "replace")


class BatchWriter:
    """Writes batches into the store.

    Args:
        store: the store.
        files: the check of files, for their settings and fingerprints.
        words: the lexical index, which receives the tokens of written chunks.
    """

    def __init__(self, store: KnowledgeStore, files: FileCheck, words: LexicalIndexes) -> None:
        self._store = store
        self._files = files
        self._words = words

    def write(self, job: Job, batch: IngestBatch, made: Sequence[Prepared]) -> bool:
        """Write a batch, unless its job was cancelled meanwhile. Blocks.

        Args:
            job: the job.
            batch: its items.
            made: results of the items with the action `prepare`, in order.

        Returns:
            Whether the job continues.
        """
        store = self._store
        results = iter(made)
        items = [
            (item, action, next(results) if action.kind == "prepare" else None)
            for item, action in batch.items
        ]
        before = store.documents.last_chunk()
        with store.database.write():
            if not store.jobs.is_open(job):
                return False
            still = store.jobs.still_open(job, [item for item, _ in batch.items])
            items = self._in_order([row for row in items if row[0].ordinal in still])
            documents = [result for _, _, result in items if isinstance(result, PreparedDocument)]
            states = iter(store.documents.upsert_all(documents))
            settled: list[tuple[JobItem, ItemOutcome]] = []
            for item, action, result in items:
                if isinstance(result, PreparedDocument):
                    outcome = ItemOutcome(next(states), chunks=len(result.chunks))
                else:
                    outcome = self._end(job, item, action) if result is None else result
                    # A file that is readable, but no longer holds a document: a sync removes it.
                    lost = outcome.by_content and job.kind == "sync" and action.state is not None
                    if lost and self._remove_at(item.uri):
                        reason = f"{outcome.reason.rstrip('.')}. What was read from it before is removed."
                        outcome = replace(outcome, reason=reason)
                if outcome.state in _IN_RECORD:
                    self._note_file(job, item, action)
                settled.append((item, outcome))
            store.jobs.settle_all(job, settled)
            store.progress.note(job, [f"{display_uri(d.uri)}: {note}" for d in documents for note in d.notes])
            keys = store.documents.keys_after(before)
        for state, number in Counter(outcome.state for _, outcome in settled).items():
            process_metrics.add(INGESTED_DOCUMENTS, state, by=number)
        process_metrics.add(INGESTED_CHUNKS, by=sum(outcome.chunks for _, outcome in settled))
        self._words.provide_tokens(
            {keys[c.id]: c.tokens for d in documents for c in d.chunks if c.id in keys}
        )
        return True

    def _in_order(
        self, items: Sequence[tuple[JobItem, ItemAction, Prepared | None]]
    ) -> list[tuple[JobItem, ItemAction, Prepared | None]]:
        """Drop items that are no longer unchanged, and later items with the same URIs.

        Their documents were written or removed since the comparison. The items stay pending, in order.
        """
        held: set[str] = set()
        ready: list[tuple[JobItem, ItemAction, Prepared | None]] = []
        for row in items:
            item, _, made = row
            if (
                isinstance(made, ItemOutcome)
                and made.hash
                and not self._store.documents.is_current(item.uri, made.hash)
            ):
                held.add(item.uri)
            if item.uri not in held:
                ready.append(row)
        return ready

    def _end(self, job: Job, item: JobItem, action: ItemAction) -> ItemOutcome:
        """Write an item that needs no preparation."""
        match action.kind:
            case "failed":
                return ItemOutcome("failed", action.reason)
            case "gone":
                return ItemOutcome("removed" if self._remove_at(item.uri) else "skipped", "it is gone")
            case "moved":
                return self._move(job, item, action)
            case _:
                return ItemOutcome("unchanged")

    def _note_file(self, job: Job, item: JobItem, action: ItemAction) -> None:
        """Store the state of the file of a stored document."""
        if action.state is not None and self._files.is_unchanged(item, action.state):
            self._store.files.note(item.uri, action.state, self._files.settings(job))

    def _remove_at(self, uri: str) -> bool:
        """Remove the document at an address; return False if there is none."""
        document = self._store.documents.get(uri)
        if document is not None:
            self._store.documents.remove(document.key)
        return document is not None

    def _move(self, job: Job, item: JobItem, action: ItemAction) -> ItemOutcome:
        """Move a document to the new address of its file."""
        self._remove_at(item.uri)
        if action.source is not None and self._store.files.move(
            action.source, item.uri, id_=document_id(item.uri)
        ):
            self._store.jobs.drop(job, action.source.uri)
            return ItemOutcome("moved", f"from {display_uri(action.source.uri)}")
        return ItemOutcome("failed", "it was removed meanwhile: sync again")


def _is_parsed_alike(source: KnownFile, path: Path) -> bool:
    """Whether a renamed file gives the same document under its new name."""
    before = path_of(source.uri)
    if before.suffix.lower() != path.suffix.lower():
        return False
    if not path.suffix and before.name.lower() != path.name.lower():  # README, Dockerfile
        return False
    return source.title_source not in {"filename", "none"} or readable_name(before) == readable_name(path)
