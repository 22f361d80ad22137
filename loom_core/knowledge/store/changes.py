"""Change log of the store: changes that the derived indexes have still to apply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from loom_core.errors import IndexDamagedError
from loom_core.storage.lease import SERVER_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loom_core.knowledge.store.node import Node
    from loom_core.storage.sql import SQLDatabase

__all__ = ["IN_SERVERS", "ChangeKind", "ChangeLog", "IndexName", "IndexState", "PendingChanges"]

_PRUNED = 20_000
_RUN = 1000  # consecutive keys are written as one row, up to this many

ChangeKind = Literal["chunk+", "chunk-", "vector+", "entity", "document"]
"""`chunk+`: a chunk was added; `chunk-`: deleted; `vector+`: it got its vector; `entity`: an entity or its
relations changed; `document`: the fields of an existing document may have changed. The entities of an added
chunk are not logged separately: there are about a dozen, and readers get them from the store."""

IndexName = Literal["words", "vectors", "graph", "links", "chroma", "remote", "remote_graph", "remote_words"]

IN_SERVERS: frozenset[IndexName] = frozenset({"remote", "remote_graph", "remote_words"})
"""Indexes that all machines have in common which share a store."""

_FORGOTTEN_SECONDS = 86_400.0  # a node that is not heard of for so long makes its indexes from scratch


@dataclass(frozen=True, slots=True)
class IndexState:
    """State of an index: its generation, and its watermark (the last change it holds).

    Generation 0 means that it was never built; a watermark below 0, that it is damaged.
    """

    generation: int
    watermark: int

    @property
    def built(self) -> bool:
        """Whether the index is usable; if not, it is built from the whole store."""
        return self.watermark >= 0


@dataclass(frozen=True, slots=True)
class PendingChanges:
    """Changes to apply: keys by kind, and the watermark once they are applied.

    A key under `chunk+` may be deleted already, so look it up in the store.
    """

    keys: dict[ChangeKind, list[int]]
    watermark: int


class ChangeLog:
    """Log of changes, with the watermark of each index.

    Args:
        database: the store's.
        node: of a store that several machines share, the node of this process; it has the watermarks of its
            indexes.
    """

    def __init__(self, database: SQLDatabase, node: Node | None = None) -> None:
        self._database = database
        self._node = node

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
        """Return the next `limit` changes after a watermark, or None if there are none.

        Raises:
            IndexDamagedError: the next ones were pruned, so that the index has to be built again.
        """
        # Write transactions are serial, so numbers become visible in order.
        rows = self._database.rows(
            "SELECT seq, kind, key, count FROM changes WHERE seq > ? ORDER BY seq LIMIT ?", (watermark, limit)
        )
        if not rows:
            return None
        if rows[0]["seq"] - rows[0]["count"] > watermark:
            raise IndexDamagedError("Changes that the index has still to apply are gone.")
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

    def must_restart(self, index: IndexName, head: int) -> bool:
        """Whether a node has been away for so long that its index cannot follow the changes any more.

        So it is, too, if the store is older than the index, as it was restored from a backup.

        Args:
            index: the index.
            head: number of the last change.
        """
        if self._node is None or index in IN_SERVERS:
            return False
        watermark = self.state(index).watermark
        return watermark > head or (watermark < head and not self.is_complete_since(watermark))

    def report_lag(self, lag: int) -> None:
        """Report how far the indexes of this node have followed, so that what they still need is kept.

        To be called from time to time also where nothing has changed.

        Args:
            lag: changes that the index which is furthest behind has still to apply; all, while it is built.
        """
        node = self._node
        if node is not None:
            # An index may hold more in memory than its files, from which it is opened again.
            written = node.database.row("SELECT MIN(watermark) FROM indexes")[0] or 0
            with node.shared.write(takes_turn=False) as db:
                db.execute(
                    f"INSERT INTO nodes VALUES (?, ?, {SERVER_TIME}) ON CONFLICT (id) "
                    "DO UPDATE SET watermark = excluded.watermark, seen = excluded.seen",
                    (node.id, max(0, min(written, self.head() - lag))),
                )

    def is_heard_of(self, host: str, *, seconds: float) -> bool:
        """Whether a node on a host has reported in the last seconds."""
        sql = f"SELECT 1 FROM nodes WHERE instr(id, ?) = 1 AND seen > {SERVER_TIME} - ?"
        return self._database.row(sql, (f"{host}:", seconds)) is not None

    def state(self, index: IndexName) -> IndexState:
        """Return the state of an index."""
        row = self._states(index).row("SELECT generation, watermark FROM indexes WHERE name = ?", (index,))
        return IndexState(0, -1) if row is None else IndexState(row["generation"], row["watermark"])

    def advance(self, index: IndexName, watermark: int) -> None:
        """Advance the watermark of an index to a change."""
        with self._states(index).write() as db:
            db.execute("UPDATE indexes SET watermark = ? WHERE name = ?", (watermark, index))

    def restart(self, index: IndexName, *, generation: int, watermark: int) -> None:
        """Register a rebuilt index: its new generation, which names its directory, and its watermark."""
        with self._states(index).write() as db:
            db.execute(
                "INSERT INTO indexes VALUES (?, ?, ?) ON CONFLICT (name) "
                "DO UPDATE SET generation = excluded.generation, watermark = excluded.watermark",
                (index, generation, watermark),
            )

    def forget(self, index: IndexName) -> None:
        """Unregister an index that no longer exists."""
        with self._states(index).write() as db:
            db.execute("DELETE FROM indexes WHERE name = ?", (index,))

    def mark_damaged(self, index: IndexName, *, generation: int) -> None:
        """Mark an index as damaged, so that the worker process rebuilds it.

        Any process may report the generation that it saw; a report of an older one is ignored.
        """
        with self._states(index).write() as db:
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
        first = self._database.row("SELECT MIN(seq) FROM changes")[0]
        held = self._held()
        if first is None or held is None or first > held:
            return False
        with self._database.write() as db:
            db.execute("DELETE FROM changes WHERE seq <= ?", (min(held, first + limit - 1),))
            if self._node is not None:
                db.execute(f"DELETE FROM nodes WHERE seen <= {SERVER_TIME} - {_FORGOTTEN_SECONDS}")
        return True

    def _held(self) -> int | None:
        """Return the last change that every index holds, on every node; None if there is no index."""
        every = "SELECT watermark FROM indexes"
        if self._node is not None:
            every += (
                f" UNION ALL SELECT watermark FROM nodes WHERE seen > {SERVER_TIME} - {_FORGOTTEN_SECONDS}"
            )
        return self._database.row(f"SELECT MIN(watermark) FROM ({every}) AS held")[0]

    def _states(self, index: IndexName) -> SQLDatabase:
        return self._database if self._node is None or index in IN_SERVERS else self._node.database


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
