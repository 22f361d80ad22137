"""Archive of a knowledge base: export to one file, and import from it, of this format or an earlier one.

It is a zip of these members:

- `manifest.json`: see `Manifest`;
- `documents.jsonl`: a document a line, as `pack_draft` returns it, oldest first;
- `vectors.bin`: 16 bytes of hash and the vector in float16, little endian, for every embedded text;
- a `.jsonl` for each table of users' decisions, a row a line.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import zipfile
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loom_core.errors import ConfigError, DocumentError, InvalidInputError, StoreBusyError, StoreError
from loom_core.knowledge.ingest.loaders import LoadLimits
from loom_core.knowledge.ingest.stored_documents import iterate_drafts, pack_draft, unpack_draft
from loom_core.knowledge.store.job_upload import JobUpload, discard_unacknowledged
from loom_core.knowledge.store.shard import read_shard
from loom_core.knowledge.text.control_characters import UNSTORABLE
from loom_core.storage import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.store import MetaName

__all__ = ["DECISIONS", "ArchiveReader", "Manifest", "export", "import_archive", "take_decisions"]

FORMAT = 1
DOCUMENTS = "documents.jsonl"
VECTORS = "vectors.bin"
DECISIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "alias_decisions.jsonl": ("alias_decisions", ("id", "other", "same", "decided_at")),
}
"""Users' decisions: member, table and columns. None of them refers to a key."""

_MANIFEST = "manifest.json"
_MOST_MANIFEST = 1 << 20
_BLOCK = 1 << 20
_RATIO = 1100  # deflate cannot pack tighter


class ArchiveMember(BaseModel):
    """A member of the archive: its size, its digest and how many rows it has."""

    model_config = ConfigDict(frozen=True)

    bytes: int = Field(ge=0)
    sha256: str
    rows: int = Field(ge=0)


class Manifest(BaseModel):
    """Manifest of an archive.

    Attributes:
        format: number of the format.
        loom: version of the Loom that wrote it.
        name: name of the knowledge base.
        description: its description.
        search_hints: its search hints.
        embedder: id of the model that made the vectors, or empty.
        dimension: length of the vectors.
        embedding_config: configuration that recreates that model.
        parts: the members, by name.
    """

    model_config = ConfigDict(frozen=True)

    format: int
    loom: str = ""
    name: str = Field(default="", max_length=200)
    description: str = Field(default="", max_length=10_000)
    search_hints: str = Field(default="", max_length=10_000)
    embedder: str = ""
    dimension: int = Field(default=0, ge=0, le=100_000)
    embedding_config: dict[str, str] = {}
    parts: dict[str, ArchiveMember] = {}


class PartWriter:
    """Writes one member, and computes its size and digest."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._rows = 0

    def row(self, data: bytes) -> None:
        """Write a row."""
        self._stream.write(data)
        self._digest.update(data)
        self._bytes += len(data)
        self._rows += 1

    def part(self) -> ArchiveMember:
        """Return the manifest entry of the member."""
        return ArchiveMember(bytes=self._bytes, sha256=self._digest.hexdigest(), rows=self._rows)


class ArchiveReader:
    """An archive opened for reading. It is untrusted: names, sizes and digests are checked.

    Args:
        path: the archive.

    Raises:
        InvalidInputError: it is not an archive of Loom, has a newer format, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise self._rejection(f"cannot be read ({error})") from error
        try:
            self.manifest = self._read_manifest()
            self._check_members()
        except InvalidInputError:
            self._zip.close()
            raise

    def verify(self) -> None:
        """Compare every member with its digest. Blocks; reads all of it.

        Raises:
            InvalidInputError: one of them is damaged.
        """
        for name, part in self.manifest.parts.items():
            digest = hashlib.sha256()
            with self._member(name) as stream:
                while block := stream.read(_BLOCK):
                    digest.update(block)
            if digest.hexdigest() != part.sha256:
                raise self._rejection(f"is damaged: {name} does not match its digest")

    def lines(self, name: str, *, most: int) -> Iterator[bytes]:
        """Yield the lines of a member; none if it does not exist.

        Args:
            name: the member.
            most: maximum length of a line in bytes.

        Raises:
            InvalidInputError: a line is longer, or the member cannot be read.
        """
        if name not in self.manifest.parts:
            return
        with self._member(name) as stream:
            while line := stream.readline(most + 1):
                if len(line) > most:
                    raise self._rejection(f"holds a line of more than {most:,} bytes in {name}")
                yield line

    def records(self, name: str, *, size: int) -> Iterator[bytes]:
        """Yield the fixed-size rows of a member; none if it does not exist.

        Raises:
            InvalidInputError: the member ends within a row, or cannot be read.
        """
        if name not in self.manifest.parts:
            return
        with self._member(name) as stream:
            while row := stream.read(size):
                if len(row) != size:
                    raise self._rejection(f"is damaged: {name} ends within a row")
                yield row

    def close(self) -> None:
        """Release the file."""
        self._zip.close()

    def _read_manifest(self) -> Manifest:
        try:
            info = self._zip.getinfo(_MANIFEST)
            if info.file_size > _MOST_MANIFEST:
                raise self._rejection("has a manifest that is too large")
            found = json.loads(self._zip.read(info))
            if isinstance(found, dict) and isinstance(found.get("format"), int) and found["format"] > FORMAT:  # pyright: ignore[reportUnknownMemberType]
                raise InvalidInputError(
                    f"{self._path} was written by a newer Loom (format {found['format']}, "
                    f"this one knows {FORMAT}).",
                    advice="Upgrade this installation; nothing was imported.",
                )
            return Manifest.model_validate(found)
        except (KeyError, ValueError, OSError, zipfile.BadZipFile, RuntimeError) as error:
            if isinstance(error, ValidationError | KeyError):
                raise self._rejection("is not an archive of a Loom knowledge base") from error
            raise self._rejection(f"cannot be read ({error})") from error

    def _check_members(self) -> None:
        known = {DOCUMENTS, VECTORS, *DECISIONS}
        if unknown := sorted(self.manifest.parts.keys() - known):
            raise self._rejection(f"holds a part that this Loom does not know: {unknown[0]!r}")
        infos = self._zip.infolist()
        names = [info.filename for info in infos]
        if sorted(names) != sorted([_MANIFEST, *self.manifest.parts]):
            raise self._rejection("holds other files than its manifest says")
        for info in infos:
            if info.filename == _MANIFEST:
                continue
            if info.file_size != self.manifest.parts[info.filename].bytes:
                raise self._rejection(f"is damaged: {info.filename} has another size than its manifest says")
            if info.file_size > _RATIO * max(info.compress_size, 1):
                raise self._rejection(
                    f"is not a valid archive: {info.filename} claims an impossible compression ratio"
                )

    @contextmanager
    def _member(self, name: str) -> Generator[BinaryIO]:
        try:
            with self._zip.open(name) as stream:
                yield stream  # pyright: ignore[reportReturnType]
        except (OSError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
            raise self._rejection(f"is damaged: {name} cannot be read ({error})") from error

    def _rejection(self, reason: str) -> InvalidInputError:
        return InvalidInputError(f"{self._path} {reason}.", advice="Export it again, or get a whole copy.")


_PAGE = 1000


def export(
    store: KnowledgeStore, path: Path, *, name: str, progress: Callable[[int, int], None] | None = None
) -> Manifest:
    """Write a knowledge base, as it is at one moment, into an archive. Blocks; memory does not grow.

    Args:
        store: its store.
        path: the archive to write; it appears only once it is complete.
        name: name of the knowledge base.
        progress: called with the numbers of written and of all documents.

    Returns:
        The manifest of the archive.

    Raises:
        InvalidInputError: the file exists already.
        StoreError: a document in the store is damaged.
        ConfigError: the archive cannot be written.
    """
    if path.exists():
        raise InvalidInputError(f"There is already a file {path}.", advice="Choose another name.")
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")  # two may be written at once
    try:
        with partial.open("xb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
                with store.database.snapshot():
                    manifest = _write(store, archive, name, progress)
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
    store: KnowledgeStore, archive: zipfile.ZipFile, name: str, progress: Callable[[int, int], None] | None
) -> Manifest:
    total, done = store.documents.counts()[0], 0

    def documents() -> Iterator[bytes]:
        nonlocal done
        for _, draft in iterate_drafts(store.database):
            if isinstance(draft, DocumentError):
                raise StoreError(str(draft), advice="`loom-kb check --repair` may help.")
            yield json.dumps(pack_draft(draft), ensure_ascii=False).encode() + b"\n"
            done += 1
            if progress is not None:
                progress(done, total)

    parts = {DOCUMENTS: _part(archive, DOCUMENTS, documents())}
    parts[VECTORS] = _part(archive, VECTORS, _vectors(store))
    for member, (table, columns) in DECISIONS.items():
        rows = store.database.rows(f"SELECT {', '.join(columns)} FROM {table}")
        lines = (json.dumps(list(row), ensure_ascii=False).encode() + b"\n" for row in rows)
        parts[member] = _part(archive, member, lines)
    return Manifest(
        format=FORMAT,
        loom=_version(),
        name=name,
        description=store.get("description"),
        search_hints=store.get("search_hints"),
        embedder=store.get("embedder"),
        dimension=int(store.get("dimension") or 0),
        embedding_config=json.loads(store.get("embedding_config") or "{}"),
        parts=parts,
    )


def _part(archive: zipfile.ZipFile, member: str, rows: Iterator[bytes]) -> ArchiveMember:
    with archive.open(member, "w", force_zip64=True) as stream:
        writer = PartWriter(stream)  # pyright: ignore[reportArgumentType]
        for row in rows:
            writer.row(row)
    return writer.part()


def _vectors(store: KnowledgeStore) -> Iterator[bytes]:
    after = b""
    while rows := store.database.rows(
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


_PORTION = 200  # documents that are stored together,
_PORTION_BYTES = 4 << 20  # up to this size
_VECTORS = 2000
_HASH = 16
_MOST_LINE = 12  # bytes of JSON that a character may take
_MOST_DECISION = 1 << 16
_SPARE = 64 << 20


def import_archive(
    store: KnowledgeStore,
    archive: ArchiveReader,
    *,
    folder: Path | None,
    progress: Callable[[int, int], None] | None = None,
    limits: LoadLimits | None = None,
    confirm: bool = False,
) -> str:
    """Check an archive and submit all of its content as one job. Blocks; memory does not grow.

    When it returns, the job is durable and the archive is no longer needed; if it fails before, nothing is
    imported. Vectors are imported if the embedder that made them is the store's.

    Args:
        store: the store of the importing knowledge base.
        archive: the archive.
        folder: the knowledge base's folder; None in memory.
        progress: called with the numbers of submitted and of all documents.
        limits: limits of a document.
        confirm: whether a large extraction by a language model is confirmed; else such a job fails.

    Returns:
        Id of the job.

    Raises:
        InvalidInputError: the archive is damaged.
        StoreError: the disk is too full.
        StoreBusyError: another process is importing one.
    """
    archive.verify()
    lock = None
    if folder is not None:
        _check_room(folder, archive.manifest)
        lock = ProcessLock(folder / "import.lock")
        if not lock.acquire():
            raise StoreBusyError(
                f"Process {lock.holder()} is importing into this knowledge base already.",
                advice="Wait until it is done.",
            )
    node = "" if store.sharing is None else store.sharing.node.id  # the lock is that of its folder
    try:
        discard_unacknowledged(store.database, node=node)  # remains of a killed process
        request = {"archive": archive.manifest.name} | ({"confirmed": True} if confirm else {})
        job = JobUpload(store.database, request, node=node)
        try:
            _receive(store, job, archive, limits or LoadLimits(), progress)
        except BaseException:
            discard_unacknowledged(store.database, node=node)
            raise
        return job.acknowledge()
    finally:
        if lock is not None:
            lock.release()


def _receive(
    store: KnowledgeStore,
    job: JobUpload,
    archive: ArchiveReader,
    limits: LoadLimits,
    progress: Callable[[int, int], None] | None,
) -> None:
    manifest = archive.manifest
    done, total = 0, manifest.parts[DOCUMENTS].rows if DOCUMENTS in manifest.parts else 0
    lines = archive.lines(DOCUMENTS, most=_MOST_LINE * limits.max_text_chars)
    shard = read_shard(store)
    for portion in _portions(map(_document, lines)):
        job.append([(uri, line) for uri, line in portion if shard is None or shard.holds(uri)])
        done += len(portion)
        if progress is not None:
            progress(done, total)
    if manifest.embedder and manifest.embedder == store.get("embedder"):
        rows = archive.records(VECTORS, size=_HASH + 2 * manifest.dimension)
        while page := [(row[:_HASH], row[_HASH:]) for row in islice(rows, _VECTORS)]:
            store.imported_vectors.store(page)
    _take_decisions(store, archive)
    said: dict[MetaName, str] = {"description": manifest.description, "search_hints": manifest.search_hints}
    for name, value in said.items():
        if value and not store.get(name):
            store.set(name, value)


def _document(line: bytes) -> tuple[str, bytes]:
    try:
        fields: object = json.loads(line)
        if not isinstance(fields, dict):
            raise DocumentError("It is not a JSON object.")
        draft = unpack_draft(cast("dict[str, Any]", fields))
        names = (name for block in draft.blocks for name in (*block.path, block.name))
        if any(map(UNSTORABLE.search, (draft.uri, draft.title, draft.text, draft.mime, *names))):
            raise DocumentError(f"{draft.uri!r} has U+0000 or half a surrogate pair: remove it first.")
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


def _take_decisions(store: KnowledgeStore, archive: ArchiveReader) -> None:
    """Import users' decisions from the archive, unless they were decided otherwise here."""
    for member, (table, columns) in DECISIONS.items():
        rows: list[list[object]] = []
        for line in archive.lines(member, most=_MOST_DECISION):
            if (row := _decision(line)) is None:
                raise InvalidInputError(f"The archive's {member} cannot be read.", advice="Export it again.")
            rows.append(row)
        take_decisions(store, table, columns, rows)


def take_decisions(
    store: KnowledgeStore, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
) -> None:
    """Store users' decisions, rows of one of the tables of `DECISIONS`; other ones that exist stay."""
    marks = ", ".join("?" * len(columns))
    with store.database.write() as db:
        db.executemany(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) ON CONFLICT DO NOTHING", rows
        )
        regrouped = store.aliases.regroup(store.aliases.find_misgrouped())
        store.changes.note("entity", sorted(regrouped))


def _decision(line: bytes) -> list[object] | None:
    """Return the validated values of a row; None if the line is invalid."""
    try:
        row: object = json.loads(line)
        json.dumps(row, ensure_ascii=False, allow_nan=False).encode()  # refuses lone surrogates
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, list):
        return None
    values = cast("list[object]", row)
    match values:
        case [str(), str(), bool() | 0 | 1, float() | int() as at] if abs(at) < 1 << 63:
            return values
        case _:
            return None


def _check_room(folder: Path, manifest: Manifest) -> None:
    # Everything is written twice: as a job, and when it is imported.
    needed = 2 * sum(part.bytes for part in manifest.parts.values()) + _SPARE
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise StoreError(
            f"The archive takes up to {needed >> 20:,} MiB; {free >> 20:,} are free.",
            advice="Make room on the disk; nothing was imported.",
        )
