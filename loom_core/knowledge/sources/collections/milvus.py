"""A collection of Milvus that others have filled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from loom_core.errors import ConfigError
from loom_core.knowledge.indexes.engines.milvus import MilvusConnection
from loom_core.knowledge.sources.collections.config import SOURCE_USE
from loom_core.knowledge.sources.collections.port import Row, VectorSpace
from loom_core.knowledge.sources.collections.rows import choose_vector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from pydantic import SecretStr

    from loom_core.knowledge.sources.collections.config import CollectionConfig
    from loom_core.knowledge.sources.collections.port import Condition, Metric, Value

__all__ = ["MilvusCollection", "write_filter"]

_Client: TypeAlias = Any
"""Pymilvus has no types."""

_SECONDS = 10.0
_PAGE = 1000
_WINDOW = 16_384  # most rows of a search
_LEAST_EF = 128
_PROBES = 32  # of lists of an IVF index
_METRICS: Mapping[str, Metric] = {"COSINE": "cosine", "IP": "dot", "L2": "l2"}
_VECTORS = {101, 102, 103}  # of floats with 32 or 16 bits
_UNSHOWN = {100, 104, 105, *_VECTORS}
_TYPES = {1: (bool,), 10: (int, float), 11: (int, float), 21: (str,)}  # of fields, by number; 2 to 5: int
_LIST = 22
_DYNAMIC = "$meta"
_OPERATORS = {"gte": ">=", "gt": ">", "lte": "<=", "lt": "<"}


class MilvusCollection:
    """`ForeignCollection` over a collection of Milvus 2.3 or later; fields are its own, and dynamic ones."""

    def __init__(self, config: CollectionConfig, secret: SecretStr | None) -> None:
        """Take the address; the server is connected to at first use.

        Raises:
            ConfigError: the URL is none of Milvus.
        """
        self._name = config.collection
        self._wanted = config.fields.vector
        self._index = config.index_params
        self._connection = MilvusConnection(config.url, secret=secret, collection=self._name, use=SOURCE_USE)
        self._fields: Mapping[str, int] = {}
        self._key = self._vector = ""
        self._shown: list[str] = []

    def describe(self) -> VectorSpace:
        """See `ForeignCollection.describe`."""
        found = self._call(lambda client, left: client.describe_collection(self._name, timeout=left))
        fields = {field["name"]: field for field in found["fields"]}
        self._fields = {name: int(field["type"]) for name, field in fields.items()}
        self._key = next(name for name, field in fields.items() if field.get("is_primary"))
        vectors = [name for name, kind in self._fields.items() if kind in _VECTORS]
        self._vector = choose_vector(self._name, vectors, self._wanted)
        self._shown = [name for name, kind in self._fields.items() if kind not in _UNSHOWN]
        if found.get("enable_dynamic_field"):
            self._shown.append(_DYNAMIC)
        metric = self._find_metric()
        return VectorSpace(_METRICS.get(metric, "other"), int(fields[self._vector]["params"]["dim"]))

    def search_vector(
        self, vector: NDArray[np.float32], limit: int, conditions: Sequence[Condition]
    ) -> list[Row]:
        """See `ForeignCollection.search_vector`; `index_params` are handed through."""
        most = min(limit, _WINDOW)
        params: dict[str, Any] = {"nprobe": _PROBES, "ef": _LEAST_EF, **self._index.get("params", {})}
        params["ef"] = max(params["ef"], most)
        [hits] = self._call(
            lambda client, left: client.search(
                self._name,
                data=[vector.tolist()],
                anns_field=self._vector,
                limit=most,
                filter=write_filter(conditions, self._fields),
                output_fields=self._shown,
                search_params={"params": params},
                timeout=left,
            )
        )
        return [Row(str(hit["id"]), hit["entity"], float(hit["distance"])) for hit in hits]

    def read(self, limit: int, conditions: Sequence[Condition], *, vectors: bool = False) -> list[Row]:
        """See `ForeignCollection.read`."""

        def act(client: _Client, left: float) -> list[Row]:
            pages = client.query_iterator(
                self._name,
                batch_size=min(limit, _PAGE),
                limit=limit,
                filter=write_filter(conditions, self._fields),
                output_fields=[*self._shown, *([self._vector] if vectors else [])],
                timeout=left,
            )
            rows: list[Row] = []
            while page := pages.next():
                rows += map(self._row, page)
            pages.close()
            return rows

        return self._call(act)

    def get(self, id_: str) -> Row | None:
        """See `ForeignCollection.get`."""
        is_text = self._fields[self._key] == 21
        if not is_text and not id_.isdecimal():
            return None
        allowed = f"{self._key} in [{_literal(id_) if is_text else int(id_)}]"
        found = self._call(
            lambda client, left: client.query(
                self._name, filter=allowed, output_fields=self._shown, timeout=left
            )
        )
        return self._row(found[0]) if found else None

    def count(self) -> int:
        """See `ForeignCollection.count`."""
        [row] = self._call(
            lambda client, left: client.query(self._name, output_fields=["count(*)"], timeout=left)
        )
        return int(row["count(*)"])

    def close(self) -> None:
        """See `ForeignCollection.close`."""
        self._connection.close()

    def _find_metric(self) -> str:
        """Return the metric of the vector's index.

        Raises:
            ConfigError: `index_params` say another one.
        """

        def act(client: _Client, left: float) -> str:
            indexes = client.list_indexes(self._name, field_name=self._vector, timeout=left)
            facts: dict[str, Any] = {}
            if indexes:
                facts = client.describe_index(self._name, indexes[0], timeout=left)
            return str(facts.get("metric_type", "COSINE")).upper()

        metric = self._call(act)
        said = str(self._index.get("metric_type", metric)).upper()
        if said != metric:
            raise ConfigError(
                f"`index_params` say {said}, but {self._name!r} is indexed by {metric}.",
                advice=f'Write "metric_type": "{metric}", or leave it out.',
            )
        return metric

    def _row(self, found: Mapping[str, Any]) -> Row:
        fields = {name: value for name, value in found.items() if name != self._vector}
        vector = found.get(self._vector)
        return Row(str(found[self._key]), fields, vector=None if vector is None else [*map(float, vector)])

    def _call(self, act: Callable[[_Client, float], Any]) -> Any:  # noqa: ANN401 - answers of pymilvus
        return self._connection.call(_SECONDS, act)


def write_filter(conditions: Sequence[Condition], fields: Mapping[str, int]) -> str:
    """Return conditions as an expression (https://milvus.io/docs/boolean.md); empty for none.

    Args:
        conditions: the conditions.
        fields: types of the fields by their names, as Milvus numbers them; all others are dynamic.
    """
    return " and ".join(f"({_write_condition(condition, fields)})" for condition in conditions)


def _write_condition(condition: Condition, fields: Mapping[str, int]) -> str:
    column, *keys = condition.path
    if column not in fields:
        column, keys = _DYNAMIC, list(condition.path)
    name = column + "".join(f"[{_literal(key)}]" for key in keys)
    if condition.operator in _OPERATORS:
        return f"{name} {_OPERATORS[condition.operator]} {_literal(condition.values[0])}"
    if condition.operator == "contains":
        return _any_of(f"{name} like {_literal(f'%{value}%')}" for value in condition.values)
    if fields.get(column) == _LIST:
        tests = [f"array_contains({name}, {_literal(value)})" for value in condition.values]
    else:
        types = (bool, int, float, str) if keys else _TYPES.get(fields[column], (int,))
        tests = [
            f"{name} in {_literal(values)}"
            for type_ in types
            if (values := [value for value in condition.values if type(value) is type_])
        ]
        if keys:  # JSON, which may be a list
            tests += [f"json_contains({name}, {_literal(value)})" for value in condition.values]
        elif not tests:
            tests = [f"{name} in []"]
    found = _any_of(tests)
    return f"not ({found})" if condition.operator == "ne" else found


def _any_of(tests: Iterable[str]) -> str:
    return " or ".join(tests)


def _literal(value: Value | Sequence[Value]) -> str:
    return json.dumps(value, ensure_ascii=False)
