"""Entities and relations as questions see them: those under several names as one.

Rows are written by name (`GraphTable`); here the entities of a group (`AliasTable`) are read as the one that
stands for it.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import groupby, starmap
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from loom_core.knowledge.interface import EntityEdge, EntityNode
from loom_core.knowledge.store.aliases import AliasTable
from loom_core.knowledge.text.surface_forms import name_key

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from loom_core.knowledge.model import AboutSource
    from loom_core.storage import Database

__all__ = ["AboutRow", "EntityReader", "Incidence", "MentionRow", "RelationEvidence"]

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


_SLICE = 4_000_000  # relations that are grouped at a time, which takes some 60 bytes each

# Of equally used names the last is the first by name, as in `EntityReader.nodes`.
_NODES = """
SELECT COALESCE(a.canonical, n.entity) AS key, n.name, n.type, n.uses
FROM names AS n LEFT JOIN aliases AS a ON a.entity = n.entity
ORDER BY key, n.uses, n.name DESC, n.type DESC
"""
_EDGES = """
SELECT COALESCE(s.canonical, r.subject) AS one, r.predicate, COALESCE(o.canonical, r.object) AS other,
    COUNT(*), MAX(r.confidence)
FROM relations AS r
LEFT JOIN aliases AS s ON s.entity = r.subject LEFT JOIN aliases AS o ON o.entity = r.object
WHERE one % ?1 = ?2 AND one != other
GROUP BY one, r.predicate, other
"""
# Beside a MAX, SQLite gives the columns of the row that has it.
_EVIDENCE = """
SELECT COALESCE(s.canonical, r.subject) AS one, r.predicate, COALESCE(o.canonical, r.object) AS other,
    r.chunk, r.start, r.end, MAX(r.confidence * 1e9 - r.chunk)
FROM relations AS r
LEFT JOIN aliases AS s ON s.entity = r.subject LEFT JOIN aliases AS o ON o.entity = r.object
WHERE one != other
GROUP BY one, r.predicate, other
"""


class RelationEvidence(NamedTuple):
    """A relation between canonical entities, and the stretch of a chunk that says it."""

    subject: int
    predicate: str
    object: int
    chunk: int
    start: int
    end: int


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


# Whatever a relation connects is also mentioned in its chunk, or what that is about, so that relations need
# no indexes of their own: two more to be written at random places for every relation cost as much as all
# the rest of it.
_NAMING = (
    "SELECT chunk, entity FROM mentions WHERE entity IN (SELECT value FROM json_each(?1)) "
    "UNION SELECT chunk, entity FROM abouts WHERE entity IN (SELECT value FROM json_each(?1))"
)

# One row of JSON instead of many rows, see `incidence`.
_KEYS_OF = """
SELECT json_group_array(key)
FROM (SELECT n.key FROM json_each(?) AS e LEFT JOIN entities AS n ON n.id = e.value)
"""


class EntityReader(Incidence):
    """Reads entities and what connects them: keys of any are given, those of canonical ones returned."""

    def find(self, ids: Sequence[str]) -> dict[str, int]:
        """Entities by id (`name_key` of a name): those that exist, with their own keys."""
        # Batches of an ingest ask for thousands: in order, what the index has side by side is met together.
        wanted = sorted(ids)
        with self._database.read() as db:
            (keys,) = db.execute(_KEYS_OF, (json.dumps(wanted),)).fetchone()
        return {id_: key for id_, key in zip(wanted, json.loads(keys), strict=True) if key is not None}

    def find_canonical(self, ids: Sequence[str]) -> dict[str, int]:
        """The same with the keys of the entities that stand for them."""
        found = self.find(ids)
        canonical = self.canonical_of(sorted(set(found.values())))
        return {id_: canonical.get(key, key) for id_, key in found.items()}

    def names_of(self, entities: Sequence[int]) -> dict[int, str]:
        """The name of each entity that is used most, of all that it has."""
        wanted = set(entities)
        return {key: rows[-1]["name"] for key, rows in self._name_rows(entities).items() if key in wanted}

    def spellings(self, entities: Sequence[int]) -> dict[int, str]:
        """The spelling of each entity's own name that is used most, by entity, the most used first."""
        rows = self._database.rows_in(
            "SELECT entity, name, SUM(uses) AS uses FROM names WHERE entity IN ({}) GROUP BY entity, name "
            "ORDER BY uses, name DESC",
            entities,
        )
        found = {row["entity"]: (row["uses"], row["name"]) for row in rows}
        ordered = sorted(found.items(), key=lambda pair: (-pair[1][0], pair[1][1]))
        return {entity: name for entity, (_, name) in ordered}

    def nodes(self, entities: Sequence[int]) -> list[EntityNode]:
        """Entities as the graph store holds them; keys that are gone are left out."""
        nodes: list[EntityNode] = []
        for key, rows in self._name_rows(entities).items():
            types = [row["type"] for row in rows if row["type"] != "thing"]
            nodes.append(
                EntityNode(
                    key=key,
                    name=rows[-1]["name"],
                    type=types[-1] if types else "thing",
                    mentions=sum(row["uses"] for row in rows),
                )
            )
        return nodes

    def edges(self, entities: Sequence[int]) -> list[EntityEdge]:
        """Relations that touch one of the entities, those of several chunks as one."""
        members = self._members(entities)
        rows = {tuple(row) for end in ("subject", "object") for row in self._relation_rows(end, members)}
        return self._merged(rows)

    def edges_from(self, entities: Sequence[int]) -> list[EntityEdge]:
        """Relations whose subject is one of the entities."""
        return self._merged(map(tuple, self._relation_rows("subject", self._members(entities))))

    def keys(self, *, after: int = 0, limit: int = 5000) -> list[int]:
        """Keys of canonical entities, ascending."""
        rows = self._database.rows(
            "SELECT key FROM entities AS e WHERE key > ? "
            "AND NOT EXISTS (SELECT 1 FROM aliases WHERE entity = e.key AND canonical != e.key) "
            "ORDER BY key LIMIT ?",
            (after, limit),
        )
        return [row["key"] for row in rows]

    def highest(self) -> int:
        """The highest key that an entity has, or 0."""
        row = self._database.row("SELECT MAX(key) AS key FROM entities")
        return 0 if row is None or row["key"] is None else int(row["key"])

    def evidence(
        self, subject: int, predicate: str, object_: int, *, limit: int
    ) -> list[tuple[int, int, int]]:
        """Where a relation was read: chunk, and the stretch of its text."""
        rows = self._database.rows(
            f"SELECT r.chunk, r.start, r.end FROM ({_NAMING}) AS n "
            "CROSS JOIN relations AS r ON r.chunk = n.chunk AND r.subject = n.entity "
            "WHERE r.object IN (SELECT value FROM json_each(?2)) AND r.predicate = ?3 "
            "ORDER BY r.confidence DESC, r.chunk LIMIT ?4",
            (json.dumps(self._members([subject])), json.dumps(self._members([object_])), predicate, limit),
        )
        return [(row["chunk"], row["start"], row["end"]) for row in rows]

    def search(self, name: str, *, limit: int) -> list[int]:
        """Entities with a name that is, begins with or holds a name's key, in that order, most used first."""
        key = name_key(name)
        if not key:
            return []
        rows = self._database.rows(
            "SELECT key FROM entities AS e WHERE instr(id, ?) > 0 ORDER BY id != ?, instr(id, ?) != 1, "
            "(SELECT SUM(uses) FROM names WHERE entity = e.key) DESC, id LIMIT ?",
            (key, key, key, limit),
        )
        found: list[int] = [row["key"] for row in rows]
        canonical = self.canonical_of(found)
        return list(dict.fromkeys(canonical.get(entity, entity) for entity in found))

    def counts(self) -> tuple[int, int, int]:
        """How many entities, different relations between them, and mentions there are."""
        row = self._database.row(
            "SELECT (SELECT COUNT(*) FROM entities) "
            "- (SELECT COUNT(*) FROM aliases WHERE entity != canonical), "
            "(SELECT COUNT(*) FROM (SELECT DISTINCT COALESCE(s.canonical, subject) AS one, predicate, "
            "COALESCE(o.canonical, object) AS other FROM relations AS r LEFT JOIN aliases AS s "
            "ON s.entity = r.subject LEFT JOIN aliases AS o ON o.entity = r.object) WHERE one != other), "
            "(SELECT COUNT(*) FROM mentions)"
        )
        return (0, 0, 0) if row is None else (row[0], row[1], row[2])

    def all_nodes(self) -> Iterator[EntityNode]:
        """Every entity that `nodes` would give, by key: 0.3 s for 100,000."""
        with self._database.read() as db:
            for key, rows in groupby(db.execute(_NODES), itemgetter(0)):
                name, type_, mentions = "", "thing", 0
                for _, name, used, uses in rows:  # noqa: B007 - the last one's name is the most used
                    mentions += uses
                    if used != "thing":
                        type_ = used
                yield EntityNode(key, name, type_, mentions)

    def all_edges(self) -> Iterator[EntityEdge]:
        """Every relation that `edges_from` would give: 0.3 s for 100,000 that are read."""
        with self._database.read() as db:
            (count,) = db.execute("SELECT COUNT(*) FROM relations").fetchone()
            slices = count // _SLICE + 1
            for number in range(slices):
                yield from starmap(EntityEdge, db.execute(_EDGES, (slices, number)))

    def all_evidence(self) -> Iterator[RelationEvidence]:
        """Where each relation that `all_edges` gives is said most surely."""
        with self._database.read() as db:
            for row in db.execute(_EVIDENCE):
                yield RelationEvidence(*row[:6])

    def _members(self, entities: Sequence[int]) -> list[int]:
        """The entities, and all that are the same as one of them."""
        canonical = set(self.canonical_of(entities).values())
        grouped = self.aliases.members_of(sorted(canonical)) if canonical else {}
        return sorted({*entities}.union(*grouped.values()))

    def _name_rows(self, entities: Sequence[int]) -> dict[int, list[sqlite3.Row]]:
        """Names with their types and uses by canonical entity, the least used first, in the order of keys."""
        members = self._members(entities)
        canonical = self.canonical_of(members)
        found: dict[int, list[sqlite3.Row]] = {}
        for row in self._database.rows_in(
            "SELECT entity, name, type, uses FROM names WHERE entity IN ({})", members
        ):
            entity: int = row["entity"]
            found.setdefault(canonical.get(entity, entity), []).append(row)
        for rows in found.values():  # of equally used ones the last is the first by name
            rows.sort(key=itemgetter("name", "type"), reverse=True)
            rows.sort(key=itemgetter("uses"))
        return dict(sorted(found.items()))

    def _relation_rows(self, end: str, members: Sequence[int]) -> list[sqlite3.Row]:
        """Relations by name that have one of the entities at an end: with support and confidence."""
        return self._database.rows(
            "SELECT subject, predicate, object, COUNT(*) AS support, MAX(r.confidence) AS confidence "
            f"FROM ({_NAMING}) AS n CROSS JOIN relations AS r ON r.chunk = n.chunk AND r.{end} = n.entity "
            "GROUP BY subject, predicate, object",
            (json.dumps(members),),
        )

    def _merged(self, rows: Iterable[tuple[int, str, int, int, float]]) -> list[EntityEdge]:
        """Relations between canonical entities; what relates an entity to itself is left out."""
        rows = list(rows)
        ends = {end for subject, _, object_, _, _ in rows for end in (subject, object_)}
        canonical = self.canonical_of(sorted(ends))
        support: Counter[tuple[int, str, int]] = Counter()
        confidence: dict[tuple[int, str, int], float] = {}
        for subject, predicate, object_, count, sure in rows:
            edge = canonical.get(subject, subject), predicate, canonical.get(object_, object_)
            if edge[0] != edge[2]:
                support[edge] += count
                confidence[edge] = max(sure, confidence.get(edge, 0.0))
        return [EntityEdge(*edge, support=n, confidence=confidence[edge]) for edge, n in support.items()]
