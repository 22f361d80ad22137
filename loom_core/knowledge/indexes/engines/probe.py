"""Probe whether an index opens, in a child process, where a crash or a hang is harmless."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from loom_core.knowledge.indexes.engines.child_call import ChildError, run_in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import chromadb
    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.indexes.engines.child_call import Json

__all__ = [
    "check_chroma",
    "check_kuzu",
    "check_tantivy",
    "probe_chroma",
    "probe_kuzu",
    "probe_tantivy",
]

_SAMPLES = 64
_PLACES = 8
_TOLERATED = 3  # an approximate index may miss a few of 64; a damaged one missed every fifth
_SAME = 1e-3


def probe_chroma(path: Path, *, dimension: int, timeout: float = 20.0) -> str | None:
    """Probe whether a closed vector index is healthy: it opens, counts, and finds its own vectors.

    Args:
        path: its directory; no process may have it open.
        dimension: length of its vectors.
        timeout: seconds until it counts as hanging.

    Returns:
        None where it is healthy, else the reason in one line. Nothing is ever raised for damage.
    """
    if not (path / "chroma.sqlite3").is_file():
        return f"there is no vector index at {path}"
    return _probe(check_chroma, {"path": str(path), "dimension": dimension}, timeout=timeout)


def probe_kuzu(
    path: Path, *, module: str = "kuzu", max_db_size: int = 1 << 34, timeout: float = 20.0
) -> str | None:
    """Probe whether a closed graph is healthy: it opens, counts, and answers a query. It is not changed.

    Args:
        path: the database file; no process may have it open.
        module: as for `KuzuGraphStore`.
        max_db_size: as for `KuzuGraphStore`.
        timeout: seconds until it counts as hanging.

    Returns:
        None where it is healthy, else the reason in one line. Nothing is ever raised for damage.
    """
    if not path.is_file():
        return f"there is no graph at {path}"
    return _probe(
        check_kuzu, {"path": str(path), "module": module, "max_db_size": max_db_size}, timeout=timeout
    )


def probe_tantivy(path: Path, *, timeout: float = 20.0) -> str | None:
    """Probe whether a lexical index is healthy: it opens, counts, and answers a query. It is not changed.

    Args:
        path: its directory.
        timeout: seconds until it counts as hanging.

    Returns:
        None where it is healthy, else the reason in one line. Nothing is ever raised for damage.
    """
    if not (path / "meta.json").is_file():
        return f"there is no word index at {path}"
    return _probe(check_tantivy, {"path": str(path)}, timeout=timeout)


def check_chroma(*, path: str, dimension: int) -> str | None:
    """Check, in the child, that up to 64 vectors of each collection find themselves."""
    from loom_core.knowledge.indexes.engines.chroma import open_client

    client = open_client(Path(path))
    collections = client.list_collections()
    if not collections:
        return "there is no collection of vectors in it"
    reason = next(filter(None, (_wrong_with(collection, dimension) for collection in collections)), None)
    client.close()
    return reason


def _wrong_with(collection: chromadb.Collection, dimension: int) -> str | None:
    import numpy as np

    found = (collection.metadata or {}).get("dimension")
    if found != dimension:
        return f"its vectors are of dimension {found}, not {dimension}"
    count = collection.count()
    vectors: list[NDArray[np.float32 | np.int32]] = []  # as Chroma has it
    for offset in sorted({place * count // _PLACES for place in range(_PLACES)}):
        sample = collection.get(limit=_SAMPLES // _PLACES, offset=offset, include=["embeddings"])
        # Zero vectors, of empty texts, are similar to nothing, not even to themselves.
        vectors.extend(vector for vector in np.asarray(sample["embeddings"], np.float32) if vector.any())
    if vectors:
        nearest = collection.query(query_embeddings=vectors, n_results=1, include=["distances"])
        missed = sum(not distances or distances[0] > _SAME for distances in nearest["distances"] or [])
        if missed > min(_TOLERATED, len(vectors) - 1):
            return f"{missed} of {len(vectors)} vectors are not found by themselves"
    return None


def check_kuzu(*, path: str, module: str, max_db_size: int) -> str | None:
    """Check, in the child, that both tables can be counted and read."""
    from loom_core.knowledge.indexes.engines.kuzu_session import connect, open_database

    database = open_database(
        module, Path(path), buffer_pool=64 << 20, max_db_size=max_db_size, read_only=True
    )
    connection = connect(module, database)
    for question in (
        "MATCH (e:Entity) RETURN count(*)",
        "MATCH (:Entity)-[r:REL]->(:Entity) RETURN count(*)",
        "MATCH (e:Entity) RETURN max(e.id), max(e.name), max(e.type), max(e.mentions)",
        "MATCH (a:Entity)-[r:REL]->(b:Entity) RETURN a.id, b.name, r.predicate, r.support LIMIT 100",
    ):
        list(connection.execute(question))
    connection.close()
    database.close()
    return None


def check_tantivy(*, path: str) -> str | None:
    """Check, in the child, that the index can be counted and searched, which reads postings."""
    from loom_core.knowledge.indexes.engines.tantivy import TantivyIndex
    from loom_core.knowledge.interface import LexicalQuery

    index = TantivyIndex(Path(path), read_only=True)
    index.count()
    index.search([LexicalQuery(["the", "of"], 1), LexicalQuery(["的"], 1)])
    index.close()
    return None


def _probe(check: Callable[..., str | None], arguments: Mapping[str, Json], *, timeout: float) -> str | None:
    try:
        return cast("str | None", run_in_child(check, arguments, timeout=timeout))
    except ChildError as error:
        return str(error)
