"""Graph store in Kùzu: entities and relations on disk."""

from __future__ import annotations

import tempfile
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from loom_core.errors import StoreBusyError
from loom_core.knowledge.indexes.engines.graph_rules import (
    missing_ends_error,
    strongest_first,
    validate_hops,
)
from loom_core.knowledge.indexes.engines.kuzu_session import (
    ENGINE_ERRORS,
    KuzuSession,
    connect,
    copy_tables,
    create_relation,
    create_schema,
    delete_entity,
    delete_relation,
    open_database,
    read_counts,
    read_edges_among,
    read_edges_of_range,
    read_edges_touching,
    read_entities,
    read_ring_of_many,
    read_ring_of_one,
    store_entity,
    tables_size,
    translate_error,
    update_relation,
    write_tables,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Sequence
    from typing import Self

    from loom_core.knowledge.interface import EntityEdge, EntityNode

__all__ = ["KuzuGraphStore", "claim", "kuzu_files", "release", "remove_kuzu_files"]

# Loading needs two to three times the tables' bytes in the buffer pool, measured from 10 to 134 MB.
_POOL_FOR_TABLES = 4


class KuzuGraphStore:
    """`GraphStore` over one Kùzu database file.

    The file belongs to one process, and to one store in it. Changes are one transaction a call, one call
    at a time; readers have a connection each and run concurrently. A few thousand changes go row by row
    (several hundred entities, or some 200 relations, a second): build anything larger with `load`. No
    explicit checkpoint is ever requested: the database survives a kill between automatic checkpoints, but not
    always around an explicit one.
    """

    def __init__(
        self,
        path: Path,
        *,
        module: str = "kuzu",
        buffer_pool_mb: int = 256,
        max_db_size: int = 1 << 34,
        timeout_ms: int = 4000,
    ) -> None:
        """Open the database, or make it.

        Args:
            path: the database file; the engine keeps others next to it.
            module: name of the engine's Python module, `kuzu` or its fork `ladybug`.
            buffer_pool_mb: memory for pages.
            max_db_size: address space in bytes, a power of 2.
            timeout_ms: time limit of a query; must be below 5000, for which the engine's checkpoint waits for
                queries before it makes a change fail.

        Raises:
            StoreBusyError: it is open already, here or in another process.
            IndexDamagedError: it does not open. Worse damage can crash or hang: run `probe_kuzu` first.
        """
        self._path = path.resolve()
        self._module = module
        self._timeout_ms = timeout_ms
        self._writing = threading.Lock()
        self._idle: list[KuzuSession] = []
        claim(self._path)
        with ExitStack() as undo:
            undo.callback(release, self._path)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._database = open_database(
                    module, self._path, buffer_pool=buffer_pool_mb << 20, max_db_size=max_db_size
                )
                undo.callback(self._database.close)
                self._writer = self._new_session()
            except ENGINE_ERRORS as error:
                raise translate_error(error, path=self._path) from error
            create_schema(self._writer)
            undo.pop_all()

    @classmethod
    def load(
        cls,
        path: Path,
        entities: Iterable[EntityNode],
        relations: Iterable[EntityEdge],
        *,
        module: str = "kuzu",
        buffer_pool_mb: int = 256,
        max_db_size: int = 1 << 34,
        timeout_ms: int = 4000,
    ) -> Self:
        """Build a database from scratch from all entities and relations: tens of thousands of each a second.

        A database at `path` is deleted first; if loading fails, nothing is left there.

        Args:
            path: the database file.
            entities: every entity once.
            relations: every relation once, between those.
            module: as for opening.
            buffer_pool_mb: as for opening; increased if loading needs more.
            max_db_size: as for opening.
            timeout_ms: as for opening.

        Raises:
            InvalidInputError: an entity is there twice, or the end of a relation is missing.
            StoreBusyError: the database is open.
            IndexDamagedError: the engine failed.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            write_tables(Path(folder), entities, relations)
            return cls.load_tables(
                path,
                Path(folder),
                module=module,
                buffer_pool_mb=buffer_pool_mb,
                max_db_size=max_db_size,
                timeout_ms=timeout_ms,
            )

    @classmethod
    def load_tables(
        cls,
        path: Path,
        tables: Path,
        *,
        module: str = "kuzu",
        buffer_pool_mb: int = 256,
        max_db_size: int = 1 << 34,
        timeout_ms: int = 4000,
    ) -> Self:
        """Build a database from a folder of `write_tables`."""
        claim(path)  # so that no open database is deleted
        try:
            remove_kuzu_files(path)
        finally:
            release(path)
        store = cls(
            path,
            module=module,
            buffer_pool_mb=max(buffer_pool_mb, _POOL_FOR_TABLES * tables_size(tables) >> 20),
            max_db_size=max_db_size,
            timeout_ms=timeout_ms,
        )
        try:
            copy_tables(store._writer, tables)
        except BaseException:
            store.close()
            remove_kuzu_files(path)
            raise
        return store

    def upsert_entities(self, entities: Sequence[EntityNode]) -> None:
        """Store entities; an existing key is overwritten. All of them or none.

        Raises:
            InvalidInputError: a key is not below 2^63, or a text is not Unicode.
            IndexDamagedError: the engine failed.
        """
        with self._write_transaction() as session:
            for entity in entities:
                store_entity(session, entity)

    def upsert_relations(self, relations: Sequence[EntityEdge]) -> None:
        """Store relations (identity: subject, predicate, object). All of them or none.

        Raises:
            InvalidInputError: an end of a relation does not exist.
            IndexDamagedError: the engine failed.
        """
        with self._write_transaction() as session:
            for edge in relations:
                if not update_relation(session, edge) and not create_relation(session, edge):
                    ends = {edge.subject, edge.object}
                    raise missing_ends_error(ends - {entity.key for entity in read_entities(session, ends)})

    def delete_entities(self, keys: Collection[int]) -> None:
        """Forget entities with every relation that touches them; unknown ones are ignored.

        Raises:
            IndexDamagedError: the engine failed.
        """
        with self._write_transaction() as session:
            for key in keys:
                delete_entity(session, key)

    def delete_relations(self, relations: Collection[tuple[int, str, int]]) -> None:
        """Forget relations by identity; unknown ones are ignored.

        Raises:
            IndexDamagedError: the engine failed.
        """
        with self._write_transaction() as session:
            for identity in relations:
                delete_relation(session, *identity)

    def get(self, keys: Collection[int]) -> list[EntityNode]:
        """Return the entities with these keys in the order of their keys, unknown ones left out.

        Raises:
            InvalidInputError: the engine did not answer in time.
            IndexDamagedError: the engine failed.
        """
        with self._read_transaction() as session:
            return read_entities(session, keys)

    def neighbours(
        self, key: int, *, hops: int = 1, limit: int = 50
    ) -> tuple[list[EntityNode], list[EntityEdge]]:
        """Return entities around one and the edges among them and to it; an unknown key has none.

        A hop adds the `limit` unvisited entities with the most total support from the
        entities of the hop before it; equals come in the order of their keys. So a hub of 60,000 edges
        costs one pass over them (0.1 s) and is never followed whole.

        Raises:
            InvalidInputError: `hops` is not 1 to 3, or the engine did not answer in time.
            IndexDamagedError: the engine failed.
        """
        validate_hops(hops)
        if limit < 1:
            return [], []
        with self._read_transaction() as session:
            ring = read_ring_of_one(session, key, limit=limit)
            met = [key, *ring]
            for _ in range(hops - 1):
                if ring:
                    ring = read_ring_of_many(session, ring, met=met, limit=limit)
                    met += ring
            found = {entity.key: entity for entity in read_entities(session, met)}
            return [found[other] for other in met[1:]], strongest_first(read_edges_among(session, met))

    def relations(self, first: int, last: int) -> list[EntityEdge]:
        """Return every relation whose subject's key is from `first` to `last`, in no order.

        Raises:
            InvalidInputError: the engine did not answer in time.
            IndexDamagedError: the engine failed.
        """
        with self._read_transaction() as session:
            return read_edges_of_range(session, first, last)

    def touching(self, keys: Collection[int]) -> list[EntityEdge]:
        """Return every relation with an end among the keys, in no order, however long it takes.

        Raises:
            IndexDamagedError: the engine failed.
        """
        with self._writing:  # the writer's connection has no time limit
            return read_edges_touching(self._writer, keys) if keys else []

    def counts(self) -> tuple[int, int]:
        """Return how many entities and how many relations are stored."""
        with self._read_transaction() as session:
            return read_counts(session)

    def close(self) -> None:
        """Flush and release files."""
        with self._writing:
            try:
                while self._idle:
                    self._idle.pop().close()
                self._writer.close()
                self._database.close()
            except ENGINE_ERRORS as error:
                raise translate_error(error, path=self._path) from error
            finally:
                release(self._path)

    def _new_session(self) -> KuzuSession:
        return KuzuSession(connect(self._module, self._database), path=self._path)

    @contextmanager
    def _read_transaction(self) -> Generator[KuzuSession]:
        """Borrow a connection for this thread, in a read transaction."""
        try:
            session = self._idle.pop()
        except IndexError:
            session = self._new_session()
        try:
            with session.read_transaction(timeout_ms=self._timeout_ms):
                yield session
        finally:
            self._idle.append(session)

    @contextmanager
    def _write_transaction(self) -> Generator[KuzuSession]:
        """Use the single writer, in a transaction."""
        with self._writing, self._writer.write_transaction():
            yield self._writer


_SUFFIXES = ("", ".wal", ".shadow", ".tmp")

_open_paths: set[Path] = set()
_open_paths_lock = threading.Lock()


def claim(path: Path) -> None:
    """Claim a database for this process; undone by `release`.

    The engine allows a second opening in the same process, and closing that drops the lock of the first.

    Raises:
        StoreBusyError: it is open already.
    """
    with _open_paths_lock:
        if path.resolve() in _open_paths:
            raise StoreBusyError(
                f"The graph at {path} is open in this process already.",
                advice="Use that one, or close it first.",
            )
        _open_paths.add(path.resolve())


def release(path: Path) -> None:
    """Release the claim on a database, after closing it."""
    with _open_paths_lock:
        _open_paths.discard(path.resolve())


def kuzu_files(path: Path) -> list[Path]:
    """Return all the files that a database at `path` may have, itself first, its log second."""
    return [path.with_name(path.name + suffix) for suffix in _SUFFIXES]


def remove_kuzu_files(path: Path) -> None:
    """Delete a closed database with its log.

    They must go together: a remaining log would be replayed onto the next database of that name.
    """
    for file in kuzu_files(path):
        file.unlink(missing_ok=True)
