"""Entries of foreign collections as passages, in the layouts of LangChain, LlamaIndex and others; filters."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import InvalidInputError, SourceError
from loom_core.knowledge.filters import parse_filters
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.sources.collections.port import Condition
from loom_core.knowledge.sources.remote.json_path import JsonPath
from loom_core.knowledge.sources.remote.result_mapping import TEXTS, ResultMapping, read_row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.filters import Operator
    from loom_core.knowledge.sources.collections.config import CollectionFields
    from loom_core.knowledge.sources.collections.port import Row, Value

__all__ = ["RowReader", "choose_vector", "make_conditions", "rank_by_cosine"]

_METADATA = ("metadata", "metadata_", "cmetadata", "langchain_metadata")
_NODE = "_node_content"  # a node of LlamaIndex as JSON: its text is there, or in a field
_HIDDEN = {"id", _NODE, "_node_type", "doc_id", "ref_doc_id", *_METADATA}  # it has `document_id`, too
_MAX_FILTERS = 30
_LONGEST = 200  # characters of a value that one filters by

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Unpacked:
    """Fields of an entry: all of them, the object with its metadata and that object's path."""

    fields: Mapping[str, Any]
    metadata: Mapping[str, Any]
    path: Path


class RowReader:
    """Reads entries of a collection as passages.

    Args:
        fields: names of its fields.
        source: the `source` of a passage without an address.
    """

    def __init__(self, fields: CollectionFields, *, source: str) -> None:
        self._fields = fields
        self._mapping = ResultMapping(id=fields.id, text=fields.text, title=fields.title, url=fields.url)
        self._source = source

    def item(self, row: Row) -> KnowledgeItem | None:
        """Return an entry as a passage; None if it has no text."""
        unpacked = self._unpack(row)
        fields = dict(unpacked.fields) if self._fields.id else {**unpacked.fields, "id": row.id}
        read = read_row({**fields, "metadata": unpacked.metadata}, self._mapping, source=self._source)
        if read is None:
            return None
        item = read[0]
        known = {name: value for name, value in item.metadata.items() if name not in _HIDDEN}
        return KnowledgeItem(item.id, item.content, item.source, row.score, known)

    def field_names(self, row: Row) -> list[str]:
        """Return the paths of the fields of an entry, for a message."""
        unpacked = self._unpack(row)
        inner = [".".join([*unpacked.path, name]) for name in unpacked.metadata]
        return [name for name in unpacked.fields if (name,) != unpacked.path] + inner

    def filter_paths(self, rows: Iterable[Row], declared: Collection[Path] | None = None) -> dict[str, Path]:
        """Return the names of fields that one can filter by, with their paths.

        Args:
            rows: some entries, whose plain fields are meant.
            declared: the fields that the engine declares, see `VectorSpace.filters`, which no entry needs to
                have; None if the engine takes any.
        """
        paths: dict[str, Path] = {}
        for row in rows:
            unpacked = self._unpack(row)
            places = [(unpacked.path, unpacked.metadata), ((), unpacked.fields)]
            for above, fields in places:
                for name, value in fields.items():
                    path = (*above, name)
                    if self._is_filter(name, value) and str(value) != row.id and _is_among(path, declared):
                        paths.setdefault(name, path)
        for path in declared or ():
            if self._is_filter(path[-1]):
                paths.setdefault(path[-1], path)
        return dict(sorted(paths.items())[:_MAX_FILTERS])

    def _is_filter(self, name: str, value: object = 0) -> bool:
        if name in _HIDDEN or name in TEXTS or name == self._fields.text or name.startswith("_"):
            return False
        values = cast("list[object]", value) if isinstance(value, list) else [value]
        return bool(values) and all(_is_short(each) for each in values)

    def _unpack(self, row: Row) -> _Unpacked:
        fields, path, metadata = dict(row.fields), (), cast("Mapping[str, Any]", {})
        for name in filter(None, (self._fields.metadata, *_METADATA)):
            steps = JsonPath.of(name).steps
            if isinstance(found := _parse(JsonPath(steps).find(fields)), Mapping):
                path, metadata = steps, cast("Mapping[str, Any]", found)
                break
        node = _parse(fields.get(_NODE) or metadata.get(_NODE))
        if isinstance(node, Mapping) and (text := cast("Mapping[str, Any]", node).get("text")):
            fields.setdefault("text", text)
        return _Unpacked(fields, metadata, path)


def choose_vector(collection: str, names: Collection[str], wanted: str) -> str:
    """Return the name of the vector to search.

    Args:
        collection: name of the collection, for the message.
        names: names of its vectors.
        wanted: the configured name, or empty.

    Raises:
        SourceError: it has no such vector, none at all, or several.
    """
    chosen = [name for name in names if name == wanted] if wanted else list(names)
    if len(chosen) != 1:
        listed = f"Set `vector` in the source's `fields` to one of: {', '.join(names)}."
        if len(names) == 1:
            listed = "Leave `vector` out of the source's `fields`: it has one alone."
        raise SourceError(
            f"The collection {collection!r} has no vector {wanted!r}."
            if wanted
            else f"The collection {collection!r} has {len(names)} vectors.",
            advice=listed if names else "Choose a collection of passages that were embedded.",
        )
    return chosen[0]


def make_conditions(filters: Mapping[str, Any] | None, paths: Mapping[str, Path]) -> list[Condition]:
    """Convert filters to conditions on the fields of a collection.

    Text and numbers of the same digits are equal: `--filter year=1990` finds the number 1990.

    Args:
        filters: as in `KnowledgeBaseProvider.query`.
        paths: path of the field for each filter.

    Raises:
        InvalidInputError: there is no such filter, or a value is invalid.
    """
    parse_filters({name: value for name, value in (filters or {}).items() if name in paths}, list(paths))
    conditions: list[Condition] = []
    for name, given in (filters or {}).items():
        if name not in paths:
            known = f"There are: {', '.join(paths)}." if paths else "Leave filters out here: there are none."
            raise InvalidInputError(f"There is no filter {name[:60]!r}.", advice=known)
        by_operator = cast("Mapping[Operator, Any]", given if isinstance(given, Mapping) else {"eq": given})
        for operator, value in by_operator.items():
            listed = list(cast("Iterable[Any]", value)) if _is_list(value) else [value]
            values = [each.isoformat() if isinstance(each, date) else each for each in listed]
            if operator in {"eq", "ne"}:
                values = [form for each in values for form in _forms(each)]
            conditions.append(Condition(paths[name], operator, tuple(values)))
    return conditions


def _forms(value: Value) -> list[Value]:
    """Return a value, and what is equal to it: text for a number, a number for its digits."""
    if not isinstance(value, str):
        return [value, json.dumps(value)]
    try:
        known = json.loads(value)
    except ValueError:
        return [value]
    is_plain = isinstance(known, bool | int | float) and json.dumps(known) == value
    return [value, known] if is_plain else [value]


def rank_by_cosine(vector: NDArray[np.float32], rows: Sequence[Row]) -> list[Row]:
    """Return entries by the cosine of their vector with another one of length 1, best first."""
    import numpy as np

    known = [row for row in rows if row.vector is not None]
    stored = np.asarray([row.vector for row in known], dtype=np.float32)
    cosines: list[float] = (stored @ vector / np.linalg.norm(stored, axis=1)).tolist() if known else []
    scored = [replace(row, score=cosine) for row, cosine in zip(known, cosines, strict=True)]
    return sorted(scored, key=lambda row: -row.score)


def _is_among(path: Path, declared: Collection[Path] | None) -> bool:
    """Whether a field, or an object around it, is declared."""
    return declared is None or any(path[:length] in declared for length in range(1, len(path) + 1))


def _is_short(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and len(value) <= _LONGEST)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence | Set) and not isinstance(value, str | bytes)


def _parse(value: object) -> object:
    """Return a value, parsed if it is JSON as text."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value
