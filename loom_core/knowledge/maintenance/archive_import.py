"""Taking an archive into a knowledge base."""

from __future__ import annotations

import json
import shutil
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import DocumentError, InvalidInputError, RecordError, StoreBusyError
from loom_core.knowledge.ingest.loaders import LoadLimits
from loom_core.knowledge.ingest.stored_documents import unpacked_draft
from loom_core.knowledge.maintenance.archive import DECISIONS, DOCUMENTS, VECTORS, ArchiveReader
from loom_core.knowledge.store.receiving import Receiving, abandon_received
from loom_core.storage import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from loom_core.knowledge.maintenance.archive import Manifest
    from loom_core.knowledge.store import Record
    from loom_core.knowledge.store.store import MetaName

__all__ = ["receive_archive"]

_PORTION = 200  # documents that are written down together,
_PORTION_BYTES = 4 << 20  # unless they are as large as this
_VECTORS = 2000
_HASH = 16
_MOST_LINE = 12  # bytes of JSON that a character may take
_MOST_DECISION = 1 << 16
_SPARE = 64 << 20


def receive_archive(
    record: Record,
    archive: ArchiveReader,
    *,
    folder: Path | None,
    progress: Callable[[int, int], None] | None = None,
    limits: LoadLimits | None = None,
    confirm: bool = False,
) -> str:
    """Check an archive and write all that is in it down as one job. Blocks; memory does not grow.

    When it returns, the archive is no longer needed, and all of it will be in the knowledge base whatever
    happens; before, nothing of it is. Vectors are taken over if the embedder that made them is the record's.

    Args:
        record: of the knowledge base that takes it in.
        archive: the archive.
        folder: of the knowledge base; None in memory.
        progress: told how many documents are written down, and how many there are.
        limits: what a document may be at the most.
        confirm: whether a language model may read much for it; else the job fails where it would.

    Returns:
        Id of the job.

    Raises:
        InvalidInputError: the archive is damaged.
        RecordError: there is no room for it.
        StoreBusyError: another process is just taking one in.
    """
    archive.verify()
    lock = None
    if folder is not None:
        _check_room(folder, archive.manifest)
        lock = ProcessLock(folder / "import.lock")
        if not lock.acquire():
            raise StoreBusyError(
                f"Process {lock.holder()} is just importing into this knowledge base.",
                advice="Wait until it is done.",
            )
    try:
        abandon_received(record.database)  # what a process left behind that was killed
        request = {"archive": archive.manifest.name} | ({"confirmed": True} if confirm else {})
        job = Receiving(record.database, request)
        try:
            _receive(record, job, archive, limits or LoadLimits(), progress)
        except BaseException:
            abandon_received(record.database)
            raise
        return job.acknowledge()
    finally:
        if lock is not None:
            lock.release()


def _receive(
    record: Record,
    job: Receiving,
    archive: ArchiveReader,
    limits: LoadLimits,
    progress: Callable[[int, int], None] | None,
) -> None:
    manifest = archive.manifest
    done, total = 0, manifest.parts[DOCUMENTS].rows if DOCUMENTS in manifest.parts else 0
    lines = archive.lines(DOCUMENTS, most=_MOST_LINE * limits.max_text_chars)
    for portion in _portions(map(_document, lines)):
        job.take(portion)
        done += len(portion)
        if progress is not None:
            progress(done, total)
    if manifest.embedder and manifest.embedder == record.get("embedder"):
        rows = archive.records(VECTORS, size=_HASH + 2 * manifest.dimension)
        while page := [(row[:_HASH], row[_HASH:]) for row in islice(rows, _VECTORS)]:
            record.offered.offer(page)
    _take_decisions(record, archive)
    said: dict[MetaName, str] = {"description": manifest.description, "search_hints": manifest.search_hints}
    for name, value in said.items():
        if value and not record.get(name):
            record.set(name, value)


def _document(line: bytes) -> tuple[str, bytes]:
    try:
        fields: object = json.loads(line)
        if not isinstance(fields, dict):
            raise DocumentError("It is no JSON object.")
        draft = unpacked_draft(cast("dict[str, Any]", fields))
    except (ValueError, RecursionError, DocumentError) as error:
        raise InvalidInputError(
            f"The archive holds a document that cannot be read: {error}", advice="Export it again."
        ) from error
    return draft.uri, line.rstrip(b"\n")


def _portions(documents: Iterator[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    portion: list[tuple[str, bytes]] = []
    size = 0
    for uri, payload in documents:
        portion.append((uri, payload))
        size += len(payload)
        if len(portion) == _PORTION or size > _PORTION_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _take_decisions(record: Record, archive: ArchiveReader) -> None:
    """What people have decided there counts here, too, unless it was decided otherwise."""
    for member, (table, columns) in DECISIONS.items():
        rows: list[list[object]] = []
        for line in archive.lines(member, most=_MOST_DECISION):
            if (row := _decision(line)) is None or len(row) != len(columns):
                raise InvalidInputError(f"The archive's {member} cannot be read.", advice="Export it again.")
            rows.append(row)
        marks = ", ".join("?" * len(columns))
        with record.database.write() as db:
            db.executemany(f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)
            regrouped = record.aliases.regroup(record.aliases.misgrouped())
            record.changes.note("entity", sorted(regrouped))


def _decision(line: bytes) -> list[object] | None:
    """The values of a row, each one that a table can hold; None if the line is no such row."""
    try:
        row: object = json.loads(line)
        json.dumps(row, ensure_ascii=False, allow_nan=False).encode()  # no halves of surrogate pairs
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, list):
        return None
    values = cast("list[object]", row)
    plain = all(
        isinstance(each, str | float) or (isinstance(each, int) and abs(each) < 1 << 63) for each in values
    )
    return values if plain else None


def _check_room(folder: Path, manifest: Manifest) -> None:
    # Everything is written down once, and once again as it is taken in.
    needed = 2 * sum(part.bytes for part in manifest.parts.values()) + _SPARE
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RecordError(
            f"The archive takes up to {needed >> 20:,} MiB; {free >> 20:,} are free.",
            advice="Make room on the disk; nothing was imported.",
        )
