"""Entities, mentions, subjects and relations in the record."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

from loom_core.knowledge.interface import EntityEdge, EntityNode
from loom_core.knowledge.record.incidence import AboutRow, Incidence, MentionRow
from loom_core.knowledge.text import name_key

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Sequence

    from loom_core.knowledge.model import Extraction

__all__ = ["AboutRow", "GraphTable", "MentionRow"]

# A first phrase is too unsure a subject for its name to be looked for everywhere.
_SUBJECT = "SELECT 1 FROM abouts WHERE source != 'first_phrase' AND entity = "


class GraphTable(Incidence):
    """The graph of the record. An entity lives while a mention, a subject or a relation needs it."""

    def add(self, extractions: Sequence[tuple[int, Extraction]]) -> set[int]:
        """Write what was found in chunks; part of the transaction that writes the chunks.

        Returns:
            Keys of the entities it touches.
        """
        with self._database.write() as db:
            keys = self._entity_keys(db, _names(extractions))
            self._note_new_names(db, extractions, keys)
            uses: Counter[tuple[int, str, str]] = Counter()
            for chunk, extraction in extractions:
                self._add_one(db, chunk, extraction, keys, uses)
            _count(db, uses)
            return {entity for entity, _, _ in uses}

    def add_links(self, links: Iterable[tuple[int, int, int, int, str]]) -> set[int]:
        """Write mentions found by looking for known names: chunk, entity, start, end, name.

        A mention that an extractor found at the same place stays as it is.

        Returns:
            Keys of the entities that got a new mention.
        """
        with self._database.write() as db:
            uses: Counter[tuple[int, str, str]] = Counter()
            for chunk, entity, start, end, name in links:
                cursor = db.execute(
                    "INSERT OR IGNORE INTO mentions VALUES (?, ?, ?, ?, ?, 'thing', 'title', 1.0)",
                    (chunk, entity, start, end, name),
                )
                if cursor.rowcount:
                    uses[entity, name, "thing"] += 1
            _count(db, uses)
            return {entity for entity, _, _ in uses}

    def remove(self, chunks: Sequence[int]) -> set[int]:
        """Take back what was found in chunks; part of the transaction that removes them.

        Returns:
            Keys of the entities it touches, those that are gone with it included.
        """
        with self._database.write() as db:
            uses: Counter[tuple[int, str, str]] = Counter()
            touched: set[int] = set()
            for table, type_ in (("mentions", "type"), ("abouts", "'thing'")):
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
            uses.update(self._unlink(db, subjects))
            _count(db, uses)
            touched |= {entity for entity, _, _ in uses}
            self._bury(db, touched)
            return touched

    def find(self, ids: Sequence[str]) -> dict[str, int]:
        """Entities by id (`name_key` of a name): those that exist, with their keys."""
        rows = self._database.rows_in("SELECT id, key FROM entities WHERE id IN ({})", ids)
        return {row["id"]: row["key"] for row in rows}

    def names_of(self, entities: Sequence[int]) -> dict[int, str]:
        """The spelling of each entity that is used most."""
        rows = self._database.rows_in(
            "SELECT entity, name FROM names WHERE entity IN ({}) ORDER BY entity, uses, name DESC", entities
        )
        return {row["entity"]: row["name"] for row in rows}

    def nodes(self, entities: Sequence[int]) -> list[EntityNode]:
        """Entities as the graph store holds them; keys that are gone are left out."""
        rows = self._database.rows_in(
            "SELECT entity, name, type, uses FROM names WHERE entity IN ({}) "
            # the last row of an entity wins: most used, and a real type before `thing`
            "ORDER BY entity, uses, name DESC, type = 'thing' DESC",
            entities,
        )
        names = {row["entity"]: row["name"] for row in rows}
        types = {row["entity"]: row["type"] for row in sorted(rows, key=lambda r: r["type"] != "thing")}
        uses: Counter[int] = Counter()
        for row in rows:
            uses[row["entity"]] += row["uses"]
        return [
            EntityNode(key=key, name=name, type=types[key], mentions=uses[key]) for key, name in names.items()
        ]

    def edges(self, entities: Sequence[int]) -> list[EntityEdge]:
        """Relations that touch one of the entities, those of several chunks as one."""
        into = self._edges("object", entities)
        return list((self._edges("subject", entities) | into).values())

    def edges_from(self, entities: Sequence[int]) -> list[EntityEdge]:
        """Relations whose subject is one of the entities."""
        return list(self._edges("subject", entities).values())

    def keys(self, *, after: int = 0, limit: int = 5000) -> list[int]:
        """Keys of entities, ascending."""
        rows = self._database.rows(
            "SELECT key FROM entities WHERE key > ? ORDER BY key LIMIT ?", (after, limit)
        )
        return [row["key"] for row in rows]

    def evidence(
        self, subject: int, predicate: str, object_: int, *, limit: int
    ) -> list[tuple[int, int, int]]:
        """Where a relation was read: chunk, and the stretch of its text."""
        rows = self._database.rows(
            "SELECT chunk, start, end FROM relations WHERE subject = ? AND object = ? AND predicate = ? "
            "ORDER BY confidence DESC, chunk LIMIT ?",
            (subject, object_, predicate, limit),
        )
        return [(row["chunk"], row["start"], row["end"]) for row in rows]

    def search(self, name: str, *, limit: int) -> list[int]:
        """Entities whose id is, begins with or holds a name's key, in that order, most used first."""
        key = name_key(name)
        if not key:
            return []
        rows = self._database.rows(
            "SELECT key FROM entities AS e WHERE instr(id, ?) > 0 ORDER BY id != ?, instr(id, ?) != 1, "
            "(SELECT SUM(uses) FROM names WHERE entity = e.key) DESC, id LIMIT ?",
            (key, key, key, limit),
        )
        return [row["key"] for row in rows]

    def subjects(self) -> list[tuple[int, str]]:
        """Every entity that something is titled, headed or defined with: key and id."""
        rows = self._database.rows(f"SELECT key, id FROM entities AS e WHERE EXISTS ({_SUBJECT}e.key)")
        return [(row["key"], row["id"]) for row in rows]

    def still_subjects(self, entities: Sequence[int]) -> set[int]:
        """Those of the entities that something is titled, headed or defined with."""
        rows = self._database.rows_in(
            f"SELECT key FROM entities AS e WHERE key IN ({{}}) AND EXISTS ({_SUBJECT}e.key)", entities
        )
        return {row["key"] for row in rows}

    def new_names(self) -> list[tuple[int, str]]:
        """Subjects whose names have yet to be looked for in earlier chunks: key and id."""
        rows = self._database.rows("SELECT key, id FROM entities JOIN new_names ON entity = key ORDER BY key")
        return [(row["key"], row["id"]) for row in rows]

    def texts(self, chunks: Sequence[int]) -> dict[int, str]:
        """Texts of chunks, for names to be looked for in; those that are gone are left out."""
        rows = self._database.rows_in("SELECT key, text FROM chunks WHERE key IN ({})", chunks)
        return {row["key"]: row["text"] for row in rows}

    def forget_new_names(self, entities: Iterable[int]) -> None:
        """Note that the names have been looked for."""
        with self._database.write() as db:
            db.executemany("DELETE FROM new_names WHERE entity = ?", [(entity,) for entity in entities])

    def counts(self) -> tuple[int, int, int]:
        """How many entities, different relations, and mentions there are."""
        row = self._database.row(
            "SELECT (SELECT COUNT(*) FROM entities), "
            "(SELECT COUNT(*) FROM (SELECT DISTINCT subject, predicate, object FROM relations)), "
            "(SELECT COUNT(*) FROM mentions)"
        )
        return (0, 0, 0) if row is None else (row[0], row[1], row[2])

    def _edges(
        self, end: Literal["subject", "object"], entities: Sequence[int]
    ) -> dict[tuple[int, str, int], EntityEdge]:
        rows = self._database.rows_in(
            "SELECT subject, predicate, object, COUNT(*) AS support, MAX(confidence) AS confidence "
            f"FROM relations WHERE {end} IN ({{}}) GROUP BY subject, predicate, object",
            entities,
        )
        return {(row["subject"], row["predicate"], row["object"]): EntityEdge(**dict(row)) for row in rows}

    def _unlink(self, db: sqlite3.Connection, subjects: set[int]) -> dict[tuple[int, str, str], int]:
        """Drop the mentions that are there only because something was titled with the name."""
        uses: Counter[tuple[int, str, str]] = Counter()
        for entity in subjects:
            if db.execute(f"{_SUBJECT}? LIMIT 1", (entity,)).fetchone():
                continue
            db.execute("DELETE FROM new_names WHERE entity = ?", (entity,))
            rows = db.execute(
                "DELETE FROM mentions WHERE entity = ? AND method = 'title' RETURNING name, type", (entity,)
            ).fetchall()
            for row in rows:
                uses[entity, row["name"], row["type"]] -= 1
        return uses

    def _bury(self, db: sqlite3.Connection, entities: Collection[int]) -> None:
        for entity in entities:
            db.execute(
                "DELETE FROM entities WHERE key = :key "
                "AND NOT EXISTS (SELECT 1 FROM names WHERE entity = :key) "
                "AND NOT EXISTS (SELECT 1 FROM mentions WHERE entity = :key) "
                "AND NOT EXISTS (SELECT 1 FROM abouts WHERE entity = :key) "
                "AND NOT EXISTS (SELECT 1 FROM relations WHERE subject = :key OR object = :key)",
                {"key": entity},
            )

    def _note_new_names(
        self, db: sqlite3.Connection, extractions: Sequence[tuple[int, Extraction]], keys: dict[str, int]
    ) -> None:
        subjects = {
            keys[about.name]
            for _, extraction in extractions
            for about in extraction.abouts
            if about.name in keys and about.source != "first_phrase"
        }
        new = subjects - self.still_subjects(sorted(subjects))
        db.executemany("INSERT OR IGNORE INTO new_names VALUES (?)", [(entity,) for entity in sorted(new)])

    def _entity_keys(self, db: sqlite3.Connection, names: Iterable[str]) -> dict[str, int]:
        ids = {name: name_key(name) for name in names}
        wanted = sorted(set(ids.values()) - {""})
        known = self.find(wanted)
        new = [key for key in wanted if key not in known]
        db.executemany("INSERT INTO entities (id) VALUES (?)", [(key,) for key in new])
        known |= self.find(new)
        return {name: known[key] for name, key in ids.items() if key}

    def _add_one(
        self,
        db: sqlite3.Connection,
        chunk: int,
        extraction: Extraction,
        keys: dict[str, int],
        uses: Counter[tuple[int, str, str]],
    ) -> None:
        mentions: dict[tuple[int, int], tuple[int, str, str, str, float]] = {}
        for m in extraction.mentions:
            if m.name in keys:
                mentions.setdefault((keys[m.name], m.start), (m.end, m.name, m.type, m.method, m.confidence))
        abouts = {(keys[a.name], a.source): a for a in reversed(extraction.abouts) if a.name in keys}
        named = {entity for entity, _ in mentions} | {entity for entity, _ in abouts}
        relations: dict[tuple[int, str, int], tuple[int, int, str, float]] = {}
        for r in extraction.relations:
            if r.subject not in keys or r.object not in keys:
                continue
            for end in (r.subject, r.object):
                if keys[end] not in named:  # what a relation names is mentioned by it
                    named.add(keys[end])
                    mentions[keys[end], r.start] = (r.end, end, "thing", r.method, r.confidence)
            relations.setdefault(
                (keys[r.subject], r.predicate, keys[r.object]), (r.start, r.end, r.method, r.confidence)
            )
        db.executemany(
            "INSERT INTO mentions VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(chunk, entity, start, *rest) for (entity, start), rest in mentions.items()],
        )
        db.executemany(
            "INSERT INTO abouts VALUES (?, ?, ?, ?, ?)",
            [(chunk, entity, source, a.name, a.confidence) for (entity, source), a in abouts.items()],
        )
        db.executemany(
            "INSERT INTO relations VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(chunk, *identity, *rest) for identity, rest in relations.items()],
        )
        for (entity, _), (_, name, type_, _, _) in mentions.items():
            uses[entity, name, type_] += 1
        for (entity, _), about in abouts.items():
            uses[entity, about.name, "thing"] += 1


def _names(extractions: Iterable[tuple[int, Extraction]]) -> set[str]:
    names: set[str] = set()
    for _, extraction in extractions:
        names.update(m.name for m in extraction.mentions)
        names.update(a.name for a in extraction.abouts)
        for r in extraction.relations:
            names |= {r.subject, r.object}
    return names


def _count(db: sqlite3.Connection, uses: Counter[tuple[int, str, str]]) -> None:
    db.executemany(
        "INSERT INTO names VALUES (?, ?, ?, ?) "
        "ON CONFLICT (entity, name, type) DO UPDATE SET uses = uses + excluded.uses",
        [(*identity, change) for identity, change in uses.items()],
    )
    db.executemany(
        "DELETE FROM names WHERE entity = ? AND name = ? AND type = ? AND uses <= 0",
        [identity for identity, change in uses.items() if change < 0],
    )
