"""The documents of a job that are written together, on their way from the job's list to the record."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

from loom_core.errors import DocumentError
from loom_core.knowledge.preparing import Material
from loom_core.knowledge.stored import packed_draft, stored_draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.file_check import FileCheck
    from loom_core.knowledge.file_state import FileState
    from loom_core.knowledge.preparing import Preparation
    from loom_core.knowledge.preparing.making import Made
    from loom_core.knowledge.record import Job, JobItem, Record
    from loom_core.knowledge.record.files import KnownFile

__all__ = ["Batch", "BatchMaker", "Fate"]


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
