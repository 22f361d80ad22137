"""An index of Elasticsearch or OpenSearch that others have filled, over the REST interface of both."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from loom_core.errors import IndexDamagedError, InvalidInputError, SourceError
from loom_core.knowledge.indexes.engines.elasticsearch import (
    ELASTICSEARCH,
    OPENSEARCH,
    SearchEngineConnection,
    SearchProduct,
)
from loom_core.knowledge.sources.collections.config import SOURCE_USE
from loom_core.knowledge.sources.collections.port import Row, VectorSpace
from loom_core.knowledge.sources.collections.rows import choose_vector, rank_by_cosine
from loom_core.knowledge.sources.remote.json_path import JsonPath
from loom_core.knowledge.sources.remote.result_mapping import TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from pydantic import SecretStr

    from loom_core.knowledge.sources.collections.config import CollectionConfig
    from loom_core.knowledge.sources.collections.port import Condition, Metric, Value

__all__ = ["ElasticsearchCollection", "OpenSearchCollection"]

_MOST = 10_000  # hits of a search, and neighbours that are looked at: limits of both products
_LEAST = 128  # neighbours that are looked at
_METRICS: Mapping[str, Metric] = {
    "cosine": "cosine",
    "cosinesimil": "cosine",
    "dot_product": "dot",
    "innerproduct": "dot",
    "l2": "l2",
    "l2_norm": "l2",
    "max_inner_product": "dot",
}
_FLOATS = {"float", "bfloat16"}
_NUMBERS = {
    "byte", "double", "float", "half_float", "integer", "long", "scaled_float", "short", "unsigned_long",
}  # fmt: skip
_DATES = {"date", "date_nanos"}
_OBJECTS = {"flat_object", "flattened"}  # with any fields, all of them keywords
_KEYWORDS = {"constant_keyword", "ip", "keyword", "version", "wildcard"}
_FILTERS = {"boolean", *_DATES, *_KEYWORDS, *_NUMBERS, *_OBJECTS}
_TEXTS = {"match_only_text", "text"}
_RANGES = {"gte", "gt", "lte", "lt"}


class _SearchEngineCollection(ABC):
    """`LexicalCollection` over an index, an alias or a data stream. Fields are those of `_source`.

    Conditions are filters of the engine: on keywords, numbers, booleans and dates, and on text that has a
    keyword among its multi-fields, as dynamic mapping makes it.
    """

    _product: ClassVar[SearchProduct]

    def __init__(self, config: CollectionConfig, secret: SecretStr | None) -> None:
        """Take the address; the server is connected to at first use.

        Raises:
            ConfigError: the URL is none of the product, or the secret does not fit it.
        """
        self._config = config
        self._name = config.collection
        self._path = f"/{quote(self._name, safe='*,')}"
        self._connection = SearchEngineConnection(
            self._product, config.url, secret=secret, index=self._name, use=SOURCE_USE
        )
        self._fields: Mapping[str, Mapping[str, Any]] = {}  # the mapping: options by dotted path
        self._vectors: list[str] = []
        self._vector = ""

    def describe(self) -> VectorSpace:
        """See `ForeignCollection.describe`. An index without vectors is one if no embedder is configured."""
        indexes = self._connection.ask("GET", f"{self._path}/_mapping", read=lambda found: [*found.values()])
        if not indexes:
            raise IndexDamagedError(f"There is no index {self._name!r}.", advice="Check its name.")
        self._fields = {
            name: options
            for index in indexes
            for name, options in _leaves(index["mappings"].get("properties", {}))
        }
        self._vectors = [
            name for name, options in self._fields.items() if self._dimension(options) is not None
        ]
        wanted = self._config.fields.vector
        if not (self._vectors or wanted or self._config.embedding):
            return VectorSpace("none", filters=self._filter_paths())
        self._vector = choose_vector(self._name, self._vectors, wanted)
        options = self._fields[self._vector]
        if options.get("index") is False:
            raise SourceError(
                f"The vectors {self._vector!r} of {self._name!r} are stored, but not indexed.",
                advice='Index them again with "index": true, or leave `embedding` out to search by words.',
            )
        metric = _METRICS.get(self._similarity(), "other")
        return VectorSpace(metric, self._dimension(options) or 0, self._filter_paths())

    def search_vector(
        self, vector: NDArray[np.float32], limit: int, conditions: Sequence[Condition]
    ) -> list[Row]:
        """See `ForeignCollection.search_vector`."""
        if not self._vector:
            choose_vector(self._name, self._vectors, self._config.fields.vector)
        return self._nearest(vector, min(limit, _MOST), self._filters(conditions))

    def search_words(self, query: str, limit: int, conditions: Sequence[Condition]) -> list[Row]:
        """See `LexicalCollection.search_words`; the field with the text is searched, by its own analyser.

        Raises:
            SourceError: no field with the text is known.
        """
        words = {"match": {self._text_field(): {"query": query}}}
        ranked = {"bool": {"must": [words], "filter": self._filters(conditions)}}
        return self._search({"query": ranked, "size": min(limit, _MOST)})

    def read(self, limit: int, conditions: Sequence[Condition], *, vectors: bool = False) -> list[Row]:
        """See `ForeignCollection.read`; not more than 10,000."""
        query = {"bool": {"filter": self._filters(conditions)}}
        return self._search({"query": query, "sort": ["_doc"], "size": min(limit, _MOST)}, vectors=vectors)

    def get(self, id_: str) -> Row | None:
        """See `ForeignCollection.get`."""
        query = {"bool": {"filter": [{"ids": {"values": [id_]}}, *self._filters(())]}}
        rows = self._search({"query": query, "size": 1})
        return rows[0] if rows else None

    def count(self) -> int:
        """See `ForeignCollection.count`; all entries, also those that the configured `body` leaves out."""
        return self._connection.ask("GET", f"{self._path}/_count", read=lambda answer: int(answer["count"]))

    def close(self) -> None:
        """See `ForeignCollection.close`."""
        self._connection.close()

    @abstractmethod
    def _dimension(self, options: Mapping[str, Any]) -> int | None:
        """Return the dimension of a field with vectors of floats, 0 if it is not known; None for others."""

    @abstractmethod
    def _similarity(self) -> str:
        """Return how the vectors are compared, by the engine's name of it."""

    @abstractmethod
    def _nearest(self, vector: NDArray[np.float32], limit: int, filters: list[dict[str, Any]]) -> list[Row]:
        """Search by vector, with scores as the port defines them."""

    @abstractmethod
    def _retrieve_vector(self) -> dict[str, Any]:
        """Return what a search says to get the vector with each hit."""

    def _search(self, body: dict[str, Any], *, vectors: bool = False) -> list[Row]:
        """Send a search, which fails as a whole if a part of the index cannot answer."""
        unseen = {"_source": {"excludes": self._vectors}} if self._vectors else {}
        shown = self._retrieve_vector() if vectors and self._vector else unseen
        content = json.dumps({**body, "track_total_hits": False, **shown}).encode()
        path = f"{self._path}/_search?allow_partial_search_results=false"
        hits = self._connection.ask("POST", path, content, read=lambda answer: answer["hits"]["hits"])
        return [self._row(hit) for hit in hits]

    def _row(self, hit: Mapping[str, Any]) -> Row:
        source: dict[str, Any] = hit.get("_source", {})
        fields = {name: value for name, value in source.items() if name != self._vector}
        vector: Any = None
        if self._vector:
            vector = hit.get("fields", {}).get(self._vector) or JsonPath.of(self._vector).find(source)
        return Row(hit["_id"], fields, hit.get("_score") or 0.0, vector)

    def _text_field(self) -> str:
        """Return the field with the text of passages."""
        named = self._config.fields.text
        usual = [".".join(JsonPath.of(named).steps)] if named else TEXTS
        for name in usual:
            if self._fields.get(name, {}).get("type") in _TEXTS:
                return name
        known = [name for name, options in self._fields.items() if options.get("type") in _TEXTS]
        where = f"{named!r} is not such a field" if named else "no such field has one of the usual names"
        raise SourceError(
            f"{self._name!r} is not searched by words: it takes a field of type text, and {where}.",
            advice=f"Set `text` in the source's `fields` to one of: {', '.join(known[:30])}."
            if known
            else "Choose an index whose mapping has a field of type text.",
        )

    def _filter_paths(self) -> list[tuple[str, ...]]:
        """Return the paths of all fields that conditions can be decided on."""
        return [tuple(name.split(".")) for name in self._fields if self._decided_by(name)[1] in _FILTERS]

    def _decided_by(self, name: str) -> tuple[str, str]:
        """Return the field by which conditions on a field are decided, and its type; both may be empty."""
        options = self._fields.get(name)
        if options is None:
            above = name.rpartition(".")[0]
            return (name, "keyword") if above and self._decided_by(above)[1] in _OBJECTS else ("", "")
        if options.get("type") == "alias":
            return self._decided_by(options["path"])
        if options.get("type") in _TEXTS:
            for inner, other in options.get("fields", {}).items():
                if other.get("type") in _KEYWORDS:
                    return f"{name}.{inner}", other["type"]
        return name, str(options.get("type"))

    def _filters(self, conditions: Iterable[Condition]) -> list[dict[str, Any]]:
        """Return the configured query, and conditions as queries."""
        configured = [dict(self._config.body.query)] if self._config.body.query else []
        return [*configured, *map(self._filter, conditions)]

    def _filter(self, condition: Condition) -> dict[str, Any]:
        name = ".".join(condition.path)
        field, type_ = self._decided_by(name)
        operator, values = condition.operator, condition.values
        if operator in {"eq", "ne"} and type_ in _FILTERS:
            fitting = [value for value in values if _fits(value, type_)]
            matches: dict[str, Any] = {"terms": {field: fitting}} if fitting else {"match_none": {}}
            return matches if operator == "eq" else {"bool": {"must_not": [matches]}}
        if operator == "contains" and type_ in _KEYWORDS | _TEXTS:
            each = [_contains(field, str(value), type_) for value in values]
            return each[0] if len(each) == 1 else {"bool": {"should": each}}
        if (
            operator in {"gte", "gt", "lte", "lt"}
            and type_ in _FILTERS - {"boolean"}
            and _fits(values[0], type_)
        ):
            return {"range": {field: {operator: values[0]}}}
        raise InvalidInputError(
            f"{self._product.title} cannot decide {operator!r} on the field {name!r} of {self._name!r}, "
            f"which is {f'of type {type_}' if type_ else 'not in its mapping'}.",
            advice=_advise(type_),
        )


class ElasticsearchCollection(_SearchEngineCollection):
    """`LexicalCollection` over an index of Elasticsearch 8.4 or later."""

    _product = ELASTICSEARCH

    def _dimension(self, options: Mapping[str, Any]) -> int | None:
        is_one = options.get("type") == "dense_vector" and options.get("element_type", "float") in _FLOATS
        return int(options.get("dims") or 0) if is_one else None

    def _similarity(self) -> str:
        return str(self._fields[self._vector].get("similarity", "cosine"))

    def _nearest(self, vector: NDArray[np.float32], limit: int, filters: list[dict[str, Any]]) -> list[Row]:
        knn: dict[str, Any] = {
            "num_candidates": max(limit, _LEAST),
            **self._config.body.knn,
            "field": self._vector,
            "query_vector": vector.tolist(),
            "k": limit,
            "filter": filters,
        }
        rows = self._search({"knn": knn, "size": limit})
        return [replace(row, score=_invert(row.score, self._similarity())) for row in rows]

    def _retrieve_vector(self) -> dict[str, Any]:
        # Since 9.2, `_source` has no vectors; `fields` has them in all versions.
        return {"_source": {"excludes": self._vectors}, "fields": [self._vector]}


class OpenSearchCollection(_SearchEngineCollection):
    """`LexicalCollection` over an index of OpenSearch 2.9 or later, with vectors of its k-NN plugin."""

    _product = OPENSEARCH

    def _dimension(self, options: Mapping[str, Any]) -> int | None:
        is_one = options.get("type") == "knn_vector" and options.get("data_type", "float") in _FLOATS
        return int(options.get("dimension") or 0) if is_one else None

    def _similarity(self) -> str:
        options = self._fields[self._vector]
        return str(options.get("method", {}).get("space_type") or options.get("space_type") or "l2")

    def _nearest(self, vector: NDArray[np.float32], limit: int, filters: list[dict[str, Any]]) -> list[Row]:
        # An index without an engine may be one of NMSLIB, the default until 2.18, which has no filters.
        is_filtering = self._fields[self._vector].get("method", {}).get("engine") in {"faiss", "lucene"}
        knn: dict[str, Any] = {**self._config.body.knn, "vector": vector.tolist(), "k": max(limit, _LEAST)}
        query: dict[str, Any] = {"knn": {self._vector: knn}}
        if filters and is_filtering:
            knn["filter"] = {"bool": {"filter": filters}}
        elif filters:
            knn["k"] = _MOST
            query = {"bool": {"must": [query], "filter": filters}}
        # NMSLIB scores cosines in two ways: https://github.com/opensearch-project/k-NN/issues/2319
        is_unclear = self._similarity() == "cosinesimil" and not is_filtering
        rows = self._search({"query": query, "size": limit}, vectors=is_unclear)
        if is_unclear:
            return rank_by_cosine(vector, rows)
        return [replace(row, score=_invert(row.score, self._similarity())) for row in rows]

    def _retrieve_vector(self) -> dict[str, Any]:
        return {"_source": {"excludes": [name for name in self._vectors if name != self._vector]}}


def _leaves(properties: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all fields of a mapping but those of nested documents, with their dotted paths."""
    for name, options in properties.items():
        if "properties" not in options:
            yield above + name, options
        elif options.get("type", "object") == "object":
            yield from _leaves(options["properties"], f"{above}{name}.")


def _invert(score: float, similarity: str) -> float:
    """Return the cosine, inner product or distance of a score, which both products make positive.

    See the field types: https://www.elastic.co/docs/reference/elasticsearch/mapping-reference/dense-vector
    and https://docs.opensearch.org/latest/mappings/supported-field-types/knn-spaces/.
    """
    if similarity in {"cosine", "cosinesimil", "dot_product"}:
        return 2.0 * score - 1.0
    if similarity in {"innerproduct", "max_inner_product"}:
        return score - 1.0 if score >= 1.0 else 1.0 - 1.0 / score
    return 1.0 / score - 1.0


def _fits(value: Value, type_: str) -> bool:
    """Whether a field of a type may be compared with a value; others are refused by the engine."""
    if type_ == "boolean":
        return isinstance(value, bool)
    if type_ in _NUMBERS:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str)


def _contains(field: str, value: str, type_: str) -> dict[str, Any]:
    if type_ in _TEXTS:
        return {"match_phrase": {field: value}}
    escaped = "".join(f"\\{letter}" if letter in "\\*?" else letter for letter in value)
    return {"wildcard": {field: {"value": f"*{escaped}*"}}}


def _advise(type_: str) -> str:
    if not type_:
        return "Correct `filters` of the source."
    if type_ in _TEXTS:
        return "Filter by a field of type keyword, or add one as a multi-field."
    return "Give a number for numbers, and text for keywords and dates; or leave the operator out."
