"""Entities, mentions, subjects and relations in the record."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from loom_core.knowledge.store.aliases import StatedAlias
from loom_core.knowledge.store.entities import AboutRow, EntityReader, MentionRow
from loom_core.knowledge.store.prepared import found_in
from loom_core.knowledge.text.surface_forms import name_form

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Sequence

    from loom_core.knowledge.model import Extraction
    from loom_core.knowledge.store.prepared import FoundColumns

__all__ = [
    "AboutRow",
    "GraphTable",
    "Link",
    "MentionRow",
    "NewName",
]

# A first phrase is too unsure a subject for its name to be looked for everywhere.
_SUBJECT = "SELECT 1 FROM abouts WHERE source != 'first_phrase' AND entity = "


class Link(NamedTuple):
    """The name of a subject in a chunk, and where it stands."""

    chunk: int
    entity: int
    start: int
    end: int
    name: str


class NewName(NamedTuple):
    """A subject whose name has yet to be looked for in the chunks up to `newest`."""

    entity: int
    id: str
    newest: int


class GraphTable(EntityReader):
    """The graph of the record. An entity lives while a mention, a subject or a relation needs it."""

    def add(self, extractions: Sequence[tuple[int, Extraction]]) -> set[int]:
        """Write what was found in chunks; see `add_columns`."""
        return self.add_columns([(chunk, found_in(extraction)) for chunk, extraction in extractions])

    def add_columns(self, chunks: Sequence[tuple[int, FoundColumns]]) -> set[int]:
        """Write what was found in chunks; part of the transaction that writes the chunks.

        Returns:
            Keys of the entities that are in another group than before, and of those that stood or stand for
            these groups. They may be in other chunks.
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
            uses.update((entity, name, "thing") for _, entity, _, name, _ in abouts)
            _count(db, uses)
            stated = self.aliases.add(
                StatedAlias(*row)
                for chunk, (*_, found) in chunks
                for row in zip(repeat(chunk), map(key_of, found.entity), map(key_of, found.other), *found[2:])
            )
            return self.aliases.regroup(stated | decided)

    def add_links(self, links: Iterable[Link]) -> set[int]:
        """Write mentions found by looking for known names.

        A mention that an extractor found at the same place stays as it is.

        Returns:
            Keys of the entities that got a new mention.
        """
        found = {(chunk, entity, start): (end, name) for chunk, entity, start, end, name in links}
        with self._database.write() as db:
            for place in self._mentioned(db, sorted({chunk for chunk, _, _ in found})):
                found.pop(place, None)
            db.executemany(
                "INSERT INTO mentions VALUES (?, ?, ?, ?, ?, 'thing', 'title', 1.0)",
                [(*place, *rest) for place, rest in found.items()],
            )
            _count(db, Counter((entity, name, "thing") for (_, entity, _), (_, name) in found.items()))
        return {entity for _, entity, _ in found}

    def _mentioned(self, db: sqlite3.Connection, chunks: Sequence[int]) -> Iterable[tuple[int, int, int]]:
        """Chunk, entity and start of all mentions in some chunks."""
        cursor = db.cursor()
        cursor.row_factory = None  # plain tuples: there are many
        sql = "SELECT chunk, entity, start FROM json_each(?) CROSS JOIN mentions ON chunk = value"
        return cursor.execute(sql, (json.dumps(chunks),))

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
            grouped = self.aliases.remove(chunks) | self.aliases.canonical_of(sorted(touched)).keys()
            grouped |= set(self._members(sorted(grouped)))
            self._bury(db, touched)
            return touched | self.aliases.regroup(grouped)

    def subjects(self) -> list[tuple[int, str]]:
        """Every entity that something is titled, headed or defined with: key and id."""
        # Of a million subjects so in half the time that it takes to ask for each entity whether it is one.
        rows = self._database.rows(
            "SELECT key, id FROM entities "
            "WHERE key IN (SELECT entity FROM abouts WHERE source != 'first_phrase')"
        )
        return [(key, id_) for key, id_ in rows]

    def still_subjects(self, entities: Sequence[int]) -> set[int]:
        """Those of the entities that something is titled, headed or defined with."""
        rows = self._database.rows_in(
            f"SELECT key FROM entities AS e WHERE key IN ({{}}) AND EXISTS ({_SUBJECT}e.key)", entities
        )
        return {row["key"] for row in rows}

    def subjects_since(self, entities: Sequence[int], chunk: int) -> set[int]:
        """Those of the entities that have been subjects ever since a chunk was written."""
        rows = self._database.rows_in(
            "SELECT DISTINCT entity FROM abouts WHERE entity IN ({}) "
            "AND source != 'first_phrase' AND chunk <= ?",
            entities,
            (chunk,),
        )
        return {row["entity"] for row in rows}

    def new_names(self, *, limit: int = -1, since: int = 0) -> list[NewName]:
        """Subjects whose names have yet to be looked for in earlier chunks, oldest first.

        Args:
            limit: how many at the most; below 0, all.
            since: only those that came after `linked` was this, and maybe others.
        """
        rows = self._database.rows(
            "SELECT entity, id, newest FROM new_names CROSS JOIN entities ON key = entity "
            "WHERE newest >= ? ORDER BY entity LIMIT ?",
            (since, limit),
        )
        return list(map(NewName._make, rows))

    def new_name_count(self) -> int:
        """How many new names there are."""
        row = self._database.row("SELECT COUNT(*) AS n FROM new_names")
        return 0 if row is None else int(row["n"])

    def linked(self) -> int:
        """Key of the last chunk in which all names were looked for, but for the new ones."""
        row = self._database.row("SELECT linked FROM coverage")
        return 0 if row is None else int(row["linked"])

    def note_linked(self, chunk: int) -> None:
        """Note that all names were looked for in the chunks up to one."""
        with self._database.write() as db:
            db.execute("UPDATE coverage SET linked = ?", (chunk,))

    def texts(self, chunks: Sequence[int]) -> list[tuple[int, str]]:
        """Texts of chunks, for names to be looked for in; those that are gone are left out."""
        rows = self._database.rows_in("SELECT key, text FROM chunks WHERE key IN ({})", chunks)
        return list(map(tuple, rows))

    def texts_after(self, chunk: int, *, limit: int) -> list[tuple[int, str]]:
        """The texts of the next chunks after one, in their order."""
        sql = "SELECT key, text FROM chunks WHERE key > ? ORDER BY key LIMIT ?"
        return list(map(tuple, self._database.rows(sql, (chunk, limit))))

    def forget_new_names(self, entities: Iterable[int]) -> None:
        """Note that the names have been looked for."""
        with self._database.write() as db:
            db.executemany("DELETE FROM new_names WHERE entity = ?", [(entity,) for entity in entities])

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
                "AND NOT EXISTS (SELECT 1 FROM abouts WHERE entity = :key)",  # nor is there a relation then
                {"key": entity},
            )

    def _note_new_names(
        self, db: sqlite3.Connection, chunks: Sequence[tuple[int, FoundColumns]], keys: dict[str, int]
    ) -> None:
        subjects = {
            keys[id_]
            for _, found in chunks
            for id_, source in zip(found.abouts.entity, found.abouts.source, strict=True)
            if source != "first_phrase"
        }
        new = subjects - self.still_subjects(sorted(subjects))
        linked = self.linked()
        db.executemany(
            "INSERT OR IGNORE INTO new_names (entity, newest) VALUES (?, ?)",
            [(entity, linked) for entity in sorted(new)],
        )

    def _entity_keys(
        self, db: sqlite3.Connection, chunks: Sequence[tuple[int, FoundColumns]]
    ) -> tuple[dict[str, int], set[int]]:
        """Keys of the entities that are found in chunks; new ones are written.

        Returns:
            The keys by id, and those of new entities that people decided about before.
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
    def _next_key(db: sqlite3.Connection) -> int:
        """The key that SQLite would give next; nobody else gives one until the transaction ends."""
        row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entities'").fetchone()
        return 1 if row is None else int(row["seq"]) + 1


def _count(db: sqlite3.Connection, uses: Counter[tuple[int, str, str]]) -> None:
    db.executemany(
        "INSERT INTO names VALUES (?, ?, ?, ?) "
        "ON CONFLICT (entity, name, type) DO UPDATE SET uses = uses + excluded.uses",
        [(*identity, change) for identity, change in sorted(uses.items(), key=itemgetter(0))],
    )
    db.executemany(
        "DELETE FROM names WHERE entity = ? AND name = ? AND type = ? AND uses <= 0",
        [identity for identity, change in uses.items() if change < 0],
    )
