"""Writing a knowledge base into one file."""

from __future__ import annotations

import json
import os
import zipfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError, DocumentError, InvalidInputError, RecordError
from loom_core.knowledge.ingest.stored_documents import packed_draft, stored_drafts
from loom_core.knowledge.maintenance.archive import (
    DECISIONS,
    DOCUMENTS,
    FORMAT,
    VECTORS,
    Manifest,
    Part,
    PartWriter,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from loom_core.knowledge.store import Record

__all__ = ["export"]

_PAGE = 1000


def export(
    record: Record, path: Path, *, name: str, progress: Callable[[int, int], None] | None = None
) -> Manifest:
    """Write a knowledge base, as it is at one moment, into an archive. Blocks; memory does not grow.

    Args:
        record: its record.
        path: the archive to make; there is none until it is whole.
        name: of the knowledge base.
        progress: told how many documents are written, and how many there are.

    Returns:
        What the archive holds.

    Raises:
        InvalidInputError: there is a file already.
        RecordError: a document in the record is damaged.
        ConfigError: the archive cannot be written.
    """
    if path.exists():
        raise InvalidInputError(f"There is already a file {path}.", advice="Choose another name.")
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
                with record.database.snapshot():
                    manifest = _write(record, archive, name, progress)
                archive.writestr("manifest.json", manifest.model_dump_json(indent=1))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}.", advice="Choose another place."
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return manifest


def _write(
    record: Record, archive: zipfile.ZipFile, name: str, progress: Callable[[int, int], None] | None
) -> Manifest:
    total, done = record.documents.counts()[0], 0

    def documents() -> Iterator[bytes]:
        nonlocal done
        for _, draft in stored_drafts(record.database):
            if isinstance(draft, DocumentError):
                raise RecordError(str(draft), advice="`loom-kb check --repair` may help.")
            yield json.dumps(packed_draft(draft), ensure_ascii=False).encode() + b"\n"
            done += 1
            if progress is not None:
                progress(done, total)

    parts = {DOCUMENTS: _part(archive, DOCUMENTS, documents())}
    parts[VECTORS] = _part(archive, VECTORS, _vectors(record))
    for member, (table, columns) in DECISIONS.items():
        rows = record.database.rows(f"SELECT {', '.join(columns)} FROM {table}")
        lines = (json.dumps(list(row), ensure_ascii=False).encode() + b"\n" for row in rows)
        parts[member] = _part(archive, member, lines)
    return Manifest(
        format=FORMAT,
        loom=_version(),
        name=name,
        description=record.get("description"),
        search_hints=record.get("search_hints"),
        embedder=record.get("embedder"),
        dimension=int(record.get("dimension") or 0),
        embedding_config=json.loads(record.get("embedding_config") or "{}"),
        parts=parts,
    )


def _part(archive: zipfile.ZipFile, member: str, rows: Iterator[bytes]) -> Part:
    with archive.open(member, "w", force_zip64=True) as stream:
        writer = PartWriter(stream)  # pyright: ignore[reportArgumentType]
        for row in rows:
            writer.row(row)
    return writer.part()


def _vectors(record: Record) -> Iterator[bytes]:
    after = b""
    while rows := record.database.rows(
        "SELECT hash, vector FROM vectors WHERE hash > ? ORDER BY hash LIMIT ?", (after, _PAGE)
    ):
        after = rows[-1]["hash"]
        for row in rows:
            yield row["hash"] + row["vector"]


def _version() -> str:
    try:
        return version("loom-mcp-core")
    except PackageNotFoundError:
        return ""
