"""Mentions and subjects in the store, by passage and by entity.

Questions see the entities of one group (`AliasTable`) as the canonical one of them, and none that a user has
hidden. A link of a common word has the confidence 0 (`COMMON` in graph.py) and is not seen; nor is what leads
to a passage that is boilerplate (`BoilerplateTable`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from loom_core.knowledge.store.aliases import AliasTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from loom_core.knowledge.model import AboutSource
    from loom_core.knowledge.text.name_matching import NameMatch
    from loom_core.storage.sql import SQLDatabase

__all__ = [
    "LOOKED_AT",
    "AboutRow",
    "EntityLinks",
    "MentionLink",
    "MentionReader",
    "MentionRow",
    "by_chunk",
    "first_places",
    "places_of_names",
    "surest",
]

LOOKED_AT = 50
"""Mentions of an entity that are searched for some in chunks not about it."""

# In SQLite json_each keeps the order of the list, and so do the aggregates that of the rows they are given.
_MENTIONS_IN = """
SELECT json_group_array(chunk), json_group_array(entity), json_group_array(start), json_group_array("end"),
    json_group_array(name), json_group_array(confidence)
FROM (
    SELECT m.chunk, COALESCE(s.canonical, m.entity) AS entity, m.start, m."end", m.name, m.confidence
    FROM json_each(?1) AS e CROSS JOIN mentions AS m LEFT JOIN aliases AS s ON s.entity = m.entity
    WHERE m.chunk = e.value AND COALESCE(s.canonical, 1) != 0 AND m.confidence > 0
    /*postgres ORDER BY e.key, m.entity, m.start*/
) AS found
"""
_ABOUTS_IN = """
SELECT json_group_array(chunk), json_group_array(entity), json_group_array(document),
    json_group_array(source), json_group_array(name), json_group_array(confidence)
FROM (
    SELECT a.chunk, COALESCE(s.canonical, a.entity) AS entity, c.document, a.source, a.name, a.confidence
    FROM json_each(?1) AS e CROSS JOIN abouts AS a CROSS JOIN chunks AS c
    LEFT JOIN aliases AS s ON s.entity = a.entity
    WHERE a.chunk = e.value AND c.key = a.chunk AND COALESCE(s.canonical, 1) != 0
    /*postgres ORDER BY e.key, a.entity, a.source*/
) AS found
"""
_LINKS_IN = f"SELECT * FROM ({_MENTIONS_IN}) AS mentioned CROSS JOIN ({_ABOUTS_IN}) AS subjects"
_ENTITIES_IN = """
SELECT json_group_array(COALESCE(s.canonical, m.entity)) FROM (
    SELECT entity FROM json_each(?1) AS e CROSS JOIN mentions WHERE chunk = e.value AND confidence > 0
    UNION SELECT entity FROM json_each(?1) AS e CROSS JOIN abouts WHERE chunk = e.value
) AS m LEFT JOIN aliases AS s ON s.entity = m.entity WHERE COALESCE(s.canonical, 1) != 0
"""
_NAMED_IN = """
SELECT json_group_array(entity) FROM (
    SELECT entity FROM json_each(?1) AS e CROSS JOIN mentions WHERE chunk = e.value
    UNION SELECT entity FROM json_each(?1) AS e CROSS JOIN abouts WHERE chunk = e.value
) AS found
"""
_DOCUMENTS_OF = """
SELECT json_group_array(c.key), json_group_array(c.document)
FROM json_each(?) AS e CROSS JOIN chunks AS c WHERE c.key = e.value
"""
_MEMBERS_OF = """
SELECT json_group_array(s.entity), json_group_array(s.canonical)
FROM json_each(?) AS e CROSS JOIN aliases AS s WHERE s.canonical = e.value AND s.entity != e.value
"""
_RECOGNISED = """
SELECT DISTINCT m.chunk, COALESCE(s.canonical, m.entity) AS entity
FROM mentions AS m LEFT JOIN aliases AS s ON s.entity = m.entity
WHERE m.chunk > ? AND m.type != 'name' AND COALESCE(s.canonical, 1) != 0
    AND m.chunk NOT IN (SELECT chunk FROM boilerplate)
ORDER BY m.chunk
"""
_PASSAGE_COUNTS = """
SELECT n.entity, CAST(SUM(n.uses) AS BIGINT) FROM json_each(?) AS e CROSS JOIN names AS n
WHERE n.entity = e.value AND n.type NOT IN ('', 'name') GROUP BY n.entity
"""
_PASSAGE_COUNTS_OF_GROUPS = """
SELECT s.canonical, COUNT(DISTINCT m.chunk)
FROM json_each(?) AS e CROSS JOIN aliases AS s CROSS JOIN mentions AS m
WHERE s.canonical = e.value AND m.entity = s.entity AND m.type != 'name' GROUP BY s.canonical
"""
_OF_EACH = """
SELECT '[' || group_concat((
    SELECT '[' || json_group_array(chunk) || ',' || json_group_array(confidence) || ']' FROM ({}) AS found
)) || ']'
FROM json_each(?1) AS e
"""
_MENTIONS_OF = _OF_EACH.format(
    "SELECT chunk, confidence FROM mentions WHERE entity = e.value AND confidence > 0 "
    "AND chunk NOT IN (SELECT chunk FROM boilerplate) ORDER BY chunk, start LIMIT ?2"
)
_PASSING_MENTIONS_OF = _OF_EACH.format(
    f"""
    SELECT chunk, confidence FROM (
        SELECT chunk, start, confidence FROM mentions WHERE entity = e.value AND confidence > 0
        AND chunk NOT IN (SELECT chunk FROM boilerplate) ORDER BY chunk, start LIMIT {LOOKED_AT}
    ) AS m
    WHERE NOT EXISTS (SELECT 1 FROM abouts WHERE chunk = m.chunk AND entity = e.value)
    ORDER BY chunk, start LIMIT ?2
    """
)
_ABOUTS_OF = _OF_EACH.format(
    "SELECT chunk, confidence FROM abouts WHERE entity = e.value "
    "AND chunk NOT IN (SELECT chunk FROM boilerplate) ORDER BY confidence DESC, chunk LIMIT ?2"
)
# As `_MENTIONS_OF`, but each chunk is twice its key, plus 1 if it is about the entity.
_MARKED_MENTIONS_OF = _OF_EACH.format(
    "SELECT 2 * m.chunk + CASE WHEN EXISTS (SELECT 1 FROM abouts WHERE chunk = m.chunk AND entity = e.value) "
    "THEN 1 ELSE 0 END AS chunk, confidence FROM mentions AS m WHERE entity = e.value AND confidence > 0 "
    "AND chunk NOT IN (SELECT chunk FROM boilerplate) ORDER BY m.chunk, start LIMIT ?2"
)
_Columns = tuple[list[int], list[float]]


class EntityLinks(NamedTuple):
    """First mentions of one entity, not of its group, and the surest passages about it: chunks, confidences.

    A chunk of `mentions` is twice its key, plus 1 if it is also about the entity.
    """

    mentions: _Columns
    abouts: _Columns


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


class MentionReader:
    """Reads mentions and subjects by chunk and by entity."""

    def __init__(self, database: SQLDatabase) -> None:
        self._database = database
        self.aliases = AliasTable(database)

    def canonical_of(self, entities: Sequence[int]) -> dict[int, int]:
        """Return the canonical entity of each of some entities that is in a group."""
        return self.aliases.canonical_of(entities)

    def mentions_in(self, chunks: Collection[int]) -> list[MentionRow]:
        """Return mentions in chunks, by chunk in their order."""
        return list(map(MentionRow._make, zip(*self._columns(_MENTIONS_IN, chunks), strict=True)))

    def abouts_in(self, chunks: Collection[int]) -> list[AboutRow]:
        """Return the subjects of chunks, by chunk in their order."""
        return list(map(AboutRow._make, zip(*self._columns(_ABOUTS_IN, chunks), strict=True)))

    def links_in(self, chunks: Collection[int]) -> tuple[list[MentionRow], list[AboutRow]]:
        """Return what `mentions_in` and `abouts_in` return; in one query."""
        columns = self._columns(_LINKS_IN, chunks)
        return (
            list(map(MentionRow._make, zip(*columns[:6], strict=True))),
            list(map(AboutRow._make, zip(*columns[6:], strict=True))),
        )

    def links_of(self, entities: Sequence[int], *, limit: int) -> list[EntityLinks]:
        """Return the first links of each entity, whatever its group: at most `limit` of either kind."""
        found = (self._each(sql, entities, limit) for sql in (_MARKED_MENTIONS_OF, _ABOUTS_OF))
        return list(map(EntityLinks._make, zip(*found, strict=True)))

    def named_in(self, chunks: Collection[int]) -> set[int]:
        """Return all entities that chunks name, with their own keys; even those that no question sees."""
        (entities,) = self._columns(_NAMED_IN, chunks)
        return set(entities)

    def boilerplate(self) -> list[int]:
        """Return all passages that are boilerplate, by key."""
        return [key for (key,) in self._database.rows("SELECT chunk FROM boilerplate ORDER BY chunk")]

    def entities_in(self, chunks: Collection[int]) -> set[int]:
        """Return entities that chunks mention or are about."""
        (entities,) = self._columns(_ENTITIES_IN, chunks)
        return set(entities)

    def documents_of(self, chunks: Collection[int]) -> dict[int, int]:
        """Return the document of each chunk; deleted chunks are left out."""
        keys, documents = self._columns(_DOCUMENTS_OF, chunks)
        return dict(zip(keys, documents, strict=True))

    def boilerplate_among(self, chunks: Collection[int]) -> set[int]:
        """Return those of some passages that are boilerplate."""
        sql = "SELECT value FROM json_each(?) WHERE value IN (SELECT chunk FROM boilerplate)"
        if self._database.row("SELECT 1 FROM boilerplate LIMIT 1") is None:  # as in most
            return set()
        return {key for (key,) in self._database.rows(sql, (_json_array(chunks),))}

    def recognised(self, *, after: int = 0) -> Iterator[tuple[int, int]]:
        """Yield every passage after one with each entity that its extractor recognised in it; by passage."""
        with self._database.read() as db:
            for row in db.execute(_RECOGNISED, (after,)):
                yield row[0], row[1]

    def passage_counts(self, entities: Collection[int]) -> dict[int, int]:
        """Return in how many passages each of some entities was recognised; entities in none are left out."""
        if not entities:
            return {}
        canonical = {shown for _, shown in self._members_of(entities)}
        alone = _json_array([entity for entity in entities if entity not in canonical])
        counts = dict(map(tuple, self._database.rows(_PASSAGE_COUNTS, (alone,))))
        if canonical:
            grouped = self._database.rows(_PASSAGE_COUNTS_OF_GROUPS, (_json_array(canonical),))
            counts |= map(tuple, grouped)
        return counts

    def mentions_of(self, entities: Collection[int], *, limit: int) -> dict[int, list[tuple[int, float]]]:
        """Return the first mentions of each entity: chunk and confidence, at most `limit`, by chunk."""
        found = self._of_each(_MENTIONS_OF, entities, limit)
        return {entity: sorted(rows, key=by_chunk)[:limit] for entity, rows in found.items()}

    def passing_mentions_of(
        self, entities: Collection[int], *, limit: int
    ) -> dict[int, list[tuple[int, float]]]:
        """Return the first mentions of each entity in chunks that are not about it.

        Of a ubiquitous entity only the first 50 mentions are read.
        """
        found = self._of_each(_PASSING_MENTIONS_OF, entities, limit)
        return {entity: sorted(rows, key=by_chunk)[:limit] for entity, rows in found.items()}

    def abouts_of(self, entities: Collection[int], *, limit: int) -> dict[int, list[tuple[int, float]]]:
        """Return chunks that are about each entity: chunk and confidence, at most `limit`, surest first."""
        found = self._of_each(_ABOUTS_OF, entities, limit)
        return {entity: sorted(rows, key=surest)[:limit] for entity, rows in found.items()}

    def _columns(self, sql: str, keys: Collection[int]) -> list[list[Any]]:
        return list(map(json.loads, self._database.row(sql, (_json_array(keys),))))

    def _each(self, sql: str, entities: Collection[int], limit: int) -> list[_Columns]:
        """Return chunks and confidences of each of some entities."""
        if not entities:
            return []
        (text,) = self._database.row(sql, (_json_array(entities), limit))
        return json.loads(text)

    def _members_of(self, entities: Collection[int]) -> list[tuple[int, int]]:
        """Return the other members of the groups of canonical entities, each with the canonical entity."""
        return list(zip(*self._columns(_MEMBERS_OF, entities), strict=True))

    def _of_each(self, sql: str, entities: Collection[int], limit: int) -> dict[int, list[tuple[int, float]]]:
        """Return rows of canonical entities: at most `limit` of each member of their groups."""
        if not entities:
            return {}
        grouped = self._members_of(entities)
        of = dict.fromkeys(entities)
        members = [*of, *(member for member, _ in grouped)]
        found = [list(zip(*columns, strict=True)) for columns in self._each(sql, members, limit)]
        result = dict(zip(of, found, strict=False))
        for (_, canonical), rows in zip(grouped, found[len(of) :], strict=True):
            result[canonical] = result[canonical] + rows
        return result


def by_chunk(row: tuple[int, float]) -> int:
    """Sort key of a link: its chunk."""
    return row[0]


def surest(row: tuple[int, float]) -> tuple[float, int]:
    """Sort key of a link: its confidence, the highest first."""
    return -row[1], row[0]


def _json_array(keys: Collection[int]) -> str:
    return json.dumps(keys if isinstance(keys, list) else list(keys))


class MentionLink(NamedTuple):
    """A mention of a subject in a chunk: its name and place."""

    chunk: int
    entity: int
    start: int
    end: int
    name: str


def places_of_names(chunk: int, text: str, found: Iterable[NameMatch]) -> list[MentionLink]:
    """Return the places of names that are found in a chunk, in their order, longer ones first."""
    ordered = sorted(found, key=lambda match: (match.start, -match.end))
    return [MentionLink(chunk, entity, start, end, text[start:end]) for entity, start, end in ordered]


def first_places(places: Iterable[MentionLink]) -> Iterator[MentionLink]:
    """Yield the first place of each entity; the first outside of longer names, if there is one.

    Args:
        places: those of a chunk, see `places_of_names`.
    """
    inside: dict[int, MentionLink] = {}
    outside: dict[int, MentionLink] = {}
    reach = 0
    for place in places:
        (inside if place.end <= reach else outside).setdefault(place.entity, place)
        reach = max(reach, place.end)
    for place in (inside | outside).values():
        yield place._replace(name=" ".join(place.name.split()))
