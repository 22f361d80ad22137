"""The graph in the store: entities, mentions, subjects and relations.

Rows are written by name (`GraphTable`); questions see the entities of one group (`AliasTable`) as the
canonical one of them (`EntityReader`), and none that a user has hidden.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import chain, groupby, pairwise, repeat, starmap
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from loom_core.knowledge.interface import EntityEdge, EntityNode
from loom_core.knowledge.store.aliases import StatedAlias
from loom_core.knowledge.store.mentions import MentionLink, MentionReader, first_places, places_of_names
from loom_core.knowledge.store.prepared_documents import extraction_columns
from loom_core.knowledge.text.name_matching import NameIndex, inner_names
from loom_core.knowledge.text.surface_forms import name_form, name_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from loom_core.knowledge.model import Extraction
    from loom_core.knowledge.store.prepared_documents import ExtractionColumns
    from loom_core.storage.sql import SQLConnection, SQLRow

__all__ = [
    "ABOUT_TYPE",
    "COMMON",
    "LINK_TYPE",
    "EntityReader",
    "GraphTable",
    "NewName",
]


ABOUT_TYPE, LINK_TYPE = "", "name"
"""Types in `names` of what no extractor recognised: what a passage is about; a name that was looked up."""

# Whether the names of an entity are common words, which titles and headings use, too: of the passages that
# have them, extractors recognised them in less than a fifth. Their links have the confidence 0.
COMMON = """
SELECT COALESCE(
    SUM(uses) >= 10 AND 5 * SUM(CASE type WHEN 'name' THEN 0 ELSE uses END) < SUM(uses), FALSE
) FROM names WHERE entity = e.key AND type != ''
"""
_MISJUDGED = f"""
SELECT e.key, NOT e.common FROM json_each(?) AS j CROSS JOIN entities AS e
WHERE e.key = j.value AND e.common != ({COMMON})
"""

_READ_NEAREST = 500  # mentions of an entity that are looked at for another entity in the same passage
_COMPARED = 8  # passages with both whose text is read

_PASSAGES_OF = """
SELECT DISTINCT m.chunk FROM json_each(?) AS e CROSS JOIN mentions AS m
WHERE m.entity = e.value AND m.confidence > 0 AND m.chunk NOT IN (SELECT chunk FROM boilerplate)
ORDER BY m.chunk
"""
_TOGETHER = """
SELECT COALESCE(s.canonical, m.entity) AS other, COUNT(DISTINCT m.chunk)
FROM json_each(?) AS e CROSS JOIN mentions AS m LEFT JOIN aliases AS s ON s.entity = m.entity
WHERE m.chunk = e.value AND m.type != 'name' AND COALESCE(s.canonical, 1) != 0
GROUP BY other
"""
_BOTH = """
SELECT * FROM (
    SELECT c.key, CASE WHEN a.start < b.start THEN a.start ELSE b.start END AS first,
        CASE WHEN a."end" > b."end" THEN a."end" ELSE b."end" END AS last,
        a.name AS one, b.name AS other, c.text
    FROM (
        SELECT m.* FROM json_each(?1) AS e CROSS JOIN mentions AS m
        WHERE m.entity = e.value AND m.confidence > 0 LIMIT ?3
    ) AS a CROSS JOIN mentions AS b CROSS JOIN chunks AS c
    WHERE b.chunk = a.chunk AND b.entity IN (SELECT value FROM json_each(?2)) AND c.key = a.chunk
) AS found ORDER BY last - first, key LIMIT ?4
"""

_SLICE = 4_000_000  # relations that are grouped at a time, at about 60 bytes each

# Of equally used names the last is the first by name, as in `EntityReader.nodes`.
_NODES = """
SELECT COALESCE(a.canonical, n.entity) AS key, n.name, n.type, n.uses
FROM names AS n LEFT JOIN aliases AS a ON a.entity = n.entity
WHERE COALESCE(a.canonical, 1) != 0
ORDER BY key, n.uses, n.name DESC, n.type DESC
"""
_RELATIONS = """
(
    SELECT COALESCE(s.canonical, subject) AS one, predicate, COALESCE(o.canonical, object) AS other,
        chunk, start, "end", confidence
    FROM relations AS r
    LEFT JOIN aliases AS s ON s.entity = r.subject LEFT JOIN aliases AS o ON o.entity = r.object
) AS c
WHERE one != other AND one != 0 AND other != 0
"""
_EDGES = f"""
SELECT one, predicate, other, COUNT(*), MAX(confidence) FROM {_RELATIONS} AND one % ? = ?
GROUP BY one, predicate, other
"""
_EVIDENCE = f"""
SELECT one, predicate, other, chunk, start, "end" FROM (
    SELECT c.*, ROW_NUMBER() OVER (
        PARTITION BY one, predicate, other ORDER BY confidence DESC, chunk, start, "end"
    ) AS place
    FROM {_RELATIONS}
) AS ranked WHERE place = 1
"""


class RelationEvidence(NamedTuple):
    """A relation between canonical entities, and the span of a chunk that states it."""

    subject: int
    predicate: str
    object: int
    chunk: int
    start: int
    end: int


def _prevailing_type(uses: Iterable[tuple[str, int]]) -> str:
    """Return the type that most mentions have; one without a type of its own decides nothing."""
    counts: Counter[str] = Counter()
    for type_, count in uses:
        if type_ not in {ABOUT_TYPE, LINK_TYPE, "thing"}:
            counts[type_] += count
    return min(counts, key=lambda type_: (-counts[type_], type_), default="thing")


def _recognitions(uses: Iterable[tuple[str, int]]) -> int:
    """Return in how many passages an extractor recognised an entity, from the uses of its names by type."""
    return sum(count for type_, count in uses if type_ not in {ABOUT_TYPE, LINK_TYPE})


def _shortest_span(text: str, one: str, other: str, known: tuple[int, int]) -> tuple[int, int]:
    """Return the shortest span of a text with two names, within a paragraph if there is one.

    Where the text has a name in another form, the known span is returned.
    """
    places = sorted(
        (match.start(), match.end(), name)
        for name in (one, other)
        for match in re.finditer(_spaced(name), text)
    )
    spans = [(a, d) for (a, b, x), (c, d, y) in pairwise(places) if x != y and b <= c]
    return min(spans, key=lambda span: ("\n\n" in text[slice(*span)], span[1] - span[0]), default=known)


def _spaced(name: str) -> str:
    """Return a pattern of a name: a mention has a space where the text may have a line break."""
    return r"\s+".join(map(re.escape, name.split()))


# Both ends of a relation are also mentions or subjects of its chunk, so that relations need no indexes:
# two more random writes for every relation would cost as much as the rest of it.
_NAMES_OF = (
    "SELECT chunk, entity FROM mentions WHERE entity IN (SELECT value FROM json_each(?1)) "
    "UNION SELECT chunk, entity FROM abouts WHERE entity IN (SELECT value FROM json_each(?1))"
)

# One row of JSON instead of many rows, which cost more to step through than to read.
_KEYS_OF = """
SELECT json_group_array(key)
FROM (
    SELECT n.key FROM json_each(?) AS e LEFT JOIN entities AS n ON n.id = e.atom /*postgres ORDER BY e.key*/
) AS found
"""
_SHOWN_NAMES = """
SELECT e.value, n.name, n.uses FROM json_each(?1) AS e CROSS JOIN names AS n
LEFT JOIN aliases AS s ON s.entity = n.entity
WHERE n.entity = e.value AND COALESCE(s.canonical, n.entity) = e.value
UNION ALL
SELECT e.value, n.name, n.uses FROM json_each(?1) AS e CROSS JOIN aliases AS s CROSS JOIN names AS n
WHERE s.canonical = e.value AND s.entity != e.value AND n.entity = s.entity
"""
_CANONICAL_OF = """
SELECT json_group_array(key)
FROM (
    SELECT COALESCE(s.canonical, n.key) AS key
    FROM json_each(?) AS e LEFT JOIN entities AS n ON n.id = e.atom LEFT JOIN aliases AS s ON s.entity = n.key
    /*postgres ORDER BY e.key*/
) AS found
"""
_MENTIONED_IN = """
SELECT json_group_array(m.chunk), json_group_array(m.entity),
    json_group_array(CASE WHEN m.method = 'title' THEN m.start ELSE -1 END)
FROM json_each(?) AS e CROSS JOIN mentions AS m WHERE m.chunk = e.value
"""
_ALL = 1 << 62


class EntityReader(MentionReader):
    """Reads entities and their relations: accepts the keys of any entity, returns canonical ones."""

    def find(self, ids: Sequence[str]) -> dict[str, int]:
        """Return entities by id (`name_key` of a name): those that exist, with their own keys."""
        # Ingest batches ask for thousands: sorted, neighbouring index entries are read together.
        wanted = sorted(ids)
        (keys,) = self._database.row(_KEYS_OF, (json.dumps(wanted),))
        return {id_: key for id_, key in zip(wanted, json.loads(keys), strict=True) if key is not None}

    def find_canonical(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the keys of the canonical entities, by id."""
        wanted = sorted(ids)
        (keys,) = self._database.row(_CANONICAL_OF, (json.dumps(wanted),))
        return {id_: key for id_, key in zip(wanted, json.loads(keys), strict=True) if key}

    def names_of(self, entities: Sequence[int]) -> dict[int, str]:
        """Return the most used name of each entity."""
        if not entities:
            return {}
        found: dict[int, tuple[int, str]] = {}
        for key, name, uses in self._database.rows(_SHOWN_NAMES, (json.dumps([*entities]),)):
            found[key] = min(found.get(key, (1, "")), (-uses, name))
        return {key: name for key, (_, name) in found.items()}

    def spellings(self, entities: Sequence[int]) -> dict[int, str]:
        """Return the most used spelling of each entity's own name, by entity, the most used first."""
        rows = self._database.rows_in(
            "SELECT entity, name, CAST(SUM(uses) AS BIGINT) AS uses FROM names WHERE entity IN ({}) "
            "GROUP BY entity, name ORDER BY uses, name DESC",
            entities,
        )
        found = {row["entity"]: (row["uses"], row["name"]) for row in rows}
        ordered = sorted(found.items(), key=lambda pair: (-pair[1][0], pair[1][1]))
        return {entity: name for entity, (_, name) in ordered}

    def nodes(self, entities: Sequence[int]) -> list[EntityNode]:
        """Return entities as the graph store holds them; keys that are gone are left out."""
        nodes: list[EntityNode] = []
        for key, rows in self._name_rows(entities).items():
            nodes.append(
                EntityNode(
                    key=key,
                    name=rows[-1]["name"],
                    type=_prevailing_type((row["type"], row["uses"]) for row in rows),
                    mentions=_recognitions((row["type"], row["uses"]) for row in rows),
                )
            )
        return nodes

    def edges(self, entities: Sequence[int]) -> list[EntityEdge]:
        """Return relations that touch one of the entities, aggregated over chunks."""
        members = self._members(entities)
        rows = {tuple(row) for end in ("subject", "object") for row in self._relation_rows(end, members)}
        return self._merge(rows)

    def edges_from(self, entities: Sequence[int]) -> list[EntityEdge]:
        """Return relations whose subject is one of the entities."""
        return self._merge(map(tuple, self._relation_rows("subject", self._members(entities))))

    def keys(self, *, after: int = 0, limit: int = 5000) -> list[int]:
        """Return keys of canonical entities, ascending."""
        rows = self._database.rows(
            "SELECT key FROM entities AS e WHERE key > ? "
            "AND NOT EXISTS (SELECT 1 FROM aliases WHERE entity = e.key AND canonical != e.key) "
            "ORDER BY key LIMIT ?",
            (after, limit),
        )
        return [row["key"] for row in rows]

    def own_keys(self, *, after: int, limit: int) -> list[int]:
        """Return keys of all entities, whatever their groups, ascending."""
        rows = self._database.rows(
            "SELECT key FROM entities WHERE key > ? ORDER BY key LIMIT ?", (after, limit)
        )
        return [key for (key,) in rows]

    def highest(self) -> int:
        """Return the highest key that an entity has, or 0."""
        row = self._database.row("SELECT MAX(key) AS key FROM entities")
        return 0 if row is None or row["key"] is None else int(row["key"])

    def mentioned_together(self, entity: int, *, sample: int) -> tuple[int, dict[int, int]]:
        """Return how many passages mention an entity, and how many of them each other entity.

        Args:
            entity: the entity.
            sample: passages that are read. If there are more, an even sample of them is, and its counts are
                extrapolated.
        """
        members = self._members([entity])
        with self._database.read() as db:
            chunks = [chunk for (chunk,) in db.execute(_PASSAGES_OF, (json.dumps(members),))]
            step = len(chunks) // sample + 1
            counts = dict(map(tuple, db.execute(_TOGETHER, (json.dumps(chunks[::step]),))))
        own = set(members)
        return len(chunks), {other: count * step for other, count in counts.items() if other not in own}

    def nearest(self, one: int, other: int, *, limit: int) -> list[tuple[int, int, int]]:
        """Return where two entities are mentioned near each other: chunk, and the shortest span with both.

        Of an entity with more than 500 mentions, some are not looked at.
        """
        counts = self.passage_counts([one, other])
        rare, frequent = sorted((one, other), key=lambda key: counts.get(key, 0))
        members = [json.dumps(self._members([key])) for key in (rare, frequent)]
        rows = self._database.rows(_BOTH, (*members, _READ_NEAREST, _COMPARED))
        found = [
            (row["key"], *_shortest_span(row["text"], row["one"], row["other"], (row["first"], row["last"])))
            for row in rows
        ]
        return sorted(found, key=lambda each: each[2] - each[1])[:limit]

    def evidence(self, edge: EntityEdge, *, limit: int) -> list[tuple[int, int, int]]:
        """Return where a relation was read: chunk, and the span of its text.

        Where no passage states it, as with names that are only together, their nearest mentions are returned.
        """
        rows = self._database.rows(
            f'SELECT r.chunk, r.start, r."end" FROM ({_NAMES_OF}) AS n CROSS JOIN relations AS r '
            "WHERE r.chunk = n.chunk AND r.subject = n.entity AND r.predicate = ?3 "
            "AND r.object IN (SELECT value FROM json_each(?2)) ORDER BY r.confidence DESC, r.chunk LIMIT ?4",
            (
                json.dumps(self._members([edge.subject])),
                json.dumps(self._members([edge.object])),
                edge.predicate,
                limit,
            ),
        )
        found = [(row["chunk"], row["start"], row["end"]) for row in rows]
        return found or self.nearest(edge.subject, edge.object, limit=limit)

    def search(self, name: str, *, limit: int) -> list[int]:
        """Return entities whose names equal, begin with or hold a key, in that order, most used first."""
        key = name_key(name)
        if not key:
            return []
        rows = self._database.rows(
            "SELECT key FROM entities AS e WHERE instr(id, ?) > 0 ORDER BY id != ?, instr(id, ?) != 1, "
            "COALESCE((SELECT SUM(uses) FROM names WHERE entity = e.key), 0) DESC, id LIMIT ?",
            (key, key, key, limit),
        )
        found: list[int] = [row["key"] for row in rows]
        canonical = self.canonical_of(found)
        return list(dict.fromkeys(shown for entity in found if (shown := canonical.get(entity, entity))))

    def counts(self) -> tuple[int, int, int]:
        """Return how many entities, different relations between them, and mentions there are."""
        row = self._database.row(
            "SELECT (SELECT COUNT(*) FROM entities) "
            "- (SELECT COUNT(*) FROM aliases WHERE entity != canonical), "
            f"(SELECT COUNT(*) FROM (SELECT DISTINCT one, predicate, other FROM {_RELATIONS}) AS found), "
            "(SELECT COUNT(*) FROM mentions)"
        )
        return (0, 0, 0) if row is None else (row[0], row[1], row[2])

    def all_nodes(self) -> Iterator[EntityNode]:
        """Yield every entity as `nodes` returns it, by key; 0.3 s for 100,000."""
        with self._database.read() as db:
            for key, rows in groupby(db.execute(_NODES), itemgetter(0)):
                of_entity = list(rows)  # the last one's name is the most used
                type_ = _prevailing_type((used, uses) for _, _, used, uses in of_entity)
                mentions = _recognitions((used, uses) for _, _, used, uses in of_entity)
                yield EntityNode(key, of_entity[-1][1], type_, mentions)

    def all_edges(self) -> Iterator[EntityEdge]:
        """Yield every relation as `edges_from` returns it; 0.3 s for 100,000 rows."""
        with self._database.read() as db:
            (count,) = db.execute("SELECT COUNT(*) FROM relations").fetchone()
            slices = count // _SLICE + 1
            for number in range(slices):
                yield from starmap(EntityEdge, db.execute(_EDGES, (slices, number)))

    def all_evidence(self) -> Iterator[RelationEvidence]:
        """Yield the surest evidence of each relation of `all_edges`."""
        with self._database.read() as db:
            for row in db.execute(_EVIDENCE):
                yield RelationEvidence(*row)

    def _members(self, entities: Sequence[int]) -> list[int]:
        """Return the entities with all members of their groups."""
        canonical = set(self.canonical_of(entities).values()) - {0}
        grouped = self.aliases.members_of(sorted(canonical)) if canonical else {}
        return sorted({*entities}.union(*grouped.values()))

    def _name_rows(self, entities: Sequence[int]) -> dict[int, list[SQLRow]]:
        """Return names with types and uses by canonical entity, sorted by key; the least used name first."""
        members = self._members(entities)
        canonical = self.canonical_of(members)
        found: dict[int, list[SQLRow]] = {}
        for row in self._database.rows_in(
            "SELECT entity, name, type, uses FROM names WHERE entity IN ({})", members
        ):
            entity: int = row["entity"]
            if shown := canonical.get(entity, entity):
                found.setdefault(shown, []).append(row)
        for rows in found.values():  # ties end with the name that is first in the alphabet
            rows.sort(key=itemgetter("name", "type"), reverse=True)
            rows.sort(key=itemgetter("uses"))
        return dict(sorted(found.items()))

    def _relation_rows(self, end: str, members: Sequence[int]) -> list[SQLRow]:
        """Return relations by name that have one of the entities at an end: with support and confidence."""
        return self._database.rows(
            "SELECT subject, predicate, object, COUNT(*) AS support, MAX(r.confidence) AS confidence "
            f"FROM ({_NAMES_OF}) AS n CROSS JOIN relations AS r "
            f"WHERE r.chunk = n.chunk AND r.{end} = n.entity "
            "GROUP BY subject, predicate, object",
            (json.dumps(members),),
        )

    def _merge(self, rows: Iterable[tuple[int, str, int, int, float]]) -> list[EntityEdge]:
        """Merge relations of canonical entities; drop self-relations."""
        rows = list(rows)
        ends = {end for subject, _, object_, _, _ in rows for end in (subject, object_)}
        canonical = self.canonical_of(sorted(ends))
        support: Counter[tuple[int, str, int]] = Counter()
        confidence: dict[tuple[int, str, int], float] = {}
        for subject, predicate, object_, count, sure in rows:
            edge = canonical.get(subject, subject), predicate, canonical.get(object_, object_)
            if edge[0] != edge[2] and edge[0] and edge[2]:
                support[edge] += count
                confidence[edge] = max(sure, confidence.get(edge, 0.0))
        return [EntityEdge(*edge, support=n, confidence=confidence[edge]) for edge, n in support.items()]


# A first phrase is too unsure a subject to search all chunks for its name.
_SUBJECT = "SELECT 1 FROM abouts WHERE source != 'first_phrase' AND entity = "


class NewName(NamedTuple):
    """A new subject whose name is still to be searched for in the chunks up to `newest`."""

    entity: int
    id: str
    newest: int


class GraphTable(EntityReader):
    """The graph of the store. An entity is deleted when no mention, subject or relation refers to it."""

    def add(self, extractions: Sequence[tuple[int, Extraction]]) -> set[int]:
        """Add the findings in chunks; see `add_columns`."""
        return self.add_columns(
            [(chunk, extraction_columns(extraction)) for chunk, extraction in extractions]
        )

    def add_columns(self, chunks: Sequence[tuple[int, ExtractionColumns]]) -> set[int]:
        """Add the findings in chunks; part of the transaction that writes the chunks.

        Returns:
            Keys of the entities whose group changed, and of their canonical entities, old and new.
            They may be in other chunks.
        """
        with self._database.write() as db:
            keys, decided = self._entity_keys(db, chunks)
            self._note_new_names(db, chunks, keys)
            key_of = keys.__getitem__
            mentions = [
                row
                for chunk, (found, *_) in chunks
                for row in zip(repeat(chunk), map(key_of, found.entity), *found[1:])
            ]
            abouts = [
                row
                for chunk, (_, found, *_) in chunks
                for row in zip(repeat(chunk), map(key_of, found.entity), *found[1:])
            ]
            relations = [
                row
                for chunk, (_, _, found, _) in chunks
                for row in zip(
                    repeat(chunk),
                    map(key_of, found.subject),
                    found.predicate,
                    map(key_of, found.object),
                    *found[3:],
                )
            ]
            db.executemany("INSERT INTO mentions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", mentions)
            db.executemany("INSERT INTO abouts VALUES (?, ?, ?, ?, ?)", abouts)
            db.executemany("INSERT INTO relations VALUES (?, ?, ?, ?, ?, ?, ?, ?)", relations)
            uses = Counter(map(itemgetter(1, 4, 5), mentions))
            uses.update((entity, name, ABOUT_TYPE) for _, entity, _, name, _ in abouts)
            self._count(db, uses)
            stated = self.aliases.add(
                StatedAlias(*row)
                for chunk, (*_, found) in chunks
                for row in zip(repeat(chunk), map(key_of, found.entity), map(key_of, found.other), *found[2:])
            )
            return self.aliases.regroup(stated | decided)

    def add_links(self, links: Iterable[MentionLink]) -> set[int]:
        """Add mentions found by searching for known names: the first in a chunk that has no other.

        One that was found before is moved: which place it has depends on the other names.

        Returns:
            Keys of the entities that got a new mention, or a new place.
        """
        found: dict[tuple[int, int], tuple[int, int, str]] = {}
        for chunk, entity, start, end, name in links:
            found.setdefault((chunk, entity), (start, end, name))
        with self._database.write() as db:
            moved: list[MentionLink] = []
            for chunk, entity, linked in self._read_mentions(db, sorted({chunk for chunk, _ in found})):
                place = found.pop((chunk, entity), None)
                if place is not None and 0 <= linked != place[0]:
                    moved.append(MentionLink(chunk, entity, *place))
            self._move_links(db, moved)
            common = self._common(db, sorted({entity for _, entity in found}))
            db.executemany(
                "INSERT INTO mentions VALUES (?, ?, ?, ?, ?, ?, 'title', ?)",
                [
                    (*ends, *place, LINK_TYPE, 0.0 if ends[1] in common else 1.0)
                    for ends, place in found.items()
                ],
            )
            self._count(db, Counter((entity, name, LINK_TYPE) for (_, entity), (*_, name) in found.items()))
        return {entity for _, entity in found} | {link.entity for link in moved}

    def _move_links(self, db: SQLConnection, links: Sequence[MentionLink]) -> None:
        """Move mentions that were found by searching for names to other places in their chunks."""
        uses: Counter[tuple[int, str, str]] = Counter()
        for chunk, entity, start, end, name in links:
            which = "WHERE chunk = ? AND entity = ? AND method = 'title'"
            row = db.execute(f"SELECT name FROM mentions {which}", (chunk, entity)).fetchone()
            uses[entity, row["name"], LINK_TYPE] -= 1
            uses[entity, name, LINK_TYPE] += 1
            db.execute(
                f'UPDATE mentions SET start = ?, "end" = ?, name = ? {which}',
                (start, end, name, chunk, entity),
            )
        self._count(db, uses)

    def _read_mentions(self, db: SQLConnection, chunks: Sequence[int]) -> Iterable[tuple[int, int, int]]:
        """Return chunk and entity of all mentions in some chunks; and their start, or -1 if not linked."""
        columns = db.execute(_MENTIONED_IN, (json.dumps(chunks),)).fetchone()
        return zip(*map(json.loads, columns), strict=True)

    def remove(self, chunks: Sequence[int]) -> set[int]:
        """Remove the findings in chunks; part of the transaction that removes them.

        Returns:
            Keys of the affected entities, including deleted ones.
        """
        with self._database.write() as db:
            uses: Counter[tuple[int, str, str]] = Counter()
            touched: set[int] = set()
            for table, type_ in (("mentions", "type"), ("abouts", f"'{ABOUT_TYPE}'")):
                sql = f"SELECT entity, name, {type_} AS type FROM {table} WHERE chunk IN ({{}})"
                for row in self._database.rows_in(sql, chunks):
                    uses[row["entity"], row["name"], row["type"]] -= 1
            sql = "SELECT DISTINCT subject, object FROM relations WHERE chunk IN ({})"
            for row in self._database.rows_in(sql, chunks):
                touched |= {row["subject"], row["object"]}
            sql = "SELECT DISTINCT entity FROM abouts WHERE chunk IN ({})"
            subjects = {row["entity"] for row in self._database.rows_in(sql, chunks)}
            for table in ("mentions", "abouts", "relations"):
                db.executemany(f"DELETE FROM {table} WHERE chunk = ?", [(chunk,) for chunk in chunks])
            unlinked, moved = self._unlink(db, subjects)
            uses.update(unlinked)
            self._count(db, uses)
            touched |= {entity for entity, _, _ in uses} | moved
            grouped = self.aliases.remove(chunks) | self.aliases.canonical_of(sorted(touched)).keys()
            grouped |= set(self._members(sorted(grouped)))
            self._delete_unsupported(db, touched)
            return touched | self.aliases.regroup(grouped)

    def subjects(self) -> list[tuple[int, str]]:
        """Return every entity that is the subject of a title, heading or definition: key and id."""
        # For a million subjects this takes half the time of one EXISTS per entity.
        rows = self._database.rows(
            "SELECT key, id FROM entities "
            "WHERE key IN (SELECT entity FROM abouts WHERE source != 'first_phrase')"
        )
        return [(key, id_) for key, id_ in rows]

    def still_subjects(self, entities: Sequence[int]) -> set[int]:
        """Return those of the entities that are the subject of a title, heading or definition."""
        rows = self._database.rows_in(
            f"SELECT key FROM entities AS e WHERE key IN ({{}}) AND EXISTS ({_SUBJECT}e.key)", entities
        )
        return {row["key"] for row in rows}

    def subjects_since(self, entities: Sequence[int], chunk: int) -> set[int]:
        """Return those of the entities that have been subjects since before a chunk was written."""
        rows = self._database.rows_in(
            "SELECT DISTINCT entity FROM abouts WHERE entity IN ({}) "
            "AND source != 'first_phrase' AND chunk <= ?",
            entities,
            (chunk,),
        )
        return {row["entity"] for row in rows}

    def new_names(self, *, limit: int = -1, since: int = 0) -> list[NewName]:
        """Return subjects whose names are still to be searched for in earlier chunks, oldest first.

        Args:
            limit: maximum number; below 0, all.
            since: leave out names that were noted while `link_watermark` was below this.
        """
        rows = self._database.rows(
            "SELECT entity, id, newest FROM new_names CROSS JOIN entities "
            "WHERE key = entity AND newest >= ? ORDER BY entity LIMIT ?",
            (since, _ALL if limit < 0 else limit),
        )
        return list(map(NewName._make, rows))

    def new_name_count(self) -> int:
        """Return how many new names there are."""
        row = self._database.row("SELECT COUNT(*) AS n FROM new_names")
        return 0 if row is None else int(row["n"])

    def link_watermark(self) -> int:
        """Return the watermark of entity linking: the last chunk searched for all names but new ones."""
        row = self._database.row("SELECT linked FROM coverage")
        return 0 if row is None else int(row["linked"])

    def advance_link_watermark(self, chunk: int) -> None:
        """Advance the watermark of entity linking to a chunk."""
        with self._database.write() as db:
            db.execute("UPDATE coverage SET linked = ?", (chunk,))

    def texts(self, chunks: Sequence[int]) -> list[tuple[int, str]]:
        """Return the texts of chunks, to search them for names; those that are gone are left out."""
        rows = self._database.rows_in("SELECT key, text FROM chunks WHERE key IN ({})", chunks)
        return list(map(tuple, rows))

    def texts_after(self, chunk: int, *, limit: int) -> list[tuple[int, str]]:
        """Return the texts of the next chunks after one, in their order."""
        sql = "SELECT key, text FROM chunks WHERE key > ? ORDER BY key LIMIT ?"
        return list(map(tuple, self._database.rows(sql, (chunk, limit))))

    def forget_new_names(self, entities: Iterable[int]) -> None:
        """Remove new names, as all chunks have been searched for them."""
        with self._database.write() as db:
            db.executemany("DELETE FROM new_names WHERE entity = ?", [(entity,) for entity in entities])

    def _unlink(
        self, db: SQLConnection, subjects: set[int]
    ) -> tuple[dict[tuple[int, str, str], int], set[int]]:
        """Drop the mentions that exist only because the name was a subject.

        Returns:
            Changes of the counts of names, and the entities with other links that were moved.
        """
        uses: Counter[tuple[int, str, str]] = Counter()
        moved: set[int] = set()
        for entity in subjects:
            if db.execute(f"{_SUBJECT}? LIMIT 1", (entity,)).fetchone():
                continue
            db.execute("DELETE FROM new_names WHERE entity = ?", (entity,))
            moved |= self._move_inner_names(db, entity)
            rows = db.execute(
                "DELETE FROM mentions WHERE entity = ? AND method = 'title' RETURNING name, type", (entity,)
            ).fetchall()
            for row in rows:
                uses[entity, row["name"], row["type"]] -= 1
        return uses, moved

    def _move_inner_names(self, db: SQLConnection, entity: int) -> set[int]:
        """Move links to names inside that of a former subject to the places that they have without it.

        Returns:
            Keys of the entities whose links were moved.
        """
        (id_,) = db.execute("SELECT id FROM entities WHERE key = ?", (entity,)).fetchone()
        inner = self.still_subjects(sorted(self.find(sorted(inner_names(id_))).values()))
        if not inner:
            return set()
        sql = (
            "SELECT DISTINCT m.chunk FROM mentions AS outer_ CROSS JOIN mentions AS m "
            "WHERE m.entity IN ({}) AND outer_.entity = ? AND m.chunk = outer_.chunk AND m.method = 'title'"
        )
        chunks = sorted({row["chunk"] for row in self._database.rows_in(sql, sorted(inner), (entity,))})
        sql = (
            "SELECT DISTINCT key, id FROM mentions CROSS JOIN entities AS e "
            f"WHERE chunk IN ({{}}) AND e.key = entity AND EXISTS ({_SUBJECT}e.key)"
        )
        names = NameIndex()
        for row in self._database.rows_in(sql, chunks):
            names.add(row["key"], row["id"])
        return self.add_links(
            link
            for chunk, text in self.texts(chunks)
            for link in first_places(places_of_names(chunk, text, names.find(text)))
            if link.entity in inner
        )

    def _delete_unsupported(self, db: SQLConnection, entities: Collection[int]) -> None:
        db.executemany(  # without mentions and subjects, there is no relation either
            "DELETE FROM entities WHERE key = ? "
            "AND NOT EXISTS (SELECT 1 FROM names WHERE entity = entities.key) "
            "AND NOT EXISTS (SELECT 1 FROM mentions WHERE entity = entities.key) "
            "AND NOT EXISTS (SELECT 1 FROM abouts WHERE entity = entities.key)",
            [(entity,) for entity in entities],
        )

    def _note_new_names(
        self, db: SQLConnection, chunks: Sequence[tuple[int, ExtractionColumns]], keys: dict[str, int]
    ) -> None:
        subjects = {
            keys[id_]
            for _, found in chunks
            for id_, source in zip(found.abouts.entity, found.abouts.source, strict=True)
            if source != "first_phrase"
        }
        new = subjects - self.still_subjects(sorted(subjects))
        linked = self.link_watermark()
        db.executemany(
            "INSERT INTO new_names (entity, newest) VALUES (?, ?) ON CONFLICT DO NOTHING",
            [(entity, linked) for entity in sorted(new)],
        )

    def _entity_keys(
        self, db: SQLConnection, chunks: Sequence[tuple[int, ExtractionColumns]]
    ) -> tuple[dict[str, int], set[int]]:
        """Return keys of the entities that are found in chunks; new ones are written.

        Returns:
            The keys by id, and those of new entities with earlier decisions of users.
        """
        ids = set(chain.from_iterable(found.mentions.entity for _, found in chunks))
        ids.update(chain.from_iterable(found.abouts.entity for _, found in chunks))
        # The ends of relations and aliases are among them.
        wanted = sorted(ids)
        keys = self.find(wanted)
        first = self._next_key(db)
        new = list(enumerate((id_ for id_ in wanted if id_ not in keys), start=first))
        db.executemany(
            "INSERT INTO entities (key, id, form) VALUES (?, ?, ?)",
            [(key, id_, name_form(id_)) for key, id_ in new],
        )
        keys.update((id_, key) for key, id_ in new)
        return keys, self.aliases.note_new([key for key, _ in new])

    @staticmethod
    def _next_key(db: SQLConnection) -> int:
        """Return the next key that was never used; stable until the transaction ends."""
        row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entities'").fetchone()
        return 1 if row is None else int(row["seq"]) + 1

    def _common(self, db: SQLConnection, entities: Sequence[int]) -> set[int]:
        """Return those of some entities whose names are common words."""
        sql = "SELECT n.key FROM json_each(?) AS e CROSS JOIN entities AS n WHERE n.key = value AND common"
        return {key for (key,) in db.execute(sql, (json.dumps(entities),))}

    def judge(self, entities: Sequence[int]) -> None:
        """Judge again whether the names of some entities are common words; part of a transaction.

        The judgement depends on the counts of names only, not on the order in which documents came.
        """
        with self._database.write() as db:
            changed = [(common, key) for key, common in db.execute(_MISJUDGED, (json.dumps(entities),))]
            db.executemany("UPDATE entities SET common = ? WHERE key = ?", changed)
            db.executemany(
                "UPDATE mentions SET confidence = ? WHERE entity = ? AND type = 'name'",
                [(float(not common), key) for common, key in changed],
            )

    def _count(self, db: SQLConnection, uses: Counter[tuple[int, str, str]]) -> None:
        """Change the counts of names by so much."""
        db.executemany(
            "INSERT INTO names VALUES (?, ?, ?, ?) "
            "ON CONFLICT (entity, name, type) DO UPDATE SET uses = names.uses + excluded.uses",
            [(*identity, change) for identity, change in sorted(uses.items(), key=itemgetter(0))],
        )
        db.executemany(
            "DELETE FROM names WHERE entity = ? AND name = ? AND type = ? AND uses <= 0",
            [identity for identity, change in uses.items() if change < 0],
        )
        self.judge(sorted({entity for entity, _, _ in uses}))
