"""Writing a batch of a job's documents: one transaction, with what became of each item."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from loom_core.knowledge.pipeline import document_id
from loom_core.knowledge.preparing.making import Failed, Unchanged
from loom_core.knowledge.record import Settled
from loom_core.knowledge.record.prepared import PreparedDocument
from loom_core.knowledge.uris import shown
from loom_core.observability.families import INGESTED_CHUNKS, INGESTED_DOCUMENTS
from loom_core.observability.metrics import process_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.batch import Batch, Fate
    from loom_core.knowledge.file_check import FileCheck
    from loom_core.knowledge.indexing import WordIndex
    from loom_core.knowledge.preparing.making import Made
    from loom_core.knowledge.record import Job, JobItem, Record

__all__ = ["BatchWriter"]


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
