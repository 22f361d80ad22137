"""Which chunks mention an entity, and which are about it: the part of the graph that questions read.

A question asks this of hundreds of entities at once. Nearly all of them have a few mentions, and one
statement answers for all those together; an entity with more than is wanted has a statement of its own,
which stops at the limit, so that a name that stands everywhere costs no more than any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from loom_core.knowledge.model import AboutSource
    from loom_core.storage import Database

__all__ = ["AboutRow", "Incidence", "MentionRow"]

_Table = Literal["mentions", "abouts"]
_LIST = 900  # parameters of one statement, below the 999 that every SQLite takes

_ABOUT_ANYWAY = "EXISTS (SELECT 1 FROM abouts WHERE chunk = m.chunk AND entity = m.entity)"
_MENTIONS = "SELECT chunk, entity, start, end, name, method, confidence FROM mentions AS m"
_MENTIONS_OF = f"{_MENTIONS} WHERE entity {{}} AND NOT {_ABOUT_ANYWAY} ORDER BY entity, chunk, start"
_MENTION_EDGES_OF = (
    "SELECT chunk, entity, confidence FROM mentions AS m "
    f"WHERE entity {{}} AND NOT {_ABOUT_ANYWAY} ORDER BY entity, chunk, start"
)
_ABOUTS = (
    "SELECT a.chunk, a.entity, c.document, a.source, a.name, a.confidence "
    "FROM abouts AS a JOIN chunks AS c ON c.key = a.chunk"
)
_ABOUTS_OF = f"{_ABOUTS} WHERE a.entity {{}} ORDER BY a.entity, a.confidence DESC, a.chunk, a.source"


class MentionRow(NamedTuple):
    """A mention as retrieval reads it."""

    chunk: int
    entity: int
    start: int
    end: int
    name: str
    method: str
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

    def mentions_in(self, chunks: Sequence[int]) -> list[MentionRow]:
        """Mentions in chunks."""
        return [MentionRow._make(row) for row in self._of_all(f"{_MENTIONS} WHERE chunk IN ({{}})", chunks)]

    def abouts_in(self, chunks: Sequence[int]) -> list[AboutRow]:
        """What chunks are about."""
        return [AboutRow._make(row) for row in self._of_all(f"{_ABOUTS} WHERE a.chunk IN ({{}})", chunks)]

    def entities_in(self, chunks: Sequence[int]) -> set[int]:
        """Entities that chunks mention or are about."""
        sql = "SELECT entity FROM {} WHERE chunk IN ({{}})"
        rows = [row for table in ("mentions", "abouts") for row in self._of_all(sql.format(table), chunks)]
        return {entity for (entity,) in rows}

    def mentions_of(self, entities: Sequence[int], *, limit: int) -> list[MentionRow]:
        """Mentions of entities in chunks that are not about them anyway, at most `limit` of each.

        They come in the order of `entities`, and for each in the order of the chunks.
        """
        return [MentionRow._make(row) for row in self._of_each("mentions", _MENTIONS_OF, entities, limit)]

    def mention_edges_of(self, entities: Sequence[int], *, limit: int) -> list[tuple[int, int, float]]:
        """The same mentions as chunk, entity and confidence only, for half the price."""
        return self._of_each("mentions", _MENTION_EDGES_OF, entities, limit)

    def abouts_of(self, entities: Sequence[int], *, limit: int) -> list[AboutRow]:
        """Chunks that are about entities, at most `limit` for each, surest first."""
        return [AboutRow._make(row) for row in self._of_each("abouts", _ABOUTS_OF, entities, limit)]

    def _of_all(self, sql: str, values: Sequence[int]) -> list[tuple[Any, ...]]:
        """All rows of a statement with `IN ({})` about a list of any length, as plain tuples."""
        with self._database.read() as db:
            return _rows(db, sql, values)

    def _of_each(self, table: _Table, sql: str, entities: Sequence[int], limit: int) -> list[tuple[Any, ...]]:
        """At most `limit` rows for each entity, in the order of the entities.

        Args:
            table: where the rows are.
            sql: the statement, with `{}` for the condition on the entity, which is its second column; it
                says in what order the rows of an entity come.
            entities: which.
            limit: how many rows of each.
        """
        of: dict[int, list[tuple[Any, ...]]] = {entity: [] for entity in entities}
        with self._database.read() as db:
            crowded = _crowded(db, table, of, limit) if len(of) > 1 else set(of)
            for row in _rows(db, sql.format("IN ({})"), [entity for entity in of if entity not in crowded]):
                of[row[1]].append(row)
            cursor = _plain(db)
            first = sql.format("= ?") + " LIMIT ?"
            for entity in crowded:
                of[entity] = cursor.execute(first, (entity, limit)).fetchall()
        return [row for entity in entities for row in of[entity]]


def _crowded(db: sqlite3.Connection, table: _Table, entities: Iterable[int], limit: int) -> set[int]:
    """Those of the entities that have more than `limit` rows in a table; counts no further than that."""
    sql = (
        "SELECT key FROM entities AS e WHERE key IN ({}) "
        f"AND (SELECT 1 FROM {table} WHERE entity = e.key LIMIT 1 OFFSET {limit:d}) IS NOT NULL"
    )
    return {entity for (entity,) in _rows(db, sql, list(entities))}


def _rows(db: sqlite3.Connection, sql: str, values: Sequence[int]) -> list[tuple[Any, ...]]:
    """All rows of a statement with `IN ({})` about a list of any length."""
    cursor = _plain(db)
    found: list[tuple[Any, ...]] = []
    for start in range(0, len(values), _LIST):
        part = values[start : start + _LIST]
        # Lists grow to a power of two, by repeating, so that there are few statements to be compiled.
        size = min(_LIST, 1 << (len(part) - 1).bit_length())
        marks = ",".join("?" * size)
        found += cursor.execute(sql.format(marks), [*part, *[part[-1]] * (size - len(part))]).fetchall()
    return found


def _plain(db: sqlite3.Connection) -> sqlite3.Cursor:
    """A cursor that gives tuples, which take half the time of rows with names."""
    cursor = db.cursor()
    cursor.row_factory = None
    return cursor
