"""What knowledge bases there are, read without opening any of them."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError
from loom_core.knowledge.filters import supported
from loom_core.knowledge.unified import SourceInfo

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Catalogue", "CatalogueEntry"]

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_BAD = re.compile(r"[\x00-\x1f\x7f/\\]")
_MAX_NAME = 64
_MAX_FIELDS = 40


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A knowledge base that exists.

    Attributes:
        folder: where it is.
        source: what it says of itself.
        documents: how many documents it holds.
        chunks: how many chunks.
        embedder: id of the model that makes its vectors, or empty.
    """

    folder: Path
    source: SourceInfo
    documents: int
    chunks: int
    embedder: str

    @property
    def name(self) -> str:
        """Its name."""
        return self.source.name


class Catalogue:
    """The knowledge bases in a home folder. Reading it costs a few milliseconds and imports nothing.

    Args:
        home: Loom's home; knowledge bases are in its folder `kb`.
    """

    def __init__(self, home: Path) -> None:
        self._folder = home / "kb"

    def folder(self, name: str) -> Path:
        """The folder of a knowledge base, whether it exists or not.

        Raises:
            InvalidInputError: no knowledge base can have this name.
        """
        if not name.strip() or len(name) > _MAX_NAME or _BAD.search(name):
            raise InvalidInputError(
                f"{name!r} cannot be the name of a knowledge base.",
                advice=f"Use 1 to {_MAX_NAME} characters of any script, without slashes.",
            )
        # Engines and file systems disagree about other characters in paths; the name itself is in the record.
        plain = name if _PLAIN.fullmatch(name) else "kb-" + sha256(name.encode()).hexdigest()[:12]
        return self._folder / plain

    def list(self) -> list[CatalogueEntry]:
        """All knowledge bases, by name; those that cannot be read are left out."""
        found: list[CatalogueEntry] = []
        for path in sorted(self._folder.glob("*/record.db")) if self._folder.is_dir() else ():
            try:
                entry = _read(path)
            except sqlite3.Error:
                continue
            found.append(entry)
        return sorted(found, key=lambda entry: entry.name)


def _read(path: Path) -> CatalogueEntry:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=1.0)) as db:
        meta = dict(db.execute("SELECT name, value FROM meta"))
        fields = [row[0] for row in db.execute("SELECT DISTINCT name FROM fields LIMIT ?", (_MAX_FIELDS,))]
        documents = db.execute("SELECT COUNT(*) FROM documents").fetchone()[0]
        chunks = db.execute("SELECT COUNT(*) FROM chunks").fetchone()[0]
    return CatalogueEntry(
        folder=path.parent,
        source=SourceInfo(
            name=meta.get("name") or path.parent.name,
            description=meta.get("description", ""),
            search_hints=tuple(hint for hint in meta.get("search_hints", "").split("\n") if hint),
            supported_filters=tuple(supported(fields)),
        ),
        documents=documents,
        chunks=chunks,
        embedder=meta.get("embedder", ""),
    )
