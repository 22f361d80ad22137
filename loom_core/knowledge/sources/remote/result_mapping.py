"""Mapping of foreign search results to passages: by common field names, or by paths."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, Field

from loom_core.errors import SourceError
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.sources.remote.json_path import JsonPath, PathSetting

if TYPE_CHECKING:
    from loom_core.tools.interface import JsonValue as Json

__all__ = ["TEXTS", "PassagePaths", "ResultMapping", "read_item", "read_items", "read_row"]

_LISTS = (
    "results", "items", "passages", "documents", "hits", "records", "matches", "chunks", "entries", "rows",
    "list", "nodes", "knowledge", "answers", "points", "value", "data", "result", "response",
)  # fmt: skip
_INSIDE = ("_source", "payload", "document", "node", "segment", "chunk", "fields", "attributes", "properties")
TEXTS = (
    "content", "text", "passage", "chunk", "page_content", "pageContent", "body", "answer", "snippet",
    "document", "markdown", "summary", "description", "abstract", "value",
)  # fmt: skip
"""Usual names of a passage's text."""

_IDS = ("id", "_id", "chunk_id", "chunkId", "passage_id", "document_id", "documentId", "doc_id", "uid", "key")
_TITLES = ("title", "name", "question", "heading", "document_name", "documentName", "filename", "file_name")
_URLS = ("url", "uri", "link", "href", "source_url", "sourceUrl", "source")
_SCORES = ("score", "relevance", "_score", "similarity", "relevance_score", "relevanceScore", "rank_score")
_METADATA = "metadata"
_STRINGS = frozenset({"answer_sentence", "kind", "language", "title"})
_LISTS_OF_STRINGS = frozenset({"heading_path", "why"})

_DEEPEST = 4  # levels that are searched for the list of results
_MAX_ITEMS = 200
_MAX_KEPT = 4000  # characters of a field that is kept as metadata
_MAX_FIELDS = 50


class PassagePaths(BaseModel):
    """Places of the parts of a passage in what a source gives: paths such as `meta.title`; see `JsonPath`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: PathSetting = Field(default="", description="Id of a passage; by default the source's own.")
    text: PathSetting = Field(default="", description="Text of a passage.")
    title: PathSetting = Field(default="", description="Title of its document.")
    url: PathSetting = Field(default="", description="Address of its document.")
    metadata: PathSetting = Field(default="", description="An object with further metadata.")


class ResultMapping(PassagePaths):
    """Places of the fields in an answer: paths such as `data.items` or `/data/items`; see `JsonPath`.

    Empty settings are found by the usual names: the list under `results`, `items`, `data`, `documents`,
    `hits`…, the text of a passage under `content`, `text`, `passage`…, also inside `_source`, `payload` and
    the like. All paths but `results` begin at a passage.
    """

    results: PathSetting = Field(default="", description="The list of passages, or one passage.")
    score: PathSetting = Field(default="", description="Relevance; higher is better, on any scale.")


def read_items(
    answer: Json, mapping: ResultMapping, *, source: str, titles: bool = False
) -> list[KnowledgeItem]:
    """Return the passages of an answer, in its order; an empty list of results gives none.

    Relevances are 0 to 1 where the answer's scores are, else stretched so that the best is 1; all are 0
    where it has none. Entries without text are left out. A passage without an id gets one from its text.

    Args:
        answer: the answer, parsed as JSON.
        mapping: paths of the fields.
        source: the `source` of a passage without an address.
        titles: whether a row with an id and a title but no text is accepted, with the title as its text.

    Raises:
        SourceError: it has no recognizable list of passages, or none of them has a text.
    """
    rows = _rows(answer, mapping)
    found: list[tuple[KnowledgeItem, float | None]] = []
    for row in rows[:_MAX_ITEMS]:
        read = read_row(row, mapping, source=source, titles=titles)
        if read is not None:
            found.append(read)
    if rows and not found:
        where = f"under {mapping.text!r}" if mapping.text else "under any of the usual names"
        raise SourceError(
            f"No passage of the answer has a text {where}.",
            advice="Say where it is: `text` in the source's mapping, such as fields.body.",
        )
    scores = [score for _, score in found if score is not None]
    best = max(scores, default=0.0)
    scale = best if best > 1 else 1.0
    return [
        item if score is None else _with_relevance(item, min(max(score / scale, 0.0), 1.0), score)
        for item, score in found
    ]


def read_item(answer: Json, mapping: ResultMapping, *, source: str) -> KnowledgeItem | None:
    """Return the one document of an answer, or None where there is none in it."""
    if isinstance(answer, Mapping) and (read := read_row(answer, mapping, source=source)) is not None:
        return read[0]
    try:
        return next(iter(read_items(answer, mapping, source=source)), None)
    except SourceError:
        return None


def read_row(
    row: Json, mapping: ResultMapping, *, source: str, titles: bool = False
) -> tuple[KnowledgeItem, float | None] | None:
    """Return a passage and the score that the answer gives it; None where there is no text.

    Args:
        row: an entry of the list of results.
        mapping: as for `read_items`.
        source: as for `read_items`.
        titles: as for `read_items`.
    """
    if isinstance(row, str):
        row = {"text": row}
    if not isinstance(row, Mapping):
        return None
    text = _text(row, mapping)
    title = _plain(row, mapping.title, _TITLES)
    known = _plain(row, mapping.id, _IDS)
    if not text and not (titles and title and known):
        return None
    text = text or title
    url = _plain(row, mapping.url, _URLS)
    id_ = known or _digest(title, text)
    metadata = _metadata(row, mapping)
    if title:
        metadata["title"] = title
    item = KnowledgeItem(id=id_, content=text, source=url or title or source, metadata=metadata)
    return item, _score(row, mapping)


def _rows(answer: Json, mapping: ResultMapping) -> Sequence[Json]:
    if mapping.results:
        path = JsonPath.of(mapping.results)
        found = path.find(answer)
        # APIs often omit an empty list, but not the object around it.
        is_left_out = found is None and isinstance(JsonPath(path.steps[:-1]).find(answer), Mapping)
        rows: Sequence[Json] | None = () if is_left_out else _as_list(found)
    else:
        rows = _find_list(answer, mapping, _DEEPEST)
    if rows is None:
        where = f"under {mapping.results!r}" if mapping.results else "under any of the usual names"
        raise SourceError(
            f"The answer has no list of passages {where}.",
            advice="Say where it is: `results` in the source's mapping, such as data.items.",
        )
    return rows


def _as_list(value: Json) -> Sequence[Json] | None:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value
    return [value] if isinstance(value, Mapping) else None


def _find_list(value: Json, mapping: ResultMapping, depth: int) -> Sequence[Json] | None:
    """Return the list of passages inside a value: the value itself if it is a list or a single passage."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value
    if not isinstance(value, Mapping) or not depth:
        return None
    if (rows := _columns(value)) is not None:
        return rows
    for name in _LISTS:
        if name in value and (rows := _find_list(value[name], mapping, depth - 1)) is not None:
            return rows
    if not value:
        return []
    return [value] if _text(value, mapping) else None


def _columns(value: Mapping[str, Json]) -> Sequence[Json] | None:
    """Return the passages of a columnar answer: a list of ids, a list of documents and so on, as Chroma's.

    Each list may be inside another one, which has an entry for each of several questions.
    """
    lists: dict[str, Sequence[Json]] = {}
    for name, key in (("ids", "id"), ("documents", "text"), ("metadatas", "metadata")):
        column = value.get(name)
        if isinstance(column, Sequence) and len(column) == 1 and isinstance(column[0], list):
            column = column[0]
        if isinstance(column, Sequence) and not isinstance(column, str):
            lists[key] = column
    if not {"id", "text"} <= lists.keys() or len({len(column) for column in lists.values()}) > 1:
        return None
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def _text(row: Mapping[str, Json], mapping: ResultMapping) -> str:
    if mapping.text:
        found = JsonPath.of(mapping.text).find(row)
        return found.strip() if isinstance(found, str) else ""
    for name in TEXTS:
        for place in _places(row):
            found = place.get(name)
            if isinstance(found, str) and found.strip():
                return found.strip()
    return ""


def _plain(row: Mapping[str, Json], path: str, names: Sequence[str]) -> str:
    """Return a short text or a number as text: at a path, or under the first of some names that has one."""
    if path:
        return _as_text(JsonPath.of(path).find(row))
    found = (_as_text(place.get(name)) for name in names for place in _places(row))
    return next(filter(None, found), "")


def _as_text(value: Json) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return str(value).strip()[:_MAX_KEPT]


def _score(row: Mapping[str, Json], mapping: ResultMapping) -> float | None:
    if mapping.score:
        values = [JsonPath.of(mapping.score).find(row)]
    else:
        values = [place.get(name) for name in _SCORES for place in _places(row)]
    for value in values:
        if isinstance(value, int | float) and _is_number(value) and not isinstance(value, bool):
            return float(value)
    return None


def _places(row: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """Return a passage, and the objects inside it that usually hold its fields."""
    inner = (row.get(name) for name in (*_INSIDE, _METADATA))
    return [row, *(value for value in inner if isinstance(value, Mapping))]


def _metadata(row: Mapping[str, Json], mapping: ResultMapping) -> dict[str, Any]:
    """Return the metadata of a passage: its plain fields, and those of its metadata, which come first."""
    known: dict[str, Any] = {}
    if mapping.metadata:
        named = JsonPath.of(mapping.metadata).find(row)
        places = [named] if isinstance(named, Mapping) else []
    else:
        places = [place for place in (row.get(_METADATA), row) if isinstance(place, Mapping)]
    for place in places:
        for name, value in place.items():
            if len(known) < _MAX_FIELDS and name not in known and name not in TEXTS and _is_kept(name, value):
                known[name] = value
    return known


def _is_kept(name: str, value: Json) -> bool:
    """Return whether a field is kept as metadata: one that Loom reads only with a value of its type."""
    if name in _STRINGS:
        return isinstance(value, str) and _is_short(value)
    if name in _LISTS_OF_STRINGS:
        return isinstance(value, list) and _is_short(value) and all(isinstance(each, str) for each in value)
    return _is_short(value) and (name != "scores" or isinstance(value, Mapping))


def _is_short(value: Json) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_KEPT
    if isinstance(value, Mapping):
        return len(value) <= _MAX_FIELDS and all(map(_is_number, value.values()))
    if isinstance(value, Sequence):
        return len(value) <= _MAX_FIELDS and all(isinstance(v, str | int | float) for v in value)
    return value is not None


def _is_number(value: Json) -> bool:
    """Return whether a value is a finite number, also as a float; JSON has longer ones."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def _with_relevance(item: KnowledgeItem, relevance: float, score: float) -> KnowledgeItem:
    known = item.metadata.get("scores")
    scores = cast("dict[str, float]", known) if isinstance(known, dict) else {"score": score}
    return KnowledgeItem(item.id, item.content, item.source, relevance, {**item.metadata, "scores": scores})


def _digest(title: str, text: str) -> str:
    return sha256(f"{title}\0{text}".encode("utf-8", "replace")).hexdigest()[:16]
