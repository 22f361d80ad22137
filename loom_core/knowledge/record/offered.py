"""Vectors that came with an archive, kept until the chunks that they belong to are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.storage import Database

__all__ = ["OfferedVectors"]


class OfferedVectors:
    """Vectors by the hash of the text that was embedded, made by the embedder of the record."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def offer(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep vectors: hash and float16 blob."""
        with self._database.write() as db:
            db.executemany("INSERT OR IGNORE INTO offered_vectors VALUES (?, ?)", rows)

    def there_are(self) -> bool:
        """Whether any vector is kept."""
        return self._database.row("SELECT 1 FROM offered_vectors LIMIT 1") is not None

    def of(self, hashes: Sequence[bytes]) -> tuple[list[bytes], NDArray[np.float32]]:
        """Those of some texts that are kept: hashes, and a row for each."""
        import numpy as np

        rows = self._database.rows_in("SELECT hash, vector FROM offered_vectors WHERE hash IN ({})", hashes)
        if not rows:
            return [], np.zeros((0, 0), dtype=np.float32)
        packed = np.frombuffer(b"".join(row["vector"] for row in rows), dtype=np.float16)
        return [row["hash"] for row in rows], packed.reshape(len(rows), -1).astype(np.float32)

    def clear(self) -> None:
        """Forget them all, unless documents are still to come that they may be for."""
        with self._database.write() as db:
            db.execute(
                "DELETE FROM offered_vectors WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE finished_at IS NULL)"
            )
