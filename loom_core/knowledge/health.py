"""How a knowledge base stands, found out quickly and without changing anything in it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.knowledge.rag.owner_client import OwnerClient
from loom_core.knowledge.rag.peer_settings import PeerSettings
from loom_core.knowledge.record.usable import unusable
from loom_core.storage.ownership import Holder, holder_of

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.knowledge.catalogue import CatalogueEntry

__all__ = ["IndexHealth", "KnowledgeBaseHealth", "examine"]

_FINISHED = ("done", "failed", "cancelled")


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
        problems: what is wrong, each in a sentence.
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
    problems: tuple[str, ...] = ()


async def examine(entry: CatalogueEntry) -> KnowledgeBaseHealth:
    """Look at a knowledge base: its record, its folder, and what its owner says of the work."""
    health = await to_thread.run_sync(_examined, entry)
    owner = OwnerClient(entry.folder, settings=PeerSettings(), digest="")
    status = await owner.status() if health.holder is not None else None
    if status is not None and status.problem:
        return replace(health, problems=(*health.problems, f"{health.holder} says: {status.problem}"))
    return health


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
    problems = [entry.problem] if entry.problem else []
    try:
        health = health if unusable(entry.folder / "record.db") else _with_record(health)
    except sqlite3.Error as error:
        if not problems:
            problems.append(f"its record cannot be read ({error})")
    for name, index in health.indexes.items():
        if index.built and not any(entry.folder.glob(f"{name}-{index.generation}*")):
            problems.append(f"its index of {name} has gone; the next process that works builds it anew")
    return replace(health, problems=tuple(problems))


def _with_record(health: KnowledgeBaseHealth) -> KnowledgeBaseHealth:
    path = health.folder / "record.db"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=1.0)) as db:
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        last = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
        head = int(last[0]) if last else 0
        states = db.execute("SELECT name, generation, watermark FROM indexes").fetchall()
        marks = ",".join("?" * len(_FINISHED))
        jobs = db.execute(f"SELECT COUNT(*) FROM jobs WHERE state NOT IN ({marks})", _FINISHED).fetchone()[0]
        vectors = None
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'coverage'").fetchone():
            counted = db.execute("SELECT chunks - unembedded FROM coverage").fetchone()
            vectors = int(counted[0]) if counted else 0
    return replace(
        health,
        format=version,
        vectors=vectors,
        indexes={
            name: IndexHealth(generation, watermark >= 0, head - max(0, watermark))
            for name, generation, watermark in states
        },
        unfinished_jobs=jobs,
    )
