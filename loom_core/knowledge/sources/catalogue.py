"""Catalogue of knowledge bases, read without opening any of them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from loom_core.knowledge.filters import filter_names
from loom_core.knowledge.rag.embedder_choice import folder_in, is_name
from loom_core.knowledge.sources.unified_tool import SourceInfo
from loom_core.knowledge.store.probe import describe_problem
from loom_core.knowledge.store.schema import SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Catalogue", "CatalogueEntry"]

_MAX_FIELDS = 40
_RECORDS = ("*/record.db", "*/record.db-wal")
_REVISION = """
    SELECT (SELECT COUNT(*) FROM documents),
           (SELECT seq FROM sqlite_sequence WHERE name = 'changes'),  -- chunks that came or went
           (SELECT MAX(finished_at) FROM jobs)                        -- documents that moved
"""


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A knowledge base that exists.

    Attributes:
        folder: where it is.
        source: its self-description.
        documents: how many documents it holds.
        chunks: how many chunks it holds.
        embedder: id of the model that makes its vectors, or empty.
        embedding_config: configuration that recreates that model, or empty.
        llm: the language model that extracted from it last, or empty.
        revision: a text that changes whenever documents are added, removed, moved or changed.
        problem: why it cannot be used (written by a newer Loom, damaged), or empty.
    """

    folder: Path
    source: SourceInfo
    documents: int
    chunks: int
    embedder: str
    embedding_config: dict[str, str] = field(default_factory=dict[str, str])
    llm: str = ""
    revision: str = ""
    problem: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return self.source.name


class Catalogue:
    """The knowledge bases in a home folder. Reading it takes a few milliseconds and opens none of them.

    Args:
        home: Loom's home; knowledge bases are in its folder `kb`.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._folder = home / "kb"

    def folder(self, name: str) -> Path:
        """Return the folder of a knowledge base, whether it exists or not.

        Raises:
            InvalidInputError: no knowledge base can have this name.
        """
        return folder_in(self._home, name)

    def files(self) -> dict[Path, tuple[int, int]]:
        """Return modification time and size of the files of every store: any write changes them.

        A database does not notify of another process's writes; this is cheap enough to poll.
        """
        files: dict[Path, tuple[int, int]] = {}
        for pattern in _RECORDS:
            for path in self._folder.glob(pattern):
                try:
                    status = path.stat()
                except OSError:  # it was just deleted
                    continue
                files[path] = (status.st_mtime_ns, status.st_size)
        return files

    def list(self) -> list[CatalogueEntry]:
        """Return all knowledge bases, by name; an unusable one has a `problem`."""
        paths = sorted(self._folder.glob("*/record.db")) if self._folder.is_dir() else []
        return sorted(filter(None, map(_read, paths)), key=lambda entry: entry.name)


def _read(path: Path) -> CatalogueEntry | None:
    """Read the catalogue entry of a store of any format; None if it is only being created."""
    if reason := describe_problem(path):
        return _unusable(path, reason)
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=1.0)) as db:
            version = int(db.execute("PRAGMA user_version").fetchone()[0])
            if version == 0 and not db.execute("SELECT 1 FROM sqlite_master").fetchone():
                return None
            problem = ""
            if version > len(SCHEMA):
                problem = f"a newer Loom wrote it (format {version}; this one knows {len(SCHEMA)}): upgrade"
            return _entry_of(path, db, problem)
    except sqlite3.Error as error:
        return _unusable(path, f"its store cannot be read ({error})")


def _unusable(path: Path, problem: str) -> CatalogueEntry:
    return CatalogueEntry(
        folder=path.parent,
        source=SourceInfo(name=path.parent.name, description="", search_hints=(), supported_filters=()),
        documents=0,
        chunks=0,
        embedder="",
        problem=problem,
    )


def _entry_of(path: Path, db: sqlite3.Connection, problem: str) -> CatalogueEntry:
    meta = dict(db.execute("SELECT name, value FROM meta"))
    fields = [row[0] for row in db.execute("SELECT DISTINCT name FROM fields LIMIT ?", (_MAX_FIELDS,))]
    documents = db.execute("SELECT COUNT(*) FROM documents").fetchone()[0]
    chunks = db.execute("SELECT COUNT(*) FROM chunks").fetchone()[0]
    return CatalogueEntry(
        folder=path.parent,
        source=SourceInfo(
            name=name if is_name(name := meta.get("name", "")) else path.parent.name,
            description=meta.get("description", ""),
            search_hints=tuple(hint for hint in meta.get("search_hints", "").split("\n") if hint),
            supported_filters=tuple(filter_names(fields)),
        ),
        documents=documents,
        chunks=chunks,
        embedder=meta.get("embedder", ""),
        embedding_config=_config_of(meta.get("embedding_config", "")),
        llm=meta.get("llm", ""),
        revision=":".join(map(str, db.execute(_REVISION).fetchone())),
        problem=problem,
    )


def _config_of(text: str) -> dict[str, str]:
    """Return a stored configuration; a damaged one counts as none."""
    try:
        config: object = json.loads(text or "{}")
    except ValueError:
        return {}
    return cast("dict[str, str]", config) if isinstance(config, dict) else {}
