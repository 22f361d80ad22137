"""How a knowledge base stands, found out quickly and without changing anything in it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from anyio import to_thread

from loom_core.errors import IndexDamagedError
from loom_core.knowledge.rag.owner.client import OwnerClient
from loom_core.knowledge.rag.owner.protocol import PeerSettings, loom_version
from loom_core.knowledge.store.probe import is_emptied, unusable
from loom_core.knowledge.store.schema import SCHEMA
from loom_core.storage.ownership import Holder, holder_of, lock_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from loom_core.knowledge.sources.catalogue import CatalogueEntry

__all__ = ["HealthProblem", "IndexHealth", "KnowledgeBaseHealth", "ProblemKind", "damaged_indexes", "examine"]

_FINISHED = ("done", "failed", "cancelled")
_PROBE_SECONDS = 20.0

ProblemKind = Literal[
    "inaccessible",  # the record or its folder cannot be opened or written
    "emptied",  # the record has lost all its content
    "newer",  # a newer Loom has written it
    "damaged",  # the record cannot be read
    "index-gone",
    "index-damaged",
    "work-stopped",  # the process that works for it says that it cannot
    "owner-version",  # that process is of another version of Loom, and cannot be asked
    "owner-silent",  # that process does not answer
]


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """One thing that is wrong.

    Attributes:
        kind: what it is.
        message: what was found, in a sentence.
        index: the index that it is about, or empty.
    """

    kind: ProblemKind
    message: str
    index: str = ""


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """How far an index has followed the record.

    Attributes:
        generation: which one is in force; 0 before the first is built.
        built: whether there is one; if not, it is built with the next work.
        lag: changes of the record that it has still to take over.
    """

    generation: int
    built: bool
    lag: int


@dataclass(frozen=True, slots=True)
class KnowledgeBaseHealth:
    """How a knowledge base stands.

    Attributes:
        name: its name.
        folder: where it is.
        format: version of its record's schema; 0 if the record cannot be read.
        documents: how many documents it holds.
        chunks: how many chunks.
        vectors: how many of them have a vector; None where finding out would take long.
        embedder: id of the model that makes its vectors, or empty.
        embedding_config: what makes that model again, or empty.
        indexes: by name.
        unfinished_jobs: how many jobs are not done yet.
        holder: the process that works for it now, or None.
        problems: what is wrong.
    """

    name: str
    folder: Path
    format: int
    documents: int
    chunks: int
    vectors: int | None
    embedder: str
    embedding_config: dict[str, str] = field(default_factory=dict[str, str])
    indexes: dict[str, IndexHealth] = field(default_factory=dict[str, IndexHealth])
    unfinished_jobs: int = 0
    holder: Holder | None = None
    problems: tuple[HealthProblem, ...] = ()


async def examine(entry: CatalogueEntry) -> KnowledgeBaseHealth:
    """Look at a knowledge base: its record, its indexes, and what its owner says of the work.

    Indexes are opened only while nobody works on them. This may take some seconds, and a minute where all of
    them hang.
    """
    health = await to_thread.run_sync(_examined, entry)
    owner = OwnerClient(entry.folder, settings=PeerSettings(), digest="")
    status = await owner.status() if health.holder is not None else None
    if status is not None and status.problem:
        found = HealthProblem("work-stopped", f"{health.holder} says: {status.problem}")
    elif status is None and (holder := await to_thread.run_sync(holder_of, entry.folder)) and holder.since:
        found = _unanswered(holder)
    else:
        return health
    return replace(health, problems=(*health.problems, found))


def _unanswered(holder: Holder) -> HealthProblem:
    if holder.version != loom_version():
        message = f"{holder} holds it, and is of version {holder.version}, not {loom_version()}."
        return HealthProblem("owner-version", message)
    return HealthProblem("owner-silent", f"{holder} holds it, and does not answer.")


def _examined(entry: CatalogueEntry) -> KnowledgeBaseHealth:
    health = KnowledgeBaseHealth(
        name=entry.name,
        folder=entry.folder,
        format=0,
        documents=entry.documents,
        chunks=entry.chunks,
        vectors=None,
        embedder=entry.embedder,
        embedding_config=entry.embedding_config,
        holder=holder_of(entry.folder),
    )
    path = entry.folder / "record.db"
    if reason := unusable(path):
        kind = "emptied" if is_emptied(path) else "inaccessible"
        return replace(health, problems=(HealthProblem(kind, f"It cannot be opened: {reason}."),))
    try:
        version = _format_of(path)
        if version > len(SCHEMA):
            newer = f"It is of a newer Loom's format ({version}, this one knows {len(SCHEMA)})."
            return replace(health, format=version, problems=(HealthProblem("newer", newer),))
        health, dimension = _with_record(replace(health, format=version))
    except (sqlite3.Error, ValueError) as error:
        unread = HealthProblem("damaged", f"Its record cannot be read ({error}).")
        return replace(health, problems=(unread,))
    return replace(health, problems=tuple(_of_indexes(health, dimension)))


def _of_indexes(health: KnowledgeBaseHealth, dimension: int) -> Iterator[HealthProblem]:
    there: dict[str, int] = {}
    for name, index in health.indexes.items():
        if index.built and any(health.folder.glob(f"{name}-{index.generation}*")):
            there[name] = index.generation
        elif index.built:
            yield HealthProblem("index-gone", f"Its index of {name} has gone.", name)
    with lock_of(health.folder).looking() as nobody_works:
        if nobody_works:
            damaged = damaged_indexes(health.folder, there, dimension=dimension, seconds=_PROBE_SECONDS)
            for name, reason in damaged:
                message = f"Its index of {name} is damaged: {reason.rstrip('.')}."
                yield HealthProblem("index-damaged", message, name)


def _format_of(record: Path) -> int:
    with closing(sqlite3.connect(f"{record.as_uri()}?mode=ro", uri=True, timeout=1.0)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def _with_record(health: KnowledgeBaseHealth) -> tuple[KnowledgeBaseHealth, int]:
    """What its record adds to it, and the dimension of its vectors."""
    path = health.folder / "record.db"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=1.0)) as db:
        last = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
        head = int(last[0]) if last else 0
        states = db.execute("SELECT name, generation, watermark FROM indexes").fetchall()
        marks = ",".join("?" * len(_FINISHED))
        jobs = db.execute(f"SELECT COUNT(*) FROM jobs WHERE state NOT IN ({marks})", _FINISHED).fetchone()[0]
        vectors = None
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'coverage'").fetchone():
            counted = db.execute("SELECT chunks - unembedded FROM coverage").fetchone()
            vectors = int(counted[0]) if counted else 0
        told = db.execute("SELECT value FROM meta WHERE name = 'dimension'").fetchone()
    read = replace(
        health,
        vectors=vectors,
        indexes={
            name: IndexHealth(generation, watermark >= 0, head - max(0, watermark))
            for name, generation, watermark in states
        },
        unfinished_jobs=jobs,
    )
    return read, int(told[0]) if told and told[0] else 0


_MOST_COPIED = 256 << 20  # bytes


def damaged_indexes(
    folder: Path, generations: Mapping[str, int], *, dimension: int, seconds: float
) -> Iterator[tuple[str, str]]:
    """The indexes that do not open, and why; engines are tried in child processes.

    Nobody may be working on them: hold `ProcessLock.looking` meanwhile.

    Args:
        folder: where they are.
        generations: the indexes by name, with the generation that counts.
        dimension: length of the vectors.
        seconds: each counts as hanging after so long.
    """
    from loom_core.knowledge.indexes.engines.probe import probe_kuzu, probe_tantivy

    for name, generation in generations.items():
        path = folder / f"{name}-{generation}"
        match name:
            case "words":
                reason = probe_tantivy(path, timeout=seconds)
            case "graph":
                reason = probe_kuzu(path, timeout=seconds)
            case "chroma":
                reason = _wrong_chroma(path, dimension, seconds)
            case _:
                reason = _wrong_vectors(path, dimension)
        if reason is not None:
            yield name, reason


def _wrong_chroma(path: Path, dimension: int, seconds: float) -> str | None:
    """Why Chroma does not open a copy, as it writes whenever it opens; what is too large is left alone."""
    from loom_core.knowledge.indexes.engines.probe import probe_chroma

    if sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) > _MOST_COPIED:
        return None
    with TemporaryDirectory(prefix="loom-doctor-") as folder:
        copy = Path(folder) / path.name
        shutil.copytree(path, copy)
        reason = probe_chroma(copy, dimension=dimension, timeout=seconds)
    return reason and reason.replace(str(copy), str(path))


def _wrong_vectors(path: Path, dimension: int) -> str | None:
    """Why files of our own do not open; they cannot hang."""
    from loom_core.knowledge.indexes.language_vectors import LanguageVectors

    try:
        LanguageVectors(dimension, path, writable=False).close()
    except IndexDamagedError as error:
        return error.message.rstrip(".")
    return None
