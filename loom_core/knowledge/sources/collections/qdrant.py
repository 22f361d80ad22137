"""A collection of Qdrant that others have filled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from loom_core.errors import InvalidInputError
from loom_core.knowledge.indexes.engines.qdrant import QdrantConnection
from loom_core.knowledge.sources.collections.config import SOURCE_USE
from loom_core.knowledge.sources.collections.port import Row, VectorSpace
from loom_core.knowledge.sources.collections.rows import choose_vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from pydantic import SecretStr
    from qdrant_client.http import models

    from loom_core.knowledge.sources.collections.config import CollectionConfig
    from loom_core.knowledge.sources.collections.port import Condition, Metric, Value

__all__ = ["QdrantCollection"]

_PAGE = 500
_LEAST_EF = 128
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_METRICS: Mapping[str, Metric] = {"Cosine": "cosine", "Dot": "dot", "Euclid": "l2"}


class QdrantCollection:
    """`ForeignCollection` over a collection of Qdrant 1.10 or later. Fields are those of the payload."""

    def __init__(self, config: CollectionConfig, secret: SecretStr | None) -> None:
        """Take the address; the server is connected to at first use."""
        self._name = config.collection
        self._connection = QdrantConnection(config.url, secret=secret, collection=self._name, use=SOURCE_USE)
        self._wanted = config.fields.vector
        self._vector = ""
        self._metric: Metric = "cosine"

    def describe(self) -> VectorSpace:
        """See `ForeignCollection.describe`."""
        info = self._connection.ask(lambda client: client.get_collection(self._name))
        vectors = info.config.params.vectors
        by_name = vectors if isinstance(vectors, dict) else {"": vectors} if vectors is not None else {}
        self._vector = choose_vector(self._name, by_name, self._wanted)
        params = by_name[self._vector]
        self._metric = _METRICS.get(params.distance.value, "other")
        return VectorSpace(self._metric, params.size)

    def search_vector(
        self, vector: NDArray[np.float32], limit: int, conditions: Sequence[Condition]
    ) -> list[Row]:
        """See `ForeignCollection.search_vector`."""
        from qdrant_client.http import models

        found = self._connection.ask(
            lambda client: client.query_points(
                self._name,
                query=vector.tolist(),
                using=self._vector or None,
                query_filter=_filter(conditions),
                search_params=models.SearchParams(hnsw_ef=max(limit, _LEAST_EF)),
                limit=limit,
                with_payload=True,
            )
        )
        power = 2 if self._metric == "l2" else 1
        return [_row(point, score=point.score**power) for point in found.points]

    def read(self, limit: int, conditions: Sequence[Condition], *, vectors: bool = False) -> list[Row]:
        """See `ForeignCollection.read`."""
        rows: list[Row] = []
        offset: Any = None  # the first point of the next page
        while len(rows) < limit:
            page = min(limit - len(rows), _PAGE)
            points, offset = self._connection.ask(
                lambda client, page=page, offset=offset: client.scroll(
                    self._name,
                    scroll_filter=_filter(conditions),
                    limit=page,
                    offset=offset,
                    with_payload=True,
                    with_vectors=([self._vector] if self._vector else True) if vectors else False,
                )
            )
            rows += [_row(point, vector=self._vector_of(point)) for point in points]
            if offset is None:
                break
        return rows

    def get(self, id_: str) -> Row | None:
        """See `ForeignCollection.get`; an id of Qdrant is a number or a UUID."""
        try:
            key = int(id_) if id_.isdecimal() else str(UUID(id_))
        except ValueError:
            return None
        points = self._connection.ask(lambda client: client.retrieve(self._name, [key], with_payload=True))
        return _row(points[0]) if points else None

    def count(self) -> int:
        """See `ForeignCollection.count`."""
        return self._connection.ask(lambda client: client.count(self._name, exact=False)).count

    def close(self) -> None:
        """See `ForeignCollection.close`."""
        self._connection.close()

    def _vector_of(self, point: models.Record) -> list[float] | None:
        vector = point.vector
        if isinstance(vector, dict):
            vector = vector.get(self._vector)
        return cast("list[float]", vector) if isinstance(vector, list) else None


def _row(
    point: models.Record | models.ScoredPoint, *, score: float = 0.0, vector: list[float] | None = None
) -> Row:
    return Row(str(point.id), point.payload or {}, score, vector)


def _filter(conditions: Sequence[Condition]) -> models.Filter | None:
    """Return conditions as Qdrant's (https://qdrant.tech/documentation/concepts/filtering/)."""
    from qdrant_client.http import models

    must: list[models.Condition] = []
    must_not: list[models.Condition] = []
    for condition in conditions:
        key = ".".join(step if _PLAIN_KEY.fullmatch(step) else f'"{step}"' for step in condition.path)
        if condition.operator in {"eq", "ne"}:
            any_of: list[models.Condition] = _matches(key, condition.values)
        elif condition.operator == "contains":
            any_of = [
                models.FieldCondition(key=key, match=models.MatchText(text=str(value)))
                for value in condition.values
            ]
        else:
            any_of = [models.FieldCondition(key=key, range=_range(condition))]
        if condition.operator == "ne":
            must_not += any_of
        else:
            must.append(any_of[0] if len(any_of) == 1 else models.Filter(should=any_of))
    return models.Filter(must=must or None, must_not=must_not or None) if conditions else None


def _matches(key: str, values: Sequence[Value]) -> list[models.Condition]:
    """Return conditions of which one holds for a field that has any of the values."""
    from qdrant_client.http import models

    texts = [value for value in values if isinstance(value, str)]
    whole = [value for value in values if type(value) is int]
    found: list[models.Condition] = []
    if texts:
        found.append(models.FieldCondition(key=key, match=models.MatchAny(any=texts)))
    if whole:
        found.append(models.FieldCondition(key=key, match=models.MatchAny(any=whole)))
    for value in values:
        if isinstance(value, bool):
            found.append(models.FieldCondition(key=key, match=models.MatchValue(value=value)))
        elif isinstance(value, float):
            found.append(models.FieldCondition(key=key, range=models.Range(gte=value, lte=value)))
    return found


def _range(condition: Condition) -> models.Range | models.DatetimeRange:
    from qdrant_client.http import models

    [value] = condition.values
    if not isinstance(value, str):
        return models.Range(**{condition.operator: value})
    try:
        return models.DatetimeRange(**{condition.operator: datetime.fromisoformat(value)})
    except ValueError:
        raise InvalidInputError(
            f"Qdrant compares numbers and dates, and {value[:60]!r} is none.",
            advice="Give a number, or a date such as 2024-05-31.",
        ) from None
