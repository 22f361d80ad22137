"""Batches: documents of a job written together, from the check of their files to the transaction."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.loaders.titles import readable_name
from loom_core.knowledge.ingest.pipeline import document_id
from loom_core.knowledge.ingest.stored_documents import packed_draft, stored_draft
from loom_core.knowledge.ingest.workers import Material
from loom_core.knowledge.ingest.workers.material import Failed, Unchanged
from loom_core.knowledge.store import Settled
from loom_core.knowledge.store.files import FileState, read_state
from loom_core.knowledge.store.prepared import PreparedDocument
from loom_core.knowledge.uris import path_of, shown
from loom_core.observability.families import INGESTED_CHUNKS, INGESTED_DOCUMENTS
from loom_core.observability.metrics import process_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.indexes import WordIndex
    from loom_core.knowledge.ingest.loaders import LoadLimits
    from loom_core.knowledge.ingest.workers import Preparation
    from loom_core.knowledge.ingest.workers.material import Made
    from loom_core.knowledge.store import Job, JobItem, Record
    from loom_core.knowledge.store.files import KnownFile

__all__ = ["Batch", "BatchMaker", "BatchWriter", "Fate", "FileCheck"]


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of an item, as far as it is known without preparing anything.

    Attributes:
        kind: `prepare` it; it is `unchanged`, `moved` here from elsewhere, `gone`, or has `failed`.
        state: of its file.
        source: the document that moved here.
        reason: why it failed.
    """

    kind: Literal["prepare", "unchanged", "moved", "gone", "failed"]
    state: FileState | None = None
    source: KnownFile | None = None
    reason: str = ""


@dataclass(slots=True)
class Batch:
    """Items of a job, in order.

    Attributes:
        items: with the fate of each.
        size: bytes of the items.
        preparation: of those that are to be prepared, in their order.
        taken: how many of these have left the batch already.
    """

    items: list[tuple[JobItem, Fate]] = field(default_factory=list["tuple[JobItem, Fate]"])
    size: int = 0
    preparation: Preparation | None = None
    taken: int = 0

    @property
    def last(self) -> int:
        """Ordinal of the last item."""
        return self.items[-1][0].ordinal

    def made(self) -> list[Made]:
        """What became of the items that were to be prepared, in order, up to the first that is not done."""
        results = [] if self.preparation is None else self.preparation.made[self.taken :]
        return [result for result in takewhile(lambda result: result is not None, results) if result]

    def take_ready(self) -> Batch:
        """Take out the first items, up to the first that is not prepared, as a batch of their own."""
        ready = len(self.made())
        count = 0
        for _, fate in self.items:
            if fate.kind == "prepare":
                if not ready:
                    break
                ready -= 1
            count += 1
        part = Batch(self.items[:count], preparation=self.preparation, taken=self.taken)
        part.size = sum(item.size for item, _ in part.items)
        self.taken += len(self.made())
        self.items, self.size = self.items[count:], self.size - part.size
        return part

    def changing(self) -> set[str]:
        """URIs of which the record may say something else once this batch is written."""
        return {item.uri for item, fate in self.items if fate.kind != "failed"}


class BatchMaker:
    """Looks at a job's items before they are prepared.

    Args:
        record: what is there already.
        files: tells what has become of files.
    """

    def __init__(self, record: Record, files: FileCheck) -> None:
        self._record = record
        self._files = files

    def make(self, job: Job, items: Sequence[JobItem], *, changing: set[str]) -> tuple[Batch, list[Material]]:
        """Begin a batch. Blocks.

        Args:
            job: the job.
            items: its next items.
            changing: URIs of items that are under way, of which the record says nothing yet.

        Returns:
            The batch without its preparation, and the materials that are to be prepared for it.
        """
        batch, materials = Batch(), list[Material]()
        changing = set(changing)
        known = self._record.documents.hashes([item.uri for item in items])
        for item in items:
            fate = self._fate(job, item, is_changing=item.uri in changing)
            if fate.kind == "prepare":
                hash_ = b"" if item.uri in changing else known.get(item.uri, b"")
                try:
                    materials.append(self._material(job, item, hash_))
                except DocumentError as error:
                    fate = Fate("failed", fate.state, reason=str(error))
            batch.items.append((item, fate))
            batch.size += item.size
            changing.add(item.uri)
        return batch, materials

    def _fate(self, job: Job, item: JobItem, *, is_changing: bool) -> Fate:
        verdict = self._files.look(job, item)
        if verdict.outcome == "unchanged" and not is_changing:
            return Fate("unchanged", verdict.state)
        if verdict.source is not None:
            return Fate("moved", verdict.state, verdict.source)
        if verdict.outcome == "gone" and job.kind == "sync":
            return Fate("gone", verdict.state)
        return Fate("prepare", verdict.state)

    def _material(self, job: Job, item: JobItem, known: bytes) -> Material:
        if "stored" in job.request:
            return Material(item.uri, self._stored(item), known=known, size=item.size)
        metadata: dict[str, Any] = job.request.get("metadata", {})
        return Material(item.uri, item.payload, metadata, known, item.size, job.roots)

    def _stored(self, item: JobItem) -> bytes:
        draft = stored_draft(self._record.database, item.uri)
        if draft is None:
            raise DocumentError(f"{item.uri} was removed meanwhile.")
        return json.dumps(packed_draft(draft), ensure_ascii=False).encode("utf-8", "replace")


class BatchWriter:
    """Writes batches into the record.

    Args:
        record: where to.
        files: says by what settings files were read.
        words: is given the tokens of what is written.
    """

    def __init__(self, record: Record, files: FileCheck, words: WordIndex) -> None:
        self._record = record
        self._files = files
        self._words = words

    def write(self, job: Job, batch: Batch, made: Sequence[Made]) -> bool:
        """Write a batch, unless its job was cancelled meanwhile. Blocks.

        Args:
            job: the job.
            batch: its items.
            made: what became of those that were to be prepared, in their order.

        Returns:
            Whether the job goes on.
        """
        record = self._record
        results = iter(made)
        items = [
            (item, fate, next(results) if fate.kind == "prepare" else None) for item, fate in batch.items
        ]
        before = record.documents.last_chunk()
        with record.database.write():
            if not record.jobs.is_open(job):
                return False
            still = record.jobs.still_open(job, [item for item, _ in batch.items])
            items = self._in_order([row for row in items if row[0].ordinal in still])
            documents = [result for _, _, result in items if isinstance(result, PreparedDocument)]
            outcomes = iter(record.documents.put_all(documents))
            settled: list[Settled] = []
            for item, fate, result in items:
                match result:
                    case None:
                        settled += self._settle(job, item, fate)
                    case PreparedDocument() as document:
                        chunks = len(document.chunks)
                        settled.append(Settled(item, next(outcomes), chunks=chunks))
                        self._note_file(job, item, fate)
                    case Failed(reason, by_content):
                        settled.append(self._fail(job, item, fate, reason, by_content=by_content))
                    case Unchanged():
                        settled.append(Settled(item, "unchanged"))
                        self._note_file(job, item, fate)
            record.jobs.settle_all(job, settled)
            record.progress.note(job, [f"{shown(d.uri)}: {note}" for d in documents for note in d.notes])
            keys = record.documents.keys_after(before)
        for outcome, number in Counter(each.state for each in settled).items():
            process_metrics.add(INGESTED_DOCUMENTS, outcome, by=number)
        process_metrics.add(INGESTED_CHUNKS, by=sum(each.chunks for each in settled))
        self._words.offer({keys[c.id]: c.tokens for d in documents for c in d.chunks if c.id in keys})
        return True

    def _in_order(
        self, items: Sequence[tuple[JobItem, Fate, Made | None]]
    ) -> list[tuple[JobItem, Fate, Made | None]]:
        """Without what was found unchanged and is not any more, and what follows at its address.

        The document was written or removed while it was compared. These stay to be done, in their order.
        """
        held: set[str] = set()
        ready: list[tuple[JobItem, Fate, Made | None]] = []
        for row in items:
            item, _, made = row
            if isinstance(made, Unchanged) and not self._record.documents.is_current(item.uri, made.hash):
                held.add(item.uri)
            if item.uri not in held:
                ready.append(row)
        return ready

    def _settle(self, job: Job, item: JobItem, fate: Fate) -> list[Settled]:
        """Write what needs no preparing."""
        match fate.kind:
            case "failed":
                return [self._fail(job, item, fate, fate.reason, by_content=False)]
            case "gone":
                was_there = self._remove_at(item.uri)
                return [Settled(item, "removed" if was_there else "skipped", "it is gone")]
            case "moved":
                settled = self._move(job, item, fate)
            case _:
                settled = Settled(item, "unchanged")
        self._note_file(job, item, fate)
        return [settled]

    def _fail(self, job: Job, item: JobItem, fate: Fate, reason: str, *, by_content: bool) -> Settled:
        # A file that could be read and holds no document any more: kept in step, there is none.
        if job.kind == "sync" and by_content and fate.state is not None:
            self._remove_at(item.uri)
        return Settled(item, "failed", reason)

    def _note_file(self, job: Job, item: JobItem, fate: Fate) -> None:
        """Note what the file of a document that is in the record is like."""
        if fate.state is not None and self._files.is_still(item, fate.state):
            self._record.files.note(item.uri, fate.state, self._files.settings(job))

    def _remove_at(self, uri: str) -> bool:
        """Remove the document at an address; False if there is none."""
        document = self._record.documents.get(uri)
        if document is not None:
            self._record.documents.remove(document.key)
        return document is not None

    def _move(self, job: Job, item: JobItem, fate: Fate) -> Settled:
        """Give a document the address that its file has now."""
        self._remove_at(item.uri)
        if fate.source is not None and self._record.files.move(
            fate.source, item.uri, id_=document_id(item.uri)
        ):
            self._record.jobs.drop(job, fate.source.uri)
            return Settled(item, "moved", f"from {shown(fate.source.uri)}")
        return Settled(item, "failed", "it was removed meanwhile: sync again")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What has become of a file.

    Attributes:
        outcome: `unchanged`: its document is up to date; `moved`: it is the file that another document was
            read from; `load`: it has to be read; `gone`: it is not there; `unreadable`: nothing is known.
        state: what it is like now, where it could be read in peace.
        source: the document that only gets another address, where it was moved.
    """

    outcome: Literal["unchanged", "moved", "load", "gone", "unreadable"]
    state: FileState | None = None
    source: KnownFile | None = None


class FileCheck:
    """Looks at the files of jobs before they are loaded.

    Args:
        record: knows what they were like.
        pipeline: id of the pipeline.
        limits: what is too large to be loaded is not read here either.
    """

    def __init__(self, record: Record, *, pipeline: str, limits: LoadLimits) -> None:
        self._record = record
        self._pipeline = f"{version('loom-mcp-core')}/{pipeline}"
        self._limits = limits
        self._claimed: set[tuple[int, int]] = set()

    def settings(self, job: Job) -> bytes:
        """Digest of all that a document depends on beside its file."""
        described = json.dumps([self._pipeline, job.request.get("metadata", {})], sort_keys=True)
        return hashlib.sha256(described.encode()).digest()[:16]

    def look(self, job: Job, item: JobItem) -> Verdict:
        """What has become of the file of an item. Blocks: reads the file, unless it is too large.

        A document is claimed by the first file that it could have moved to; a second copy is loaded.
        """
        if item.payload is not None or not item.uri.startswith("file:") or "stored" in job.request:
            return Verdict("load")
        path = path_of(item.uri)
        try:
            state = read_state(path, max_bytes=self._limits.max_bytes, roots=job.roots)
        except (FileNotFoundError, NotADirectoryError):
            return Verdict("gone")
        except (OSError, ValueError):
            return Verdict("unreadable")
        if state is None:
            return Verdict("load")
        settings = self.settings(job)
        before = self._record.files.known([item.uri], settings).get(item.uri)
        if before is not None and before.state.content == state.content:
            return Verdict("unchanged", state)
        if job.kind == "sync":
            for source in self._record.files.leaving(job.key, state.content, settings):
                claim = (job.key, source.document)
                if claim not in self._claimed and _reads_alike(source, path):
                    self._claimed.add(claim)
                    return Verdict("moved", state, source)
        return Verdict("load", state)

    def is_still(self, item: JobItem, state: FileState) -> bool:
        """Whether a file still looks as it did when it was looked at, so that what was loaded was that."""
        try:
            now = path_of(item.uri).stat(follow_symlinks=False)
        except (OSError, ValueError):
            return False
        return (now.st_size, now.st_ctime_ns) == (state.size, state.ctime_ns)

    def forget(self) -> None:
        """Drop all claims, as no job is under way."""
        self._claimed.clear()


def _reads_alike(source: KnownFile, path: Path) -> bool:
    """Whether a file that had another name gives the same document under a new one."""
    before = path_of(source.uri)
    if before.suffix.lower() != path.suffix.lower():
        return False
    if not path.suffix and before.name.lower() != path.name.lower():  # README, Dockerfile
        return False
    return source.title_source not in {"filename", "none"} or readable_name(before) == readable_name(path)
