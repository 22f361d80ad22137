"""Embeddings in the record: float16 blobs by the hash of what was embedded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.record.changes import ChangeLog
    from loom_core.storage import Database

__all__ = ["VectorTable"]


class VectorTable:
    """Vectors of chunks. Which model made them is in the record's meta (`embedder`)."""

    def __init__(self, database: Database, changes: ChangeLog) -> None:
        self._database = database
        self._changes = changes

    def pending(self, limit: int) -> list[tuple[int, bytes]]:
        """Chunks that have no vector yet, oldest first: key and hash of the text to embed."""
        rows = self._database.rows(
            "SELECT c.key, c.vector_hash FROM unembedded AS u JOIN chunks AS c ON c.key = u.chunk "
            "ORDER BY u.chunk LIMIT ?",
            (limit,),
        )
        return [(row["key"], row["vector_hash"]) for row in rows]

    def store(self, hashes: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        """Store unit vectors and note every chunk that has one of them now.

        Those of texts that have gone while they were embedded are left out.
        """
        import numpy as np

        blobs = np.asarray(vectors, dtype=np.float16)
        with self._database.write() as db:
            rows = self._database.rows_in(
                "SELECT key, vector_hash FROM chunks WHERE vector_hash IN ({})", hashes
            )
            there = {row["vector_hash"] for row in rows}
            db.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?)",
                [(hash_, row.tobytes()) for hash_, row in zip(hashes, blobs, strict=True) if hash_ in there],
            )
            self._changes.note("vector+", sorted(row["key"] for row in rows))

    def of(self, keys: Sequence[int]) -> tuple[list[int], NDArray[np.float32]]:
        """Vectors of chunks: the keys that have one, and a float32 array with a row for each."""
        rows = self._database.rows_in(
            "SELECT c.key, v.vector FROM chunks AS c JOIN vectors AS v ON v.hash = c.vector_hash "
            "WHERE c.key IN ({})",
            keys,
        )
        return [row["key"] for row in rows], _matrix([row["vector"] for row in rows])

    def coverage(self) -> tuple[int, int]:
        """How many chunks have a vector, and how many there are."""
        row = self._database.row("SELECT chunks, unembedded FROM coverage")
        return (0, 0) if row is None else (row["chunks"] - row["unembedded"], row["chunks"])

    def clear(self) -> None:
        """Forget all vectors, as another model is to make them."""
        with self._database.write() as db:
            db.execute("DELETE FROM vectors")


def _matrix(blobs: list[bytes]) -> NDArray[np.float32]:
    import numpy as np

    if not blobs:
        return np.zeros((0, 0), dtype=np.float32)
    return np.frombuffer(b"".join(blobs), dtype=np.float16).reshape(len(blobs), -1).astype(np.float32)
