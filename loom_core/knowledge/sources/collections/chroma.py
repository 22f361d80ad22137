"""A collection of a Chroma server that others have filled."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from loom_core.errors import InvalidInputError
from loom_core.knowledge.indexes.engines.chroma_server import ChromaConnection
from loom_core.knowledge.sources.collections.config import SOURCE_USE
from loom_core.knowledge.sources.collections.port import Row, VectorSpace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import chromadb
    import numpy as np
    from chromadb.api.types import Where
    from numpy.typing import NDArray
    from pydantic import SecretStr

    from loom_core.knowledge.sources.collections.config import CollectionConfig
    from loom_core.knowledge.sources.collections.port import Condition, Metric, Value

    _T = TypeVar("_T")

__all__ = ["ChromaCollection"]

_SECONDS = 10.0
_PAGE = 1000
_NEIGHBOURS = 500  # asked for at least
_METRICS: Mapping[str, Metric] = {"cosine": "cosine", "ip": "dot"}
_RANGES = {"gte", "gt", "lte", "lt"}


class ChromaCollection:
    """`ForeignCollection` over a collection of a server, 1.0 or later. Fields: `document` and `metadata`."""

    def __init__(self, config: CollectionConfig, secret: SecretStr | None) -> None:
        """Take the address; the server is connected to at first use."""
        self._name = config.collection
        self._connection = ChromaConnection(config.url, secret=secret, collection=self._name, use=SOURCE_USE)
        self._metric: Metric = "l2"

    def describe(self) -> VectorSpace:
        """See `ForeignCollection.describe`."""
        place = self._connection
        place.forget()
        model = place.run(
            lambda api: api.get_collection(self._name, tenant=place.tenant, database=place.database),
            end=time.monotonic() + _SECONDS,
        )
        configured = cast("dict[str, dict[str, Any] | None]", model.configuration_json or {})
        index = configured.get("hnsw") or configured.get("spann") or {}
        self._metric = _METRICS.get(index.get("space", ""), "l2")
        return VectorSpace(self._metric, model.dimension or 0)

    def search_vector(
        self, vector: NDArray[np.float32], limit: int, conditions: Sequence[Condition]
    ) -> list[Row]:
        """See `ForeignCollection.search_vector`.

        The more neighbours are asked for, the more of its graph Chroma looks at: with one, it missed the
        nearest of 300 vectors in one of eight cases. So the ids of many are asked for, and the best read.
        """
        found = self._ask(
            lambda collection: collection.query(
                query_embeddings=[vector],
                n_results=max(limit, _NEIGHBOURS),
                where=_where(conditions),
                include=["distances"],
            )
        )
        [distances] = cast("list[list[float]]", found["distances"])
        scores = distances if self._metric == "l2" else [1.0 - distance for distance in distances]
        nearest = dict(zip(found["ids"][0][:limit], scores, strict=False))
        rows = {row.id: row for row in self._get(ids=list(nearest))} if nearest else {}
        return [replace(rows[id_], score=score) for id_, score in nearest.items() if id_ in rows]

    def read(self, limit: int, conditions: Sequence[Condition], *, vectors: bool = False) -> list[Row]:
        """See `ForeignCollection.read`."""
        where = _where(conditions)
        rows: list[Row] = []
        while len(rows) < limit:
            page = min(limit - len(rows), _PAGE)
            found = self._get(where=where, limit=page, offset=len(rows), vectors=vectors)
            rows += found
            if len(found) < page:
                break
        return rows

    def get(self, id_: str) -> Row | None:
        """See `ForeignCollection.get`."""
        rows = self._get(ids=[id_])
        return rows[0] if rows else None

    def count(self) -> int:
        """See `ForeignCollection.count`."""
        return self._ask(lambda collection: collection.count())

    def close(self) -> None:
        """See `ForeignCollection.close`."""
        self._connection.close()

    def _get(
        self,
        *,
        ids: list[str] | None = None,
        where: Where | None = None,
        limit: int | None = None,
        offset: int | None = None,
        vectors: bool = False,
    ) -> list[Row]:
        found = self._ask(
            lambda collection: collection.get(
                ids=ids,
                where=where,
                limit=limit,
                offset=offset,
                include=["documents", "metadatas", *(["embeddings"] if vectors else [])],
            )
        )
        ids, nothing = found["ids"], [None] * len(found["ids"])
        embeddings = found["embeddings"]
        listed = nothing if embeddings is None else [list(map(float, row)) for row in embeddings]
        scores = [0.0] * len(ids)
        return list(
            map(_row, ids, found["documents"] or nothing, found["metadatas"] or nothing, scores, listed)
        )

    def _ask(self, act: Callable[[chromadb.Collection], _T]) -> _T:
        return self._connection.ask(act, end=time.monotonic() + _SECONDS)


def _row(
    id_: str,
    document: str | None,
    metadata: Mapping[str, Any] | None,
    score: float,
    vector: list[float] | None = None,
) -> Row:
    return Row(id_, {"document": document, "metadata": metadata or {}}, score, vector)


def _where(conditions: Sequence[Condition]) -> Where | None:
    """Return conditions as Chroma's (https://docs.trychroma.com/docs/querying-collections/metadata-filtering)."""
    parts = [_part(condition) for condition in conditions]
    return cast("Where | None", {"$and": parts} if len(parts) > 1 else parts[0] if parts else None)


def _part(condition: Condition) -> dict[str, Any]:
    name, operator = condition.path[-1], condition.operator
    if operator in _RANGES and not isinstance(condition.values[0], str):
        return {name: {f"${operator}": condition.values[0]}}
    if operator not in {"eq", "ne"}:
        raise InvalidInputError(
            f"Chroma cannot decide the filter {name!r}: it compares numbers, and knows whole values of text.",
            advice="Give a number, or leave the operator out.",
        )
    by_type: dict[type, list[Value]] = {}
    for value in condition.values:
        by_type.setdefault(type(value), []).append(value)
    each = [{name: {"$in" if operator == "eq" else "$nin": values}} for values in by_type.values()]
    return each[0] if len(each) == 1 else {"$or" if operator == "eq" else "$and": each}
