"""Session with a Kùzu database: a connection, its prepared statements, and bulk loading of tables."""

from __future__ import annotations

import csv
import importlib
import logging
import time
import warnings
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from loom_core.errors import IndexDamagedError, InvalidInputError, LoomError, StoreBusyError, first_line
from loom_core.knowledge.indexes.engines.damage import REBUILD_ADVICE
from loom_core.knowledge.interface import EntityEdge, EntityNode

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable
    from pathlib import Path

    import kuzu


__all__ = [
    "ENGINE_ERRORS",
    "KuzuSession",
    "connect",
    "copy_tables",
    "create_relation",
    "create_schema",
    "delete_entity",
    "delete_relation",
    "open_database",
    "read_counts",
    "read_edges_among",
    "read_edges_of_range",
    "read_edges_touching",
    "read_entities",
    "read_ring_of_many",
    "read_ring_of_one",
    "store_entity",
    "tables_size",
    "translate_error",
    "update_relation",
    "write_tables",
]

_log = logging.getLogger(__name__)

_ASK_LESS = "Ask for fewer hops or a more specific entity."

ENGINE_ERRORS = (RuntimeError, IndexError, ValueError, MemoryError, OSError)
"""Exceptions of the engine: its own errors are all RuntimeError, the rest are translated C++ exceptions."""


class KuzuSession:
    """A connection, used by one thread at a time."""

    def __init__(self, connection: kuzu.Connection, *, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._prepared: dict[str, kuzu.PreparedStatement] = {}
        self._deadline: float | None = None

    def rows(self, statement: str, **parameters: float | str | list[int]) -> list[list[object]]:
        """Run a prepared statement and return all its rows.

        Raises:
            InvalidInputError: a query timed out or needs too much memory, or a parameter is not a 64-bit
                number or not UTF-8.
            IndexDamagedError: the engine failed.
        """
        try:
            if self._deadline is not None:
                left = self._deadline - time.monotonic()
                self._connection.set_query_timeout(max(1, round(left * 1000)))
            found = self._connection.execute(self._prepare(statement), parameters)
            return cast("list[list[object]]", list(found))
        except ENGINE_ERRORS as error:
            if self._deadline is not None and is_out_of_memory(
                error
            ):  # a change that needs too much requires a rebuild
                raise InvalidInputError(
                    "The answer would need more memory than the graph may use.", advice=_ASK_LESS
                ) from error
            raise translate_error(error, path=self._path) from error

    def run(self, statement: str) -> None:
        """Run a statement that cannot be prepared: DDL, a COPY, a transaction boundary.

        Raises:
            InvalidInputError: a COPY names an entity that does not exist, or one twice.
            IndexDamagedError: the engine failed.
        """
        try:
            self._connection.execute(statement)
        except ENGINE_ERRORS as error:
            raise translate_error(error, path=self._path) from error

    @contextmanager
    def write_transaction(self) -> Generator[None]:
        """Run the block in a write transaction without a time limit: deleting a hub takes seconds."""
        self.run("BEGIN TRANSACTION")
        with self._commit_or_roll_back():
            yield

    @contextmanager
    def read_transaction(self, *, timeout_ms: int) -> Generator[None]:
        """Run the block in a read transaction (one snapshot) with a time limit."""
        self.run("BEGIN TRANSACTION READ ONLY")
        self._deadline = time.monotonic() + timeout_ms / 1000
        try:
            with self._commit_or_roll_back():
                yield
        finally:
            self._deadline = None

    def close(self) -> None:
        """Release the connection."""
        self._prepared.clear()
        self._connection.close()

    @contextmanager
    def _commit_or_roll_back(self) -> Generator[None]:
        try:
            yield
        except BaseException:
            self._roll_back()
            raise
        self.run("COMMIT")

    def _roll_back(self) -> None:
        try:
            self.run("ROLLBACK")
        except LoomError as error:
            # An error of the engine inside a transaction has rolled it back already.
            _log.debug("Nothing to roll back: %s", error)

    def _prepare(self, statement: str) -> kuzu.PreparedStatement:
        prepared = self._prepared.get(statement)
        if prepared is None:
            with warnings.catch_warnings():
                # Deprecated in 0.11, yet three times as fast as preparing at every call.
                warnings.simplefilter("ignore", DeprecationWarning)
                prepared = self._connection.prepare(statement)
            self._prepared[statement] = prepared
        return prepared


def open_database(
    module: str, path: Path, *, buffer_pool: int, max_db_size: int, read_only: bool = False
) -> kuzu.Database:
    """Open a database file, or make it.

    Args:
        module: name of the engine's Python module, `kuzu` or its fork `ladybug`.
        path: the database file.
        buffer_pool: bytes; the default would be four fifths of the machine's memory.
        max_db_size: bytes of address space, a power of 2; the default of 8 TiB fails in containers.
        read_only: change nothing, replay the log in memory.
    """
    engine = importlib.import_module(module)
    return engine.Database(
        str(path),
        buffer_pool_size=buffer_pool,
        max_num_threads=2,
        max_db_size=max_db_size,
        read_only=read_only,
    )


def connect(module: str, database: kuzu.Database) -> kuzu.Connection:
    """Open a connection to an open database: one for each thread."""
    return importlib.import_module(module).Connection(database)


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error means that the engine had too little memory."""
    return isinstance(error, MemoryError) or any(
        sign in str(error) for sign in ("bad_alloc", "Buffer manager")
    )


def translate_error(error: Exception, *, path: Path) -> LoomError:
    """Translate the engine's error by its text: all of them are RuntimeError."""
    text = str(error)
    if text.startswith("Interrupted"):
        return InvalidInputError("The graph did not answer in time.", advice=_ASK_LESS)
    if "Unable to cast Python instance" in text or isinstance(error, UnicodeError):
        return InvalidInputError(
            "The graph cannot store a value.", advice="Use keys below 2^63 and text that is valid Unicode."
        )
    if text.startswith("Copy exception") and "primary key" in text:
        return InvalidInputError(
            f"The graph cannot be loaded: {first_line(error)}.",
            advice="Give every entity once, and relations between those only.",
        )
    if "Could not set lock" in text:
        return StoreBusyError(
            f"Another process holds the graph at {path}.",
            advice="Close that process, or ask the one that owns the knowledge base.",
        )
    return IndexDamagedError(f"The graph at {path} failed: {first_line(error)}.", advice=REBUILD_ADVICE)


_NODE_TABLE = """
    CREATE NODE TABLE IF NOT EXISTS Entity(id INT64 PRIMARY KEY, name STRING, type STRING, mentions INT64)"""
_EDGE_TABLE = """
    CREATE REL TABLE IF NOT EXISTS
    REL(FROM Entity TO Entity, predicate STRING, support INT64, confidence DOUBLE)"""
# Changes go one row a statement: UNWIND $rows MATCH … scans for its nodes, 25 relations a second at 100,000.
_STORE_ENTITY = "MERGE (e:Entity {id: $id}) SET e.name = $name, e.type = $type, e.mentions = $mentions"
_UPDATE_RELATION = """
    MATCH (a:Entity {id: $subject})-[r:REL]->(b:Entity {id: $object}) WHERE r.predicate = $predicate
    SET r.support = $support, r.confidence = $confidence RETURN a.id"""
_CREATE_RELATION = """
    MATCH (a:Entity {id: $subject}), (b:Entity {id: $object})
    CREATE (a)-[r:REL {predicate: $predicate, support: $support, confidence: $confidence}]->(b) RETURN a.id"""
# Not DETACH DELETE: it leaves phantom relations that are still counted (kuzudb/kuzu issue 5954).
_DELETE_OUTGOING = "MATCH (:Entity {id: $id})-[r:REL]->(:Entity) DELETE r"
_DELETE_INCOMING = "MATCH (:Entity {id: $id})<-[r:REL]-(:Entity) DELETE r"
_DELETE_ENTITY = "MATCH (e:Entity {id: $id}) DELETE e"
_DELETE_RELATION = """
    MATCH (a:Entity {id: $subject})-[r:REL]->(b:Entity {id: $object})
    WHERE r.predicate = $predicate DELETE r"""
_ENTITIES = "MATCH (e:Entity) WHERE e.id IN $ids RETURN e.id, e.name, e.type, e.mentions ORDER BY e.id"
_RING_OF_ONE = """
    MATCH (:Entity {id: $id})-[r:REL]-(b:Entity) WHERE b.id <> $id
    RETURN b.id, CAST(sum(r.support) AS INT64) AS total ORDER BY total DESC, b.id LIMIT $limit"""
_RING_OF_MANY = """
    MATCH (a:Entity)-[r:REL]-(b:Entity) WHERE a.id IN $ring AND NOT b.id IN $met
    RETURN b.id, CAST(sum(r.support) AS INT64) AS total ORDER BY total DESC, b.id LIMIT $limit"""
_EDGES_AMONG = """
    MATCH (a:Entity)-[r:REL]->(b:Entity) WHERE a.id IN $ids AND b.id IN $ids
    RETURN a.id, r.predicate, b.id, r.support, r.confidence"""
_EDGES_OF_RANGE = """
    MATCH (a:Entity)-[r:REL]->(b:Entity) WHERE a.id >= $first AND a.id <= $last
    RETURN a.id, r.predicate, b.id, r.support, r.confidence"""
_EDGES_FROM = """
    MATCH (a:Entity)-[r:REL]->(b:Entity) WHERE a.id IN $ids
    RETURN a.id, r.predicate, b.id, r.support, r.confidence"""
_EDGES_TO = """
    MATCH (a:Entity)-[r:REL]->(b:Entity) WHERE b.id IN $ids AND NOT a.id IN $ids
    RETURN a.id, r.predicate, b.id, r.support, r.confidence"""
_COUNT_ENTITIES = "MATCH (e:Entity) RETURN count(*)"
_COUNT_RELATIONS = "MATCH (:Entity)-[r:REL]->(:Entity) RETURN count(*)"
# An empty string is a value here, so NULL needs another spelling, and one that no text has.
_COPY = "COPY {table} FROM '{file}' (header=false, parallel=false, null_strings=['\x01'])"


def create_schema(session: KuzuSession) -> None:
    """Create the two tables if they are missing."""
    session.run(_NODE_TABLE)
    session.run(_EDGE_TABLE)


def copy_table(session: KuzuSession, table: str, file: Path) -> None:
    """Load a CSV file, every field quoted, into a table: 90,000 rows a second."""
    quoted = file.as_posix().replace("\\", "\\\\").replace("'", "\\'")
    session.run(_COPY.format(table=table, file=quoted))


def store_entity(session: KuzuSession, entity: EntityNode) -> None:
    """Create or overwrite one entity."""
    session.rows(_STORE_ENTITY, id=entity.key, name=entity.name, type=entity.type, mentions=entity.mentions)


def update_relation(session: KuzuSession, edge: EntityEdge) -> bool:
    """Overwrite a relation's support and confidence; return whether it exists.

    Calling this before `create_relation` is faster than a MERGE of both.
    """
    return bool(session.rows(_UPDATE_RELATION, **_values(edge)))


def create_relation(session: KuzuSession, edge: EntityEdge) -> bool:
    """Create a relation; return whether both its ends exist."""
    return bool(session.rows(_CREATE_RELATION, **_values(edge)))


def delete_entity(session: KuzuSession, key: int) -> None:
    """Delete an entity with its relations: some ms, or 4 s for a hub of 60,000."""
    session.rows(_DELETE_OUTGOING, id=key)
    session.rows(_DELETE_INCOMING, id=key)
    session.rows(_DELETE_ENTITY, id=key)


def delete_relation(session: KuzuSession, subject: int, predicate: str, object_: int) -> None:
    """Delete one relation."""
    session.rows(_DELETE_RELATION, subject=subject, predicate=predicate, object=object_)


def read_entities(session: KuzuSession, keys: Collection[int]) -> list[EntityNode]:
    """Return the entities of some keys, by key; one scan of 20 ms at 100,000, less than fifty look-ups."""
    if not keys:
        return []
    rows = cast("list[tuple[int, str, str, int]]", session.rows(_ENTITIES, ids=list(keys)))
    return [EntityNode(*row) for row in rows]


def read_ring_of_one(session: KuzuSession, key: int, *, limit: int) -> list[int]:
    """Return the neighbours of one entity, the best supported first: 5 ms, or 60 ms for a hub of 60,000."""
    return _first_column(session.rows(_RING_OF_ONE, id=key, limit=limit))


def read_ring_of_many(session: KuzuSession, ring: list[int], *, met: list[int], limit: int) -> list[int]:
    """Return the unvisited neighbours of a ring, best supported first: 30 ms for a ring of 50.

    One statement for the whole ring: it scans, where a statement for each member would cost 5 ms each.
    """
    return _first_column(session.rows(_RING_OF_MANY, ring=ring, met=met, limit=limit))


def read_edges_among(session: KuzuSession, keys: Collection[int]) -> list[EntityEdge]:
    """Return every relation with both ends among the keys: 55 ms for 150 of 100,000."""
    rows = cast("list[tuple[int, str, int, int, float]]", session.rows(_EDGES_AMONG, ids=list(keys)))
    return [EntityEdge(*row) for row in rows]


def read_edges_of_range(session: KuzuSession, first: int, last: int) -> list[EntityEdge]:
    """Return every relation of the subjects from one key to another."""
    rows = session.rows(_EDGES_OF_RANGE, first=first, last=last)
    return [EntityEdge(*row) for row in cast("list[tuple[int, str, int, int, float]]", rows)]


def read_edges_touching(session: KuzuSession, keys: Collection[int]) -> list[EntityEdge]:
    """Return every relation with an end among the keys: two scans, 0.4 s for 10,000 of 280,000."""
    ids = list(keys)
    rows = [row for statement in (_EDGES_FROM, _EDGES_TO) for row in session.rows(statement, ids=ids)]
    return [EntityEdge(*row) for row in cast("list[tuple[int, str, int, int, float]]", rows)]


def read_counts(session: KuzuSession) -> tuple[int, int]:
    """Return how many entities and relations there are."""
    (entities,) = _first_column(session.rows(_COUNT_ENTITIES))
    (relations,) = _first_column(session.rows(_COUNT_RELATIONS))
    return entities, relations


def _values(edge: EntityEdge) -> dict[str, int | float | str]:
    return {
        "subject": edge.subject,
        "predicate": edge.predicate,
        "object": edge.object,
        "support": edge.support,
        "confidence": edge.confidence,
    }


def _first_column(rows: list[list[object]]) -> list[int]:
    return [cast("int", row[0]) for row in rows]


_TABLES = ("Entity", "REL")

_ENTITY = attrgetter("key", "name", "type", "mentions")
_RELATION = attrgetter("subject", "object", "predicate", "support", "confidence")


def write_tables(folder: Path, entities: Iterable[EntityNode], relations: Iterable[EntityEdge]) -> None:
    """Write all entities and all relations into a folder, in this order."""
    _write(folder / "Entity.csv", map(_ENTITY, entities))
    _write(folder / "REL.csv", map(_RELATION, relations))


def copy_tables(session: KuzuSession, folder: Path) -> None:
    """Load what `write_tables` wrote into a new database.

    Raises:
        InvalidInputError: an entity is there twice, or the end of a relation is missing.
        IndexDamagedError: the engine failed.
    """
    for table in _TABLES:
        file = folder / f"{table}.csv"
        if file.stat().st_size:  # the engine refuses an empty file
            copy_table(session, table, file)


def tables_size(folder: Path) -> int:
    """Return the size in bytes of what `write_tables` wrote."""
    return sum((folder / f"{table}.csv").stat().st_size for table in _TABLES)


def _write(file: Path, rows: Iterable[tuple[int | str | float, ...]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows(rows)
