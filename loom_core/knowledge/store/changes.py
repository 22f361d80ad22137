"""Change log of the store: changes that the derived indexes have still to apply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loom_core.storage import Database

__all__ = ["ChangeKind", "ChangeLog", "IndexName", "IndexState", "PendingChanges"]

_PRUNED = 20_000
_RUN = 1000  # consecutive keys are written as one row, up to this many

ChangeKind = Literal["chunk+", "chunk-", "vector+", "entity", "document"]
"""A chunk came, a chunk went, a chunk got its vector, an entity or its relations changed, a document that
was there already may have other fields. Of a chunk that came the entities are changed, too, unsaid: there
are a dozen of them, and readers get them from the store."""

IndexName = Literal["words", "vectors", "graph", "chroma"]


@dataclass(frozen=True, slots=True)
class IndexState:
    """State of an index: its generation, and its watermark (the last change it holds).

    Generation 0 means that it was never built; a watermark below 0, that it is damaged.
    """

    generation: int
    watermark: int

    @property
    def built(self) -> bool:
        """Whether there is an index; if not, the next one is built with all that is in the store."""
        return self.watermark >= 0


@dataclass(frozen=True, slots=True)
class PendingChanges:
    """Changes to apply: keys by kind, and the watermark once they are applied.

    A key may be under `chunk+` and be gone already: applying the changes looks it up anyway.
    """

    keys: dict[ChangeKind, list[int]]
    watermark: int


class ChangeLog:
    """The log of changes, and the watermark of each index in it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, kind: ChangeKind, keys: Iterable[int]) -> None:
        """Append changes; part of the transaction that makes them."""
        with self._database.write() as db:
            seq = self.head()
            rows: list[tuple[int, ChangeKind, int, int]] = []
            for last, count in _runs(keys):
                seq += count
                rows.append((seq, kind, last, count))
            db.executemany("INSERT INTO changes (seq, kind, key, count) VALUES (?, ?, ?, ?)", rows)

    def head(self) -> int:
        """Return the number of the last change ever made."""
        row = self._database.row("SELECT seq FROM sqlite_sequence WHERE name = 'changes'")
        return 0 if row is None else int(row["seq"])

    def pending(self, index: IndexName, *, limit: int = 5000) -> PendingChanges | None:
        """Return the next `limit` changes after an index's watermark, or None if it is up to date."""
        return self.since(self.state(index).watermark, limit=limit)

    def since(self, watermark: int, *, limit: int = 5000) -> PendingChanges | None:
        """Return the next `limit` changes after a watermark, or None if there are none."""
        # Writers take turns, so that numbers become visible in their order.
        rows = self._database.rows(
            "SELECT seq, kind, key, count FROM changes WHERE seq > ? ORDER BY seq LIMIT ?", (watermark, limit)
        )
        if not rows:
            return None
        keys: dict[ChangeKind, list[int]] = {kind: [] for kind in get_args(ChangeKind)}
        until = watermark + limit
        for seq, kind, key, count in rows:
            first, last = max(seq - count, watermark), min(seq, until)
            keys[kind].extend(range(key - seq + first + 1, key - seq + last + 1))
        return PendingChanges(keys=keys, watermark=min(rows[-1]["seq"], until))

    def is_complete_since(self, watermark: int) -> bool:
        """Whether no change after a watermark has been pruned."""
        row = self._database.row("SELECT seq - count AS before FROM changes ORDER BY seq LIMIT 1")
        return row["before"] <= watermark if row is not None else watermark >= self.head()

    def state(self, index: IndexName) -> IndexState:
        """Return the state of an index."""
        row = self._database.row("SELECT generation, watermark FROM indexes WHERE name = ?", (index,))
        return IndexState(0, -1) if row is None else IndexState(row["generation"], row["watermark"])

    def advance(self, index: IndexName, watermark: int) -> None:
        """Note that an index holds the changes up to a number."""
        with self._database.write() as db:
            db.execute("UPDATE indexes SET watermark = ? WHERE name = ?", (watermark, index))

    def restart(self, index: IndexName, *, generation: int, watermark: int) -> None:
        """Note that an index was rebuilt, in the directory of a new generation."""
        with self._database.write() as db:
            db.execute("INSERT OR REPLACE INTO indexes VALUES (?, ?, ?)", (index, generation, watermark))

    def forget(self, index: IndexName) -> None:
        """Unregister an index that no longer exists."""
        with self._database.write() as db:
            db.execute("DELETE FROM indexes WHERE name = ?", (index,))

    def mark_damaged(self, index: IndexName, *, generation: int) -> None:
        """Mark an index as damaged, so that the worker process rebuilds it.

        Any process may report the generation that it saw; a report of an older one is ignored.
        """
        with self._database.write() as db:
            db.execute(
                "UPDATE indexes SET watermark = -1 WHERE name = ? AND generation = ?", (index, generation)
            )

    def prune(self, *, limit: int = _PRUNED) -> bool:
        """Prune the oldest changes that every index holds; an index that was never built needs none.

        Args:
            limit: maximum number, so that no other writer waits for long.

        Returns:
            Whether there were any.
        """
        row = self._database.row(
            "SELECT (SELECT MIN(seq) FROM changes) AS first, (SELECT MIN(watermark) FROM indexes) AS last"
        )
        if row is None or row["first"] is None or row["last"] is None or row["first"] > row["last"]:
            return False
        with self._database.write() as db:
            last = min(row["last"], row["first"] + limit - 1)
            db.execute("DELETE FROM changes WHERE seq <= ?", (last,))
        return True


def _runs(keys: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Group keys into runs of consecutive ones: the last key, and the length."""
    last, count = 0, 0
    for key in keys:
        if count and (key != last + 1 or count == _RUN):
            yield last, count
            count = 0
        last = key
        count += 1
    if count:
        yield last, count
