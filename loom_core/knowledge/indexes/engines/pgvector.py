"""Vectors in PostgreSQL with pgvector: a table for each collection, in a schema of their own.

Up to 50,000 passages are compared one by one, whether they are a whole language or all that a filter allows:
that is exact, and as fast as an index. A larger language gets an HNSW index of its own from `build`: searches
name a language, and an index over all languages must be searched far to find enough of a rare one. Numbers
have 16 bits, as in the store. See https://github.com/pgvector/pgvector#filtering.
"""

from __future__ import annotations

import re
import struct
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar

from loom_core.errors import IndexDamagedError, first_line
from loom_core.knowledge.indexes.engines.servers import (
    INDEX_USE,
    split_batches,
    unavailable,
)
from loom_core.plugin_registry import register
from loom_core.storage.postgres_pool import (
    POSTGRES_ADVICE,
    PostgresPool,
    import_psycopg,
    is_lost,
    read_postgres_url,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping, Sequence

    import numpy as np
    import psycopg
    from numpy.typing import NDArray
    from psycopg import sql
    from pydantic import SecretStr

    from loom_core.errors import LoomError
    from loom_core.knowledge.indexes.engines.servers import ServerUse
    from loom_core.knowledge.interface import PassageVectors, VectorQuery

    _Done = TypeVar("_Done")
    _Connection = psycopg.Connection[tuple[Any, ...]]
    _Hits = list[tuple[int, float]]

__all__ = ["PgVectorIndex", "PostgresDatabase"]

_ENGINE = "PostgreSQL"
_SEARCH_SECONDS = 10.0
_WRITE_SECONDS = 60.0
_BUILD_SECONDS = 3600.0
_LOCK_SECONDS = 5.0
_CONNECTIONS = 8
_BATCH = 2000  # passages in a transaction; with an HNSW index, some 3 s
_COMPARED_ROWS = 50_000
_MOST_DIMENSIONS = 4000  # of an HNSW index over halfvec
_CANDIDATES = 4  # for each passage that is wanted
_FEWEST_CANDIDATES = 200
_MOST_CANDIDATES = 1000  # pgvector's limit of hnsw.ef_search
_MOST_SCANNED = 200_000  # passages that HNSW looks at for one query
_NODE_BYTES = 1000  # of an HNSW graph in memory, besides the vector
_MOST_BUILD_KILOBYTES = 1 << 20
_DAMAGES = frozenset(
    {
        "22000",  # vectors of another dimension
        "3F000",  # no such schema
        "42703",  # no such column
        "42P01",  # no such table
        "58030",  # the server cannot read its files
        "58P01",  # one of its files is gone
    }
)
_HEAD = struct.Struct(">HH")  # before the numbers of a halfvec in binary form: how many, and zero
_OLDEST = (0, 8)  # the first with iterative scans

# -- statements; {table} is replaced in all of them, and {index} is the name of a language's HNSW index ----

_CREATE: LiteralString = """
    CREATE TABLE {table} (
        key bigint PRIMARY KEY,
        language text COLLATE "C" NOT NULL,
        document bigint NOT NULL,
        vector halfvec({dimension}) NOT NULL
    ) WITH (toast_tuple_target = 8160)"""  # comparing is slow where vectors are stored apart from their rows
_CREATE_HNSW: LiteralString = """
    CREATE INDEX IF NOT EXISTS {name} ON {table} USING hnsw (vector halfvec_ip_ops)
    WITH (m = 24, ef_construction = 100) WHERE language = {language}"""
_BUILD_MEMORY: LiteralString = """
    SELECT set_config('maintenance_work_mem',
        greatest(pg_size_bytes(current_setting('maintenance_work_mem')) / 1024, %s) || 'kB', true)"""
_VECTORS: LiteralString = """
    SELECT key, halfvec_send(vector::halfvec({dimension})) FROM {table}
    WHERE key = ANY(%(keys)s::bigint[])"""
_LANGUAGES: LiteralString = """
    WITH RECURSIVE found AS (
        (SELECT language FROM {table} ORDER BY language LIMIT 1)
        UNION ALL
        SELECT (SELECT language FROM {table} WHERE language > found.language ORDER BY language LIMIT 1)
        FROM found WHERE found.language IS NOT NULL
    ) SELECT language FROM found WHERE language IS NOT NULL"""

# Sorting by a sum keeps the planner from using HNSW.
_EXACT: LiteralString = """
    SELECT key, (vector <#> %(vector)s::halfvec) + 0 AS distance, true FROM {table}
    WHERE language = %(language)s ORDER BY distance LIMIT %(limit)s"""
_EXACT_ALLOWED: LiteralString = """
    SELECT key, (vector <#> %(vector)s::halfvec) + 0 AS distance, true FROM {table}
    WHERE language = %(language)s AND document = ANY(%(documents)s::bigint[])
    ORDER BY distance LIMIT %(limit)s"""
# Which of the two halves is executed is decided once, by the server, which knows what is indexed.
_NEAREST: LiteralString = """
    (SELECT key, (vector <#> %(vector)s::halfvec) + 0 AS distance, true FROM {table}
     WHERE language = %(language)s AND to_regclass(%(index)s) IS NULL ORDER BY distance LIMIT %(limit)s)
    UNION ALL
    (SELECT key, vector <#> %(vector)s::halfvec AS distance, false FROM {table}
     WHERE language = %(language)s AND to_regclass(%(index)s) IS NOT NULL
     ORDER BY vector <#> %(vector)s::halfvec LIMIT %(limit)s)"""
_NEAREST_ALLOWED: LiteralString = """
    WITH compared AS MATERIALIZED (
        SELECT key, vector <#> %(vector)s::halfvec AS distance FROM {table}
        WHERE language = %(language)s AND document = ANY(%(documents)s::bigint[]) LIMIT %(most)s + 1)
    (SELECT key, distance, true FROM compared
     WHERE (SELECT count(*) FROM compared) <= %(most)s ORDER BY distance LIMIT %(limit)s)
    UNION ALL
    (SELECT key, vector <#> %(vector)s::halfvec AS distance, false FROM {table}
     WHERE language = %(language)s AND document = ANY(%(documents)s::bigint[])
     AND (SELECT count(*) FROM compared) > %(most)s
     ORDER BY vector <#> %(vector)s::halfvec LIMIT %(limit)s)"""


@register("vector_index", "pgvector")
class PgVectorIndex:
    """`VectorIndex` over a table of PostgreSQL with pgvector 0.8 or later.

    It works through PgBouncer in transaction mode. The role needs the right to create a schema, or a schema
    of its own; the extension `vector` is created if the role may do that. Vectors of more than 4,000 numbers
    are always compared one by one, as HNSW takes no longer ones.

    Args:
        url: `postgresql://user@host:port/database`, with `?schema=` (default `loom`) and the parameters of
            libpq (https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS).
        secret: the password; without one, libpq looks for PGPASSWORD and the password file.
        collection: name of the table.
        dimension: length of the vectors.

    Raises:
        ConfigError: the URL is not one of PostgreSQL, or the package `psycopg` is not installed.
    """

    def __init__(self, url: str, *, secret: SecretStr | None, collection: str, dimension: int) -> None:
        self._database = PostgresDatabase(url, secret=secret)
        from psycopg import sql

        self._collection = collection
        self._dimension = dimension
        schema = self._database.schema or "loom"
        self._schema = sql.Identifier(schema)
        self._table = sql.Identifier(schema, collection)

    def create(self) -> None:
        """Make the table, empty, with its schema and the extension; see `VectorIndex.create`."""

        def create(connection: _Connection) -> None:
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('loom.create'))")  # IF NOT EXISTS races
            self._database.require_extension(connection)
            # CREATE SCHEMA IF NOT EXISTS needs the right to create one even where there is one.
            known = connection.execute("SELECT to_regnamespace(%s)", [self._schema.as_string()]).fetchone()
            if known == (None,):
                connection.execute(self._sql("CREATE SCHEMA {schema}"))
            connection.execute(self._sql("DROP TABLE IF EXISTS {table}"))
            connection.execute(self._sql(_CREATE, dimension=self._dimension))
            connection.execute(self._sql("CREATE INDEX ON {table} (language, document)"))

        self._database.run(create, _WRITE_SECONDS)

    def upsert(self, passages: PassageVectors) -> None:
        """Store passages, in transactions of 2,000; see `VectorIndex.upsert`."""
        for batch in split_batches(passages, _BATCH):
            self._database.run(lambda connection, batch=batch: self._write(connection, batch), _WRITE_SECONDS)

    def delete(self, keys: Collection[int]) -> None:
        """Forget keys; see `VectorIndex.delete`."""
        if keys:
            gone = _array(keys)
            self._database.run(lambda connection: self._delete(connection, gone), _WRITE_SECONDS)

    def build(self) -> None:
        """Make the HNSW index of each language that is large and has none yet; see `VectorIndex.build`.

        Searches go on meanwhile; writes wait.
        """

        def build(connection: _Connection) -> None:
            counted = self._sql("SELECT language, count(*) FROM {table} GROUP BY language")
            for language, rows in connection.execute(counted).fetchall():
                if rows > _COMPARED_ROWS and self._dimension <= _MOST_DIMENSIONS:
                    self._index(connection, language, rows)
            connection.execute(self._sql("ANALYZE {table}"))

        self._database.run(build, _BUILD_SECONDS)

    def search(self, queries: Sequence[VectorQuery]) -> list[list[tuple[int, float]]]:
        """Find the nearest passages, for all queries in one round trip; see `VectorIndex.search`.

        A second one is needed to list the languages, for a query without one; and to compare all that a query
        allows where the HNSW index found less than `limit`.
        """
        asked = [(place, query) for place, query in enumerate(queries) if query.limit > 0]
        if any(not query.language for _, query in asked):
            languages = self._rows(_LANGUAGES, seconds=_SEARCH_SECONDS)
            asked = [
                (place, replace(query, language=language))
                for place, query in asked
                for language in ([query.language] if query.language else [name for (name,) in languages])
            ]
        answers = self._ask([query for _, query in asked])
        short = [
            row
            for row, ((_, query), rows) in enumerate(zip(asked, answers, strict=True))
            if len(rows) < query.limit and not all(exact for *_, exact in rows)
        ]
        if short:
            again = self._ask([asked[row][1] for row in short], exact=True)
            for row, rows in zip(short, again, strict=True):
                answers[row] = rows
        hits: list[_Hits] = [[] for _ in queries]
        for (place, _), rows in zip(asked, answers, strict=True):
            hits[place] += [(key, -distance) for key, distance, _ in rows]
        return [
            sorted(found, key=lambda hit: (-hit[1], hit[0]))[: query.limit]
            for query, found in zip(queries, hits, strict=True)
        ]

    def vectors(self, keys: Collection[int]) -> dict[int, NDArray[np.float32]]:
        """Return the stored vectors of keys; see `VectorIndex.vectors`."""
        import numpy as np

        # The cast fails for vectors of another dimension, which is damage.
        rows = self._rows(_VECTORS, {"keys": _array(keys)}, seconds=_SEARCH_SECONDS) if keys else []
        return {key: np.frombuffer(sent, ">f2", offset=_HEAD.size).astype(np.float32) for key, sent in rows}

    def keys(self) -> list[int]:
        """Return all keys; see `VectorIndex.keys`."""
        return [key for (key,) in self._rows("SELECT key FROM {table}", seconds=_WRITE_SECONDS)]

    def count(self) -> int:
        """Return how many passages are stored; see `VectorIndex.count`."""
        [(count,)] = self._rows("SELECT count(*) FROM {table}", seconds=_WRITE_SECONDS)
        return count

    def drop(self) -> None:
        """Delete the table, if there is one; see `VectorIndex.drop`."""
        statement = self._sql("DROP TABLE IF EXISTS {table}")
        self._database.run(lambda connection: connection.execute(statement), _WRITE_SECONDS)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    # -- statements --------------------------------------------------------------------------------

    def _sql(self, statement: LiteralString, **parts: object) -> sql.Composed:
        from psycopg import sql

        return sql.SQL(statement).format(table=self._table, schema=self._schema, **parts)

    def _index_name(self, language: str) -> str:
        return "hnsw_" + sha256(f"{self._collection} {language}".encode()).hexdigest()[:32]

    def _rows(
        self, statement: LiteralString, parameters: Mapping[str, object] | None = None, *, seconds: float
    ) -> list[tuple[Any, ...]]:
        query = self._sql(statement, dimension=self._dimension)
        done = self._database.run(
            lambda connection: connection.execute(query, parameters, binary=True), seconds, pipelined=True
        )
        return done.fetchall()

    def _ask(self, queries: Sequence[VectorQuery], *, exact: bool = False) -> list[list[tuple[Any, ...]]]:
        """Ask the server for keys, negative cosines, and whether all was compared; in one round trip."""
        if not queries:
            return []
        arrays: dict[int, str] = {}
        statements: list[tuple[sql.Composed, dict[str, object]]] = []
        for query in queries:
            values: dict[str, object] = {
                "vector": f"[{','.join(map(str, query.vector.tolist()))}]",
                "language": query.language,
                "limit": query.limit,
                "index": f"{self._schema.as_string()}.{self._index_name(query.language)}",
                "most": _COMPARED_ROWS,
            }
            if query.documents is not None:
                if id(query.documents) not in arrays:
                    arrays[id(query.documents)] = _array(query.documents)
                values["documents"] = arrays[id(query.documents)]
            if exact:
                statement = _EXACT if query.documents is None else _EXACT_ALLOWED
            else:
                statement = _NEAREST if query.documents is None else _NEAREST_ALLOWED
            statements.append((self._sql(statement), values))
        most = max(query.limit for query in queries)
        done = self._database.run(
            lambda connection: [
                connection.execute(statement, values, binary=True) for statement, values in statements
            ],
            _SEARCH_SECONDS,
            pipelined=True,
            settings={
                "hnsw.iterative_scan": "relaxed_order",
                "hnsw.ef_search": str(min(max(_FEWEST_CANDIDATES, _CANDIDATES * most), _MOST_CANDIDATES)),
                "hnsw.max_scan_tuples": str(_MOST_SCANNED),
                "hnsw.scan_mem_multiplier": "8",
                "enable_sort": "off",  # or the planner may think that comparing more than 50,000 is cheaper
                "jit": "off",  # compiling takes longer than searching, and so does starting workers
                "max_parallel_workers_per_gather": "0",
            },
        )
        return [cursor.fetchall() for cursor in done]

    def _write(self, connection: _Connection, passages: PassageVectors) -> None:
        # A retry waits here for the transaction that it repeats, if the server still commits that.
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [self._table.as_string()])
        self._delete(connection, _array(passages.keys))
        head = _HEAD.pack(passages.vectors.shape[1], 0)
        rows = passages.vectors.astype(">f2")
        with connection.cursor().copy(self._sql("COPY {table} FROM STDIN (FORMAT BINARY)")) as copy:
            copy.set_types(["int8", "text", "int8", "bytea"])  # a halfvec arrives as the bytes that it is
            for key, language, document, row in zip(
                passages.keys, passages.languages, passages.documents, rows, strict=True
            ):
                copy.write_row((key, language, document, head + row.tobytes()))

    def _delete(self, connection: _Connection, keys: str) -> None:
        connection.execute(self._sql("DELETE FROM {table} WHERE key = ANY(%s::bigint[])"), [keys])

    def _index(self, connection: _Connection, language: str, rows: int) -> None:
        from psycopg import sql
        from psycopg.errors import DiskFull

        kilobytes = min(rows * (2 * self._dimension + _NODE_BYTES) // 1024, _MOST_BUILD_KILOBYTES)
        connection.execute(_BUILD_MEMORY, [kilobytes])
        statement = self._sql(
            _CREATE_HNSW, language=language, name=sql.Identifier(self._index_name(language))
        )
        try:
            with connection.transaction():
                connection.execute(statement)
        except DiskFull:  # often of shared memory alone, of which a container has 64 MB
            connection.execute("SET LOCAL max_parallel_maintenance_workers = 0")
            connection.execute(statement)


class PostgresDatabase:
    """Connections to one database, kept open; each use of one has a deadline, and errors are translated.

    Args:
        url: as for `PgVectorIndex`.
        secret: the password; without one, libpq looks for PGPASSWORD and the password file.
        use: what Loom uses it for.

    Attributes:
        schema: the schema that the URL names, or empty.

    Raises:
        ConfigError: the URL is not one of PostgreSQL, or the package `psycopg` is not installed.
    """

    def __init__(self, url: str, *, secret: SecretStr | None, use: ServerUse = INDEX_USE) -> None:
        import_psycopg("pgvector")
        parameters, self.schema = read_postgres_url(
            url, secret=use.secret, example=use.address("pgvector", "postgresql://user@host:5432/database")
        )
        self._use = use
        self._pool = PostgresPool(
            parameters,
            secret=secret,
            size=_CONNECTIONS,
            unavailable=lambda reason, state: self.unavailable(reason, state=state),
        )

    def run(
        self,
        work: Callable[[_Connection], _Done],
        seconds: float,
        *,
        pipelined: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> _Done:
        """Do something in a transaction, and once more if the connection turns out to be lost.

        Args:
            work: what to do; it may be done twice.
            seconds: how long it may take.
            pipelined: send everything at once; results can be read when all is done.
            settings: settings of the server for this transaction.

        Raises:
            StoreUnavailableError, IndexDamagedError: as `VectorIndex`.
        """
        import psycopg

        values = {
            "statement_timeout": f"{seconds * 900:.0f}",  # earlier than ours, so that the server stops, too
            "lock_timeout": f"{_LOCK_SECONDS * 1000:.0f}",
            **(settings or {}),
        }
        set_all = "SELECT " + ", ".join(["set_config(%s, %s, true)"] * len(values))
        named = [text for setting in values.items() for text in setting]
        with self._pool.reserve(seconds):
            for is_last in (False, True):
                try:
                    with self._pool.lease(seconds) as connection, _begin(connection, pipelined=pipelined):
                        connection.execute(set_all.encode(), named)
                        return work(connection)
                except psycopg.Error as error:
                    if is_last or not is_lost(error):
                        raise self._translate(error) from error
                self._pool.close_idle()  # a server that was restarted has lost them all
            raise AssertionError("the second attempt returns or raises")

    def require_extension(self, connection: _Connection) -> None:
        """Make the extension `vector` where there is none.

        Raises:
            StoreUnavailableError: the role may not make it, the server does not have it, or it is too old.
        """
        import psycopg

        statement = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
        found = connection.execute(statement).fetchone()
        if found is None:
            try:
                connection.execute("CREATE EXTENSION vector")
            except psycopg.Error as error:
                if not error.sqlstate or error.sqlstate[:2] not in {"0A", "42", "58"}:
                    raise
                raise self.unavailable(
                    f"it lacks the extension vector, which cannot be made ({first_line(error)})",
                    advice="Install pgvector on the server, and let an administrator run CREATE EXTENSION "
                    "vector in this database.",
                ) from error
            found = connection.execute(statement).fetchone()
        [version] = found or ("",)
        if tuple(map(int, re.findall(r"\d+", version)))[:2] < _OLDEST:
            raise self.unavailable(
                f"its pgvector is {version}, and 0.8 is needed",
                advice="Update pgvector on the server, then run ALTER EXTENSION vector UPDATE there.",
            )

    def unavailable(self, reason: str, *, advice: str = "", state: str = "") -> LoomError:
        """Return the error for a server that cannot be asked now, with advice for a SQLSTATE."""
        if state in {"28000", "28P01"}:
            advice = f"Check user and password: {self._use.secret}, or that of libpq (PGPASSWORD, .pgpass)."
        elif state == "42501":
            advice = "Let an administrator grant it SELECT on the table."
            if self._use.is_index:
                advice = (
                    "Let an administrator grant the role CREATE on the database, or make a schema for it."
                )
        elif state in POSTGRES_ADVICE:
            advice = POSTGRES_ADVICE[state] + (" Nothing is lost." if self._use.is_index else "")
        return unavailable(_ENGINE, self._pool.address, reason, advice=advice, use=self._use)

    def close(self) -> None:
        """Close the connections; one that is in use is closed after that."""
        self._pool.close()

    def _translate(self, error: psycopg.Error) -> LoomError:
        state = error.sqlstate or ""
        if state in _DAMAGES or state.startswith("XX"):
            return IndexDamagedError(
                f"The collection in {_ENGINE} at {self._pool.address} is missing or broken: "
                f"{first_line(error)}.",
                advice="It is derived from the store, and is written again from there.",
            )
        return self.unavailable(first_line(error), state=state)


@contextmanager
def _begin(connection: _Connection, *, pipelined: bool) -> Generator[None]:
    """Do what follows in a transaction; pipelined, all of it takes one round trip."""
    if pipelined:
        with connection.pipeline():
            connection.execute("BEGIN")  # `transaction` waits for the server twice
            yield
            connection.execute("COMMIT")
    else:
        with connection.transaction():
            yield


def _array(keys: Collection[int]) -> str:
    """Write an array as PostgreSQL reads it: much quicker than an adapter for each of 30,000 keys."""
    return f"{{{','.join(map(str, keys))}}}"
