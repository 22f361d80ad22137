"""Entities, mentions, subjects and relations in the record."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from loom_core.knowledge.record.aliases import StatedAlias
from loom_core.knowledge.record.entities import EntityReader
from loom_core.knowledge.record.incidence import AboutRow, MentionRow
from loom_core.knowledge.record.prepared import found_in
from loom_core.knowledge.text import name_form

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Sequence

    from loom_core.knowledge.model import Extraction
    from loom_core.knowledge.record.prepared import FoundRows

__all__ = ["AboutRow", "GraphTable", "MentionRow", "NewName"]

# A first phrase is too unsure a subject for its name to be looked for everywhere.
_SUBJECT = "SELECT 1 FROM abouts WHERE source != 'first_phrase' AND entity = "


class NewName(NamedTuple):
    """A subject whose name has yet to be looked for in the chunks up to `newest`."""

    entity: int
    id: str
    newest: int


class GraphTable(EntityReader):
    """The graph of the record. An entity lives while a mention, a subject or a relation needs it."""

    def add(self, extractions: Sequence[tuple[int, Extraction]]) -> set[int]:
        """Write what was found in chunks; part of the transaction that writes the chunks.

        Returns:
            Keys of the entities it touches.
        """
        return self.add_rows([(chunk, found_in(extraction)) for chunk, extraction in extractions])

    def add_rows(self, chunks: Sequence[tuple[int, FoundRows]]) -> set[int]:
        """Write what was found in chunks, given as rows; see `add`."""
        with self._database.write() as db:
            keys, decided = self._entity_keys(db, chunks)
            self._note_new_names(db, chunks, keys)
            mentions = [(chunk, keys[id_], *rest) for chunk, found in chunks for id_, *rest in found.mentions]
            abouts = [(chunk, keys[id_], *rest) for chunk, found in chunks for id_, *rest in found.abouts]
            relations = [
                (chunk, keys[subject], predicate, keys[object_], *rest)
                for chunk, found in chunks
                for subject, predicate, object_, *rest in found.relations
            ]
            # In the order of the entities: what their index has side by side is met together.
            mentions.sort(key=itemgetter(1))
            db.executemany("INSERT INTO mentions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", mentions)
            db.executemany("INSERT INTO abouts VALUES (?, ?, ?, ?, ?)", abouts)
            db.executemany("INSERT INTO relations VALUES (?, ?, ?, ?, ?, ?, ?, ?)", relations)
            uses = Counter((keys[m[0]], m[3], m[4]) for _, found in chunks for m in found.mentions)
            uses.update((keys[a[0]], a[2], "thing") for _, found in chunks for a in found.abouts)
            _count(db, uses)
            stated = self.aliases.add(
                StatedAlias(chunk, keys[id_], keys[other], kind, start, end, confidence)
                for chunk, found in chunks
                for id_, other, kind, start, end, confidence in found.aliases
            )
            return {entity for entity, _, _ in uses} | self.aliases.regroup(stated | decided)

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

    def new_names(self, *, since: int = 0, limit: int = -1) -> list[NewName]:
        """Subjects whose names have yet to be looked for in earlier chunks, oldest first.

        Args:
            since: a chunk; only those that came after it.
            limit: how many at the most; below 0, all.
        """
        rows = self._database.rows(
            "SELECT entity, id, newest FROM new_names CROSS JOIN entities ON key = entity "
            "WHERE newest >= ? ORDER BY entity LIMIT ?",
            (since, limit),
        )
        return list(map(NewName._make, rows))

    def texts(self, chunks: Sequence[int]) -> dict[int, str]:
        """Texts of chunks, for names to be looked for in; those that are gone are left out."""
        rows = self._database.rows_in("SELECT key, text FROM chunks WHERE key IN ({})", chunks)
        return {row["key"]: row["text"] for row in rows}

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
        self, db: sqlite3.Connection, chunks: Sequence[tuple[int, FoundRows]], keys: dict[str, int]
    ) -> None:
        subjects = {
            keys[id_] for _, found in chunks for id_, source, _, _ in found.abouts if source != "first_phrase"
        }
        new = subjects - self.still_subjects(sorted(subjects))
        newest = min((chunk for chunk, _ in chunks), default=1) - 1
        db.executemany(
            "INSERT OR IGNORE INTO new_names (entity, newest) VALUES (?, ?)",
            [(entity, newest) for entity in sorted(new)],
        )

    def _entity_keys(
        self, db: sqlite3.Connection, chunks: Sequence[tuple[int, FoundRows]]
    ) -> tuple[dict[str, int], set[int]]:
        """Keys of the entities that are found in chunks; new ones are written.

        Returns:
            The keys by id, and those of new entities that people decided about before.
        """
        ids = {id_ for _, found in chunks for id_, *_ in found.mentions}
        ids.update(id_ for _, found in chunks for id_, *_ in found.abouts)
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
        [(*identity, change) for identity, change in sorted(uses.items())],
    )
    db.executemany(
        "DELETE FROM names WHERE entity = ? AND name = ? AND type = ? AND uses <= 0",
        [identity for identity, change in uses.items() if change < 0],
    )
