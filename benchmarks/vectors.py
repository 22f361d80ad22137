"""Vectors that were made before: of passages in other knowledge bases, and of questions in this run."""

from __future__ import annotations

import hashlib
import sqlite3
from typing import TYPE_CHECKING

import numpy as np

from loom_core.embedding.interface import EmbeddingProvider

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind

__all__ = ["RememberedVectors"]


class RememberedVectors(EmbeddingProvider):
    """An embedder that looks a text up before it embeds it.

    Args:
        embedder: makes the vectors that are not there.
        folder: a knowledge base, or a folder of knowledge bases, whose vectors are used where they were
            made by the same embedder; None for questions alone.
    """

    def __init__(self, embedder: EmbeddingProvider, folder: Path | None = None) -> None:
        self._embedder = embedder
        self._questions: dict[str, NDArray[np.float32]] = {}
        found = [] if folder is None else [*folder.glob("record.db"), *folder.glob("*/record.db")]
        self._records = [
            db
            for db in (sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True) for path in found)
            if db.execute("SELECT value FROM meta WHERE name = 'embedder'").fetchone() == (embedder.id,)
        ]
        self.made = 0
        """How many vectors of passages were not found."""

    @property
    def id(self) -> str:
        """The embedder's."""
        return self._embedder.id

    @property
    def dimension(self) -> int:
        """The embedder's."""
        return self._embedder.dimension

    @property
    def languages(self) -> frozenset[str] | None:
        """The embedder's."""
        return self._embedder.languages

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> NDArray[np.float32]:
        """See `EmbeddingProvider.embed`."""
        known = {text: self._questions.get(text) if kind == "query" else self._stored(text) for text in texts}
        new = [text for text, vector in known.items() if vector is None]
        if new:
            made = dict(zip(new, await self._embedder.embed(new, kind=kind), strict=True))
            if kind == "query":
                self._questions |= made
            else:
                self.made += len(made)
            known |= made
        rows = [vector for text in texts if (vector := known[text]) is not None]
        return np.stack(rows) if rows else np.zeros((0, self.dimension), dtype=np.float32)

    def _stored(self, text: str) -> NDArray[np.float32] | None:
        hash_ = hashlib.sha256(text.encode()).digest()[:16]
        for db in self._records:
            row = db.execute("SELECT vector FROM vectors WHERE hash = ?", (hash_,)).fetchone()
            if row is not None:
                return np.frombuffer(row[0], dtype=np.float16).astype(np.float32)
        return None
