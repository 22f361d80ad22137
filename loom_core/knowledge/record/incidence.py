"""Which chunks mention an entity, and which are about it: the part of the graph that questions read.

A question asks this of hundreds of entities at once, some of which stand in every other chunk. So one
statement answers for all of them, and of each it reads no more than is wanted, through an index in the
right order: what it costs does not grow with the number of chunks.

The answer comes as one row of JSON. Python's `sqlite3` releases the interpreter's lock for every row it
fetches and has to wait to get it back: with an ingest running in another thread a thousand rows take
seconds, and one row takes no longer than before.

Entities that are one under several names (`AliasTable`) are read as the one that stands for them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from loom_core.knowledge.record.aliases import AliasTable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from loom_core.knowledge.model import AboutSource
    from loom_core.storage import Database

__all__ = ["AboutRow", "Incidence", "MentionRow"]

_LOOKED_AT = 50  # mentions of an entity that are looked at for some in chunks about something else

# json_each keeps the order of the list, and so do the aggregates that of the rows they are given.
_MENTIONS_IN = """
SELECT json_group_array(chunk), json_group_array(entity), json_group_array(start), json_group_array(end),
    json_group_array(name), json_group_array(confidence)
FROM (
    SELECT m.chunk, COALESCE(s.canonical, m.entity) AS entity, m.start, m.end, m.name, m.confidence
    FROM json_each(?) AS e CROSS JOIN mentions AS m ON m.chunk = e.value
    LEFT JOIN aliases AS s ON s.entity = m.entity
)
"""
_ABOUTS_IN = """
SELECT json_group_array(chunk), json_group_array(entity), json_group_array(document),
    json_group_array(source), json_group_array(name), json_group_array(confidence)
FROM (
    SELECT a.chunk, COALESCE(s.canonical, a.entity) AS entity, c.document, a.source, a.name, a.confidence
    FROM json_each(?) AS e CROSS JOIN abouts AS a ON a.chunk = e.value
    CROSS JOIN chunks AS c ON c.key = a.chunk LEFT JOIN aliases AS s ON s.entity = a.entity
)
"""
_ENTITIES_IN = """
SELECT json_group_array(COALESCE(s.canonical, m.entity)) FROM (
    SELECT entity FROM json_each(?1) AS e CROSS JOIN mentions ON chunk = e.value
    UNION SELECT entity FROM json_each(?1) AS e CROSS JOIN abouts ON chunk = e.value
) AS m LEFT JOIN aliases AS s ON s.entity = m.entity
"""
_DOCUMENTS_OF = """
SELECT json_group_array(key), json_group_array(document)
FROM (SELECT c.key, c.document FROM json_each(?) AS e CROSS JOIN chunks AS c ON c.key = e.value)
"""
_MEMBERS_OF = """
SELECT json_group_array(json_array(s.entity, s.canonical))
FROM json_each(?) AS e CROSS JOIN aliases AS s ON s.canonical = e.value AND s.entity != e.value
"""
_OF_EACH = """
SELECT '[' || group_concat((
    SELECT '[' || json_group_array(chunk) || ',' || json_group_array(confidence) || ']' FROM ({})
)) || ']'
FROM json_each(?1) AS e
"""
_MENTIONS_OF = _OF_EACH.format(
    "SELECT chunk, confidence FROM mentions WHERE entity = e.value ORDER BY chunk, start LIMIT ?2"
)
_ASIDES_OF = _OF_EACH.format(
    f"""
    SELECT chunk, confidence FROM (
        SELECT chunk, start, confidence FROM mentions WHERE entity = e.value
        ORDER BY chunk, start LIMIT {_LOOKED_AT}
    ) AS m
    WHERE NOT EXISTS (SELECT 1 FROM abouts WHERE chunk = m.chunk AND entity = e.value)
    ORDER BY chunk, start LIMIT ?2
    """
)
_ABOUTS_OF = _OF_EACH.format(
    "SELECT chunk, confidence FROM abouts WHERE entity = e.value ORDER BY confidence DESC, chunk LIMIT ?2"
)


class MentionRow(NamedTuple):
    """A mention as retrieval reads it."""

    chunk: int
    entity: int
    start: int
    end: int
    name: str
    confidence: float


class AboutRow(NamedTuple):
    """A chunk and an entity it is about."""

    chunk: int
    entity: int
    document: int
    source: AboutSource
    name: str
    confidence: float


class Incidence:
    """Reads mentions and subjects by chunk and by entity."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.aliases = AliasTable(database)

    def canonical_of(self, entities: Sequence[int]) -> dict[int, int]:
        """The entity that stands for its group, for those entities that are in one."""
        return self.aliases.canonical_of(entities)

    def mentions_in(self, chunks: Collection[int]) -> list[MentionRow]:
        """Mentions in chunks, by chunk in their order."""
        return list(map(MentionRow._make, zip(*self._columns(_MENTIONS_IN, chunks), strict=True)))

    def abouts_in(self, chunks: Collection[int]) -> list[AboutRow]:
        """What chunks are about, by chunk in their order."""
        return list(map(AboutRow._make, zip(*self._columns(_ABOUTS_IN, chunks), strict=True)))

    def entities_in(self, chunks: Collection[int]) -> set[int]:
        """Entities that chunks mention or are about."""
        (entities,) = self._columns(_ENTITIES_IN, chunks)
        return set(entities)

    def documents_of(self, chunks: Collection[int]) -> dict[int, int]:
        """The documents that chunks are of; chunks that are gone are left out."""
        keys, documents = self._columns(_DOCUMENTS_OF, chunks)
        return dict(zip(keys, documents, strict=True))

    def mentions_of(self, entities: Collection[int], *, limit: int) -> dict[int, list[tuple[int, float]]]:
        """The first mentions of each entity: chunk and confidence, at most `limit`, by chunk."""
        found = self._of_each(_MENTIONS_OF, entities, limit)
        return {entity: sorted(rows, key=_by_chunk)[:limit] for entity, rows in found.items()}

    def asides_of(self, entities: Collection[int], *, limit: int) -> dict[int, list[tuple[int, float]]]:
        """The first mentions of each entity in chunks that are not about it anyway.

        Of an entity that is mentioned throughout only the first 50 mentions are looked at.
        """
        found = self._of_each(_ASIDES_OF, entities, limit)
        return {entity: sorted(rows, key=_by_chunk)[:limit] for entity, rows in found.items()}

    def abouts_of(self, entities: Collection[int], *, limit: int) -> dict[int, list[tuple[int, float]]]:
        """Chunks that are about each entity: chunk and confidence, at most `limit`, surest first."""
        found = self._of_each(_ABOUTS_OF, entities, limit)
        return {entity: sorted(rows, key=_surest)[:limit] for entity, rows in found.items()}

    def _columns(self, sql: str, chunks: Collection[int]) -> list[list[Any]]:
        with self._database.read() as db:
            return list(map(json.loads, db.execute(sql, (_listed(chunks),)).fetchone()))

    def _of_each(self, sql: str, entities: Collection[int], limit: int) -> dict[int, list[tuple[int, float]]]:
        """Rows of canonical entities: at most `limit` of each of the entities that one stands for."""
        if not entities:
            return {}
        with self._database.read() as db:
            (grouped,) = db.execute(_MEMBERS_OF, (_listed(entities),)).fetchone()
            of = dict.fromkeys(entities)
            members = [*of, *(member for member, _ in json.loads(grouped))]
            (text,) = db.execute(sql, (_listed(members), limit)).fetchone()
        found = [list(zip(*columns, strict=True)) for columns in json.loads(text)]
        result = dict(zip(of, found, strict=False))
        for (_, canonical), rows in zip(json.loads(grouped), found[len(of) :], strict=True):
            result[canonical] = result[canonical] + rows
        return result


def _by_chunk(row: tuple[int, float]) -> int:
    return row[0]


def _surest(row: tuple[int, float]) -> tuple[float, int]:
    return -row[1], row[0]


def _listed(keys: Collection[int]) -> str:
    return json.dumps(keys if isinstance(keys, list) else list(keys))
