"""Vectors in Chroma: approximate nearest neighbours (HNSW) on disk."""

from __future__ import annotations

import logging
import sqlite3
from math import ceil
from typing import TYPE_CHECKING, cast

from loom_core.errors import IndexDamagedError
from loom_core.knowledge.indexes.engines.damage import REBUILD_ADVICE, damage_boundary
from loom_core.knowledge.indexes.engines.vector_rows import validate_batch, validate_query

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import chromadb
    import numpy as np
    from chromadb.api.client import Client
    from chromadb.api.collection_configuration import CreateHNSWConfiguration
    from chromadb.config import Settings
    from numpy.typing import NDArray

__all__ = ["BATCH", "HNSW", "ChromaVectorIndex", "groups_in", "make_settings", "open_client", "split_ids"]

_log = logging.getLogger(__name__)

BATCH = 1000  # the engine's own limit is 5461
_LISTED = 50_000  # keys that are listed at a time
_PREFIX = "vectors-"  # of the names of collections; Chroma wants at least three characters
_OVERFETCH = 2  # factor on the candidates needed if `among` is spread evenly
_MOST_CANDIDATES = 10_000
_KEY_COST = 30  # reading one stored vector takes as long as finding this many candidates
HNSW: CreateHNSWConfiguration = {
    "space": "cosine",  # the default is l2
    "ef_construction": 100,
    "max_neighbors": 16,
    "ef_search": 100,
    "sync_threshold": 1000,
}


class ChromaVectorIndex:
    """`VectorIndex` over one collection of a Chroma directory.

    The directory belongs to one process: Chroma has no lock, and two writers corrupt it
    without any error. A kill at the wrong moment can leave it hanging or crashing at the next open:
    run `probe_chroma` first. Only keys and vectors are stored. Search is approximate, and exact where `among`
    names few keys: those are read and compared here.
    """

    def __init__(self, path: Path, *, dimension: int, group: str = "all") -> None:
        """Open the directory, or make it.

        Args:
            path: directory of the index alone.
            dimension: length of the vectors.
            group: name of a collection in the directory: letters, digits, and hyphens between them.

        Raises:
            IndexDamagedError: it does not open, or holds vectors of another dimension.
        """
        self._path = path
        self._dimension = dimension
        with self._boundary():
            path.mkdir(parents=True, exist_ok=True)
            self._client = open_client(path)
            self._collection = self._open_collection(_PREFIX + group)

    def upsert(self, keys: Sequence[int], vectors: NDArray[np.float32]) -> None:
        """Store unit vectors, one row a key; an existing key is overwritten.

        Raises:
            InvalidInputError: keys and vectors do not fit each other or this index.
            IndexDamagedError: Chroma failed. Do not retry: rebuild.
        """
        fresh_keys, rows = validate_batch(keys, vectors, dimension=self._dimension)
        with self._boundary():
            for start in range(0, len(fresh_keys), BATCH):
                ids = [str(key) for key in fresh_keys[start : start + BATCH]]
                self._collection.upsert(ids=ids, embeddings=rows[start : start + BATCH])

    def delete(self, keys: Collection[int]) -> None:
        """Forget keys; unknown ones are ignored.

        Raises:
            IndexDamagedError: Chroma failed.
        """
        with self._boundary():
            for ids in split_ids(keys):
                self._collection.delete(ids=ids)

    def search(
        self, vector: NDArray[np.float32], limit: int, *, among: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        """Return the `limit` keys most similar to a unit vector, with their cosine, best first.

        Raises:
            InvalidInputError: the vector does not fit this index.
            IndexDamagedError: Chroma failed.
        """
        query = validate_query(vector, dimension=self._dimension)
        with self._boundary():
            stored = self._collection.count()
            if limit < 1 or not stored:
                return []
            if among is None:
                return self._nearest(query, min(limit, stored))
            wanted = frozenset(among)
            if limit <= len(wanted):
                candidates = min(ceil(_OVERFETCH * limit * stored / len(wanted)), stored)
                if candidates <= min(_KEY_COST * len(wanted), _MOST_CANDIDATES):
                    hits = self._nearest(query, candidates)
                    kept = [hit for hit in hits if hit[0] in wanted][:limit]
                    if len(kept) == limit:
                        return kept
            return self._exact(query, limit, wanted)

    def keys(self) -> list[int]:
        """Return the keys that are stored, in no particular order."""
        found: list[int] = []
        with self._boundary():
            while ids := self._collection.get(limit=_LISTED, offset=len(found), include=[])["ids"]:
                found += map(int, ids)
        return found

    def vectors(self, keys: Collection[int]) -> dict[int, NDArray[np.float64]]:
        """Return the vectors stored under keys; unknown ones are left out."""
        stored: dict[int, NDArray[np.float64]] = {}
        with self._boundary():
            for ids in split_ids(keys):
                found = self._collection.get(ids=ids, include=["embeddings"])
                if found["ids"]:
                    embeddings = cast("Iterable[NDArray[np.float64]]", found["embeddings"])
                    stored.update(zip(map(int, found["ids"]), embeddings, strict=True))
        return stored

    def count(self) -> int:
        """Return how many vectors are stored."""
        with self._boundary():
            return self._collection.count()

    def close(self) -> None:
        """Flush and release files."""
        with self._boundary():
            self._client.close()

    def _boundary(self) -> AbstractContextManager[None]:
        return _boundary(self._path)

    def _open_collection(self, name: str) -> chromadb.Collection:
        from chromadb.errors import NotFoundError

        try:
            collection = self._client.get_collection(name, embedding_function=None)
        except NotFoundError:
            _log.info("New collection %s in %s", name, self._path)
            return self._client.create_collection(
                name,
                embedding_function=None,  # the default would download a model
                metadata={"dimension": self._dimension},
                configuration={"hnsw": HNSW},
            )
        found = (collection.metadata or {}).get("dimension")
        if found != self._dimension:
            self._client.close()
            raise IndexDamagedError(
                f"The vectors at {self._path} are of dimension {found}, not {self._dimension}.",
                advice=REBUILD_ADVICE,
            )
        return collection

    def _nearest(self, query: NDArray[np.float32], limit: int) -> list[tuple[int, float]]:
        found = self._collection.query(query_embeddings=[query], n_results=limit, include=["distances"])
        distances = cast("list[list[float]]", found["distances"])  # present, as requested
        hits = zip(found["ids"][0], distances[0], strict=True)
        return _best(((int(id_), 1.0 - distance) for id_, distance in hits), limit)

    def _exact(
        self, query: NDArray[np.float32], limit: int, keys: Collection[int]
    ) -> list[tuple[int, float]]:
        stored = self.vectors(keys)
        return _best(((key, float(vector @ query)) for key, vector in stored.items()), limit)


def groups_in(path: Path) -> list[str]:
    """Return the groups that have a collection in a directory.

    Raises:
        IndexDamagedError: it does not open.
    """
    with _boundary(path):
        client = open_client(path)
        names = [collection.name for collection in client.list_collections()]
        client.close()
        return sorted(name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX))


def open_client(path: Path) -> Client:
    """Open Chroma on a directory."""
    import chromadb

    return cast("Client", chromadb.PersistentClient(path=path, settings=make_settings()))


def make_settings() -> Settings:
    """Make settings of the client: no telemetry, and no `.env` of the working directory is read."""
    from chromadb.config import Settings

    return Settings(_env_file=None, anonymized_telemetry=False)  # pyright: ignore[reportCallIssue]


def _boundary(path: Path) -> AbstractContextManager[None]:
    from chromadb.errors import ChromaError

    # Arguments are validated before, so that an error of any of these types means damage.
    return damage_boundary(
        "vector index",
        path,
        errors=(ChromaError, sqlite3.Error, RuntimeError, ValueError, KeyError, TypeError, OSError),
    )


def split_ids(keys: Collection[int]) -> Iterator[list[str]]:
    """Yield the ids of keys in batches, each id once."""
    ids = [str(key) for key in dict.fromkeys(keys)]  # the engine refuses repeats
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]


def _best(
    hits: Collection[tuple[int, float]] | Iterator[tuple[int, float]], limit: int
) -> list[tuple[int, float]]:
    return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:limit]
