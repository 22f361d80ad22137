"""Embeddings in the store: float16 blobs by the hash of the embedded text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from loom_core.storage.lease import SERVER_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingProvider
    from loom_core.knowledge.store.changes import ChangeLog, IndexName
    from loom_core.storage.postgres import PostgresDatabase
    from loom_core.storage.sql import SQLDatabase

__all__ = ["EmbedderMigration", "ImportedVectors", "VectorTable"]


_CLAIM_SECONDS = 30.0  # a batch takes about a second


class VectorTable:
    """Vectors of chunks, made by the model that the store's metadata `embedder` names.

    Args:
        database: the store's.
        changes: the change log.
        shared: the same database, if several machines share it and so embed its chunks.
    """

    def __init__(
        self, database: SQLDatabase, changes: ChangeLog, shared: PostgresDatabase | None = None
    ) -> None:
        self._database = database
        self._changes = changes
        self._shared = shared

    def pending(self, limit: int) -> list[tuple[int, bytes]]:
        """Return chunks that have no vector yet, oldest first: key and hash of the text to embed."""
        rows = self._database.rows(
            "SELECT c.key, c.vector_hash FROM unembedded AS u JOIN chunks AS c ON c.key = u.chunk "
            "ORDER BY u.chunk LIMIT ?",
            (limit,),
        )
        return [(row["key"], row["vector_hash"]) for row in rows]

    def claim(self, limit: int) -> list[tuple[int, bytes]]:
        """Return chunks to embed, as `pending`; no other process gets these for half a minute."""
        if self._shared is None:
            return self.pending(limit)
        with self._shared.write(takes_turn=False) as db:
            rows = db.execute(
                f"UPDATE unembedded AS u SET claimed = {SERVER_TIME} + ? FROM chunks AS c "
                f"WHERE u.chunk = ANY(ARRAY(SELECT chunk FROM unembedded WHERE claimed <= {SERVER_TIME} "
                "ORDER BY chunk LIMIT ? FOR UPDATE SKIP LOCKED)) AND c.key = u.chunk "
                "RETURNING c.key, c.vector_hash",
                (_CLAIM_SECONDS, limit),
            ).fetchall()
        return sorted((row["key"], row["vector_hash"]) for row in rows)

    def unclaim(self, keys: Sequence[int]) -> None:
        """Give claimed chunks back that were not embedded."""
        if self._shared is not None:
            with self._shared.write(takes_turn=False) as db:
                db.execute("UPDATE unembedded SET claimed = 0 WHERE chunk = ANY(?)", (list(keys),))

    def is_any_claimed(self) -> bool:
        """Whether some process is about to embed chunks."""
        sql = f"SELECT 1 FROM unembedded WHERE claimed > {SERVER_TIME} LIMIT 1"
        return self._shared is not None and self._shared.row(sql) is not None

    def store(self, hashes: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        """Store unit vectors, and log the change for every chunk with one of these texts.

        Vectors of texts that were deleted meanwhile are left out.
        """
        import numpy as np

        blobs = np.asarray(vectors, dtype=np.float16)
        with self._database.write() as db:
            rows = self._database.rows_in(
                "SELECT key, vector_hash FROM chunks WHERE vector_hash IN ({})", hashes
            )
            there = {row["vector_hash"] for row in rows}
            found = {hash_: row.tobytes() for hash_, row in zip(hashes, blobs, strict=True) if hash_ in there}
            db.executemany(
                "INSERT INTO vectors VALUES (?, ?) ON CONFLICT (hash) DO UPDATE SET vector = excluded.vector",
                list(found.items()),
            )
            self._changes.note("vector+", sorted(row["key"] for row in rows))

    def of(self, keys: Sequence[int]) -> tuple[list[int], NDArray[np.float32]]:
        """Return the vectors of chunks: the keys that have one, and a float32 array with a row for each."""
        rows = self._database.rows_in(
            "SELECT c.key, v.vector FROM chunks AS c JOIN vectors AS v ON v.hash = c.vector_hash "
            "WHERE c.key IN ({})",
            keys,
        )
        return [row["key"] for row in rows], _matrix([row["vector"] for row in rows])

    def with_languages(self, keys: Sequence[int]) -> tuple[list[int], list[str], NDArray[np.float32]]:
        """Return the vectors of chunks as `of` does, with the language of each chunk between."""
        rows = self._database.rows_in(
            "SELECT c.key, c.language, v.vector FROM chunks AS c JOIN vectors AS v ON v.hash = c.vector_hash "
            "WHERE c.key IN ({})",
            keys,
        )
        languages = [row["language"] for row in rows]
        return [row["key"] for row in rows], languages, _matrix([row["vector"] for row in rows])

    def languages_of(self, keys: Sequence[int]) -> dict[int, str]:
        """Return the language of chunks by key; those without a vector are left out."""
        rows = self._database.rows_in(
            "SELECT c.key, c.language FROM chunks AS c JOIN vectors AS v ON v.hash = c.vector_hash "
            "WHERE c.key IN ({})",
            keys,
        )
        return {row["key"]: row["language"] for row in rows}

    def coverage(self) -> tuple[int, int]:
        """Return how many chunks have a vector, and how many there are."""
        row = self._database.row("SELECT chunks, unembedded FROM coverage")
        return (0, 0) if row is None else (row["chunks"] - row["unembedded"], row["chunks"])

    def clear(self) -> None:
        """Delete all vectors."""
        with self._database.write() as db:
            db.execute("DELETE FROM vectors")


def _matrix(blobs: list[bytes]) -> NDArray[np.float32]:
    import numpy as np

    if not blobs:
        return np.zeros((0, 0), dtype=np.float32)
    return np.frombuffer(b"".join(blobs), dtype=np.float16).reshape(len(blobs), -1).astype(np.float32)


_META = ("embedder", "dimension", "embedding_config")
_INDEXES: tuple[IndexName, ...] = ("vectors", "chroma", "remote")


class EmbedderMigration:
    """Migration from one embedder to another. Its state is in the store's metadata as `next_…`."""

    def __init__(self, database: SQLDatabase, changes: ChangeLog) -> None:
        self._database = database
        self._changes = changes

    def begin(self, embedder: EmbeddingProvider) -> None:
        """Begin a migration to another embedder, which takes over once it has all vectors.

        If that is the current embedder, a migration in progress is cancelled; if it is already the target,
        the migration continues.
        """
        with self._database.write() as db:
            known = dict(db.execute("SELECT name, value FROM meta").fetchall())
            if known.get("next_embedder") == embedder.id:
                return
            db.execute("DELETE FROM next_vectors")
            db.execute("DELETE FROM meta WHERE name LIKE 'next\\_%' ESCAPE '\\'")
            if known.get("embedder") == embedder.id:
                return
            values = (embedder.id, str(embedder.dimension), json.dumps(embedder.config, sort_keys=True))
            db.executemany(
                "INSERT INTO meta VALUES (?, ?)",
                [(f"next_{name}", value) for name, value in zip(_META, values, strict=True)],
            )

    def target_embedder(self) -> str:
        """Return the id of the embedder that is to take over, or empty."""
        row = self._database.row("SELECT value FROM meta WHERE name = 'next_embedder'")
        return "" if row is None else row["value"]

    def config(self) -> dict[str, str]:
        """Return the configuration that recreates that embedder; empty without one."""
        row = self._database.row("SELECT value FROM meta WHERE name = 'next_embedding_config'")
        return {} if row is None else json.loads(row["value"])

    def pending(self, limit: int, *, after: int = 0) -> list[tuple[int, bytes]]:
        """Return chunks after a key that have no such vector yet: key and hash of the text to embed."""
        rows = self._database.rows(
            "SELECT key, vector_hash FROM chunks AS c WHERE key > ? AND NOT EXISTS "
            "(SELECT 1 FROM next_vectors WHERE hash = c.vector_hash) ORDER BY key LIMIT ?",
            (after, limit),
        )
        return [(row["key"], row["vector_hash"]) for row in rows]

    def store(self, embedder: str, hashes: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        """Store unit vectors, unless another embedder is the target by now."""
        import numpy as np

        rows = [
            (hash_, row.tobytes())
            for hash_, row in zip(hashes, np.asarray(vectors, dtype=np.float16), strict=True)
        ]
        with self._database.write() as db:
            if self.target_embedder() == embedder:
                db.executemany(
                    "INSERT INTO next_vectors VALUES (?, ?) "
                    "ON CONFLICT (hash) DO UPDATE SET vector = excluded.vector",
                    rows,
                )

    def coverage(self) -> tuple[int, int]:
        """Return how many chunks have such a vector, and how many there are. Reads all chunks."""
        row = self._database.row(
            "SELECT COUNT(*) AS total, COUNT(CASE WHEN EXISTS "
            "(SELECT 1 FROM next_vectors WHERE hash = vector_hash) THEN 1 END) AS done FROM chunks"
        )
        return (0, 0) if row is None else (row["done"], row["total"])

    def switch(self, embedder: str) -> bool:
        """Replace the vectors by the next ones, if they are complete, in one transaction.

        The indexes of vectors are rebuilt after that.

        Args:
            embedder: id of the embedder that made them.

        Returns:
            Whether the switch was made: that embedder is the current one now.
        """
        with self._database.write() as db:
            if self.target_embedder() != embedder or self.pending(1):
                return False
            # Updated in place, so that the triggers do not count chunks as unembedded.
            db.execute(
                "INSERT INTO vectors SELECT hash, vector FROM next_vectors AS n WHERE EXISTS "
                "(SELECT 1 FROM chunks WHERE vector_hash = n.hash) "
                "ON CONFLICT (hash) DO UPDATE SET vector = excluded.vector"
            )
            db.execute("DELETE FROM next_vectors")
            db.execute("DELETE FROM offered_vectors")
            db.execute("UPDATE name_likenesses SET cosine = NULL")  # they are compared again
            for name in _META:
                db.execute("DELETE FROM meta WHERE name = ?", (name,))
                db.execute("UPDATE meta SET name = ? WHERE name = ?", (name, f"next_{name}"))
            for index in _INDEXES:
                self._changes.mark_damaged(index, generation=self._changes.state(index).generation)
        return True


class ImportedVectors:
    """Vectors from an archive, by the hash of the embedded text, made by the store's embedder."""

    def __init__(self, database: SQLDatabase) -> None:
        self._database = database

    def store(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Store vectors: hash and float16 blob."""
        with self._database.write() as db:
            db.executemany("INSERT INTO offered_vectors VALUES (?, ?) ON CONFLICT DO NOTHING", rows)

    def has_any(self) -> bool:
        """Whether any vector is stored."""
        return self._database.row("SELECT 1 FROM offered_vectors LIMIT 1") is not None

    def of(self, hashes: Sequence[bytes]) -> tuple[list[bytes], NDArray[np.float32]]:
        """Return the stored vectors of some texts: hashes, and a float32 row for each."""
        import numpy as np

        rows = self._database.rows_in("SELECT hash, vector FROM offered_vectors WHERE hash IN ({})", hashes)
        if not rows:
            return [], np.zeros((0, 0), dtype=np.float32)
        packed = np.frombuffer(b"".join(row["vector"] for row in rows), dtype=np.float16)
        return [row["hash"] for row in rows], packed.reshape(len(rows), -1).astype(np.float32)

    def clear(self) -> None:
        """Delete all, unless a job is unfinished, whose documents may need them."""
        with self._database.write() as db:
            db.execute(
                "DELETE FROM offered_vectors WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE finished_at IS NULL)"
            )
