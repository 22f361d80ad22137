"""Vectors in PostgreSQL with pgvector, with a server of this machine."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from secrets import token_hex

import numpy as np
import psycopg
import pytest
from pydantic import SecretStr

from loom_core.errors import ConfigError, IndexDamagedError, StoreUnavailableError
from loom_core.knowledge.indexes.engines import pgvector
from loom_core.knowledge.indexes.engines.servers import open_vector_index
from loom_core.knowledge.interface import PassageVectors, VectorIndex, VectorQuery
from loom_core.storage import postgres_pool
from loom_core.testing.stores import VectorIndexContract
from tests.fixtures.store_servers import free_port
from tests.fixtures.store_servers.postgres import PASSWORD, PostgresServer, run_postgres

DIMENSION = 16
SECRET = SecretStr(PASSWORD)


@pytest.fixture(scope="module")
def server() -> Generator[PostgresServer]:
    with run_postgres() as running:
        TestPgVectorIndex.url = running.setting()
        yield running


@pytest.fixture
def name(server: PostgresServer) -> Generator[str]:
    """The name of a collection, which is deleted at the end."""
    collection = f"test_{token_hex(4)}"
    yield collection
    run(server, f"DROP TABLE IF EXISTS loom.{collection}")


@pytest.fixture
def index(server: PostgresServer, name: str) -> Generator[VectorIndex]:
    """A collection with the keys 1 to 600, ten to a document, every third in Chinese."""
    made = open_index(server.setting(), name)
    made.create()
    made.upsert(passages(range(1, 601)))
    yield made
    made.close()


@pytest.mark.usefixtures("server")
class TestPgVectorIndex(VectorIndexContract):
    secret = SECRET
    unreachable = f"pgvector+postgresql://loom@127.0.0.1:{free_port()}/postgres"


class TestHnsw:
    @pytest.fixture(autouse=True)
    def _large(self, monkeypatch: pytest.MonkeyPatch, index: VectorIndex) -> None:
        monkeypatch.setattr(pgvector, "_COMPARED_ROWS", 300)
        monkeypatch.setattr(pgvector, "_FEWEST_CANDIDATES", 40)  # more cost more than comparing 600 passages
        index.build()

    def test_only_large_languages_are_indexed(self, server: PostgresServer, name: str) -> None:
        assert hnsw_indexes(server, name) == ["(language = 'alphabetic'::text)"]

    def test_the_index_is_used_where_many_passages_are_allowed(
        self, server: PostgresServer, name: str
    ) -> None:
        search_once(server, name, query(1, language="alphabetic"))
        assert uses(server, name) == 1
        search_once(server, name, query(1, language="alphabetic", documents=range(60)))
        assert uses(server, name) == 2

    def test_few_allowed_passages_are_compared(self, server: PostgresServer, name: str) -> None:
        few = query(1, language="alphabetic", documents=range(30))
        search_once(server, name, few, query(1, language="han"))
        assert uses(server, name) == 0

    def test_a_query_without_a_language_asks_for_each(self, index: VectorIndex) -> None:
        [hits] = index.search([query(7, limit=600)])
        assert sorted(key for key, _ in hits) == list(range(1, 601))
        assert hits[0][0] == 7
        assert hits == sorted(hits, key=lambda hit: -hit[1])

    def test_the_limit_is_reached_where_the_index_gives_up(
        self, index: VectorIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pgvector, "_MOST_SCANNED", 1)
        monkeypatch.setattr(pgvector, "_MOST_CANDIDATES", 10)
        queries = [
            query(1, limit=390, language="alphabetic"),
            query(1, limit=340, language="alphabetic", documents=range(55)),
            query(1, limit=5, language="alphabetic"),
        ]
        assert [len(hits) for hits in index.search(queries)] == [390, 340, 5]

    def test_a_language_that_has_grown_is_indexed_by_the_next_build(
        self, server: PostgresServer, index: VectorIndex, name: str
    ) -> None:
        index.upsert(passages(range(1000, 2000)))
        index.build()
        assert len(hnsw_indexes(server, name)) == 2
        [hits] = index.search([query(1500, limit=3, language="han")])
        assert hits[0][0] == 1500

    def test_is_built_by_one_process_where_shared_memory_is_short(
        self, server: PostgresServer, name: str, index: VectorIndex
    ) -> None:
        index.upsert(passages(range(1000, 2000)))
        with failing(
            server,
            "current_setting('max_parallel_maintenance_workers') <> '0'",
            "53100",
            trigger="EVENT TRIGGER failing ON ddl_command_start WHEN TAG IN ('CREATE INDEX')",
        ):
            index.build()
        assert len(hnsw_indexes(server, name)) == 2


class TestServersThatFail:
    def test_a_restart_is_not_noticed(self, server: PostgresServer, index: VectorIndex) -> None:
        expected = index.search([query(1), query(2)])
        index.search([query(3)])
        server.kill()
        with pytest.raises(StoreUnavailableError, match="Connection refused") as raised:
            index.search([query(1)])
        assert "Start it" in raised.value.advice
        server.start()
        assert index.search([query(1), query(2)]) == expected
        server.kill()
        server.start()  # its connections are lost, and no call has noticed that
        assert index.count() == 600
        index.upsert(passages([601]))
        assert index.count() == 601

    def test_sessions_that_are_ended_are_opened_again(
        self, server: PostgresServer, index: VectorIndex
    ) -> None:
        run(server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        assert index.count() == 600

    def test_a_server_that_hangs_is_not_waited_for(
        self, server: PostgresServer, index: VectorIndex, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pgvector, "_SEARCH_SECONDS", 0.5)
        monkeypatch.setitem(postgres_pool._CONNECT, "connect_timeout", "2")
        other = open_index(server.setting(), name)
        server.pause()
        try:
            with pytest.raises(StoreUnavailableError, match=r"has not answered within 0\.5 s"):
                index.search([query(1)])
            with pytest.raises(StoreUnavailableError, match="timeout"):
                other.count()
        finally:
            server.resume()
        monkeypatch.undo()
        assert len(index.search([query(1)])[0]) == 10

    def test_a_lock_is_not_waited_for(
        self, server: PostgresServer, index: VectorIndex, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pgvector, "_LOCK_SECONDS", 0.1)
        with connect(server) as other, other.transaction():
            other.execute(f"LOCK TABLE loom.{name} IN ACCESS EXCLUSIVE MODE".encode())
            with pytest.raises(StoreUnavailableError, match="lock") as raised:
                index.count()
        assert "Another session" in raised.value.advice
        assert index.count() == 600

    def test_a_slow_statement_is_ended_by_the_server(
        self, server: PostgresServer, index: VectorIndex, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pgvector, "_WRITE_SECONDS", 1.0)
        with (
            failing(server, "pg_sleep(30) IS NULL", "XX000", trigger=on_insert(name)),
            pytest.raises(StoreUnavailableError, match="statement timeout"),
        ):
            index.upsert(passages([601]))

    @pytest.mark.parametrize(
        ("state", "advice"),
        [
            ("53100", "Free space"),
            ("53200", "Start it"),
            ("53300", "max_connections"),
            ("25006", "primary"),
            ("42501", "grant"),
        ],
    )
    def test_troubles_of_the_server_are_no_damage(
        self, server: PostgresServer, index: VectorIndex, name: str, state: str, advice: str
    ) -> None:
        with (
            failing(server, "true", state, trigger=on_insert(name)),
            pytest.raises(StoreUnavailableError, match="it was made to fail") as raised,
        ):
            index.upsert(passages([601]))
        assert advice in raised.value.advice
        assert index.count() == 600

    @pytest.mark.parametrize("state", ["58030", "58P01", "XX000", "XX001", "XX002"])
    def test_corruption_is_damage(
        self, server: PostgresServer, index: VectorIndex, name: str, state: str
    ) -> None:
        with (
            failing(server, "true", state, trigger=on_insert(name)),
            pytest.raises(IndexDamagedError, match="it was made to fail"),
        ):
            index.upsert(passages([601]))

    def test_a_table_that_was_deleted_meanwhile_is_damage(
        self, server: PostgresServer, index: VectorIndex, name: str
    ) -> None:
        index.count()
        run(server, f"DROP TABLE loom.{name}")
        for act in (index.build, lambda: index.delete([1]), lambda: index.search([query(1)])):
            with pytest.raises(IndexDamagedError, match="missing or broken"):
                act()
        index.create()
        assert index.count() == 0

    def test_a_table_of_another_dimension_is_damage(
        self, server: PostgresServer, index: VectorIndex, name: str
    ) -> None:
        assert index.count() == 600
        wider = open_index(server.setting(), name, dimension=2 * DIMENSION)
        for act in (lambda: wider.vectors([1]), lambda: wider.upsert(passages([1], dimension=2 * DIMENSION))):
            with pytest.raises(IndexDamagedError, match=r"expected (16|32) dimensions"):
                act()
        wider.close()


class TestAccess:
    @pytest.mark.parametrize("secret", [None, SecretStr("a wrong secret")])
    def test_credentials_that_are_refused(self, server: PostgresServer, secret: SecretStr | None) -> None:
        index = open_index(server.setting(), "test_none", secret=secret)
        with pytest.raises(StoreUnavailableError, match="password") as raised:
            index.count()
        assert "LOOM_VECTORS_SECRET" in raised.value.advice
        assert "wrong secret" not in str(raised.value)

    def test_a_database_that_does_not_exist(self, server: PostgresServer) -> None:
        index = open_index(server.setting(database="other"), "test_none")
        with pytest.raises(StoreUnavailableError, match="does not exist") as raised:
            index.create()
        assert "Create the database" in raised.value.advice

    def test_too_many_connections(self, server: PostgresServer) -> None:
        with role(server, "CONNECTION LIMIT 0"):
            index = open_index(server.setting(user="limited"), "test_none")
            with pytest.raises(StoreUnavailableError, match="too many connections") as raised:
                index.count()
        assert "PgBouncer" in raised.value.advice

    def test_a_role_needs_no_more_than_a_schema_of_its_own(self, server: PostgresServer) -> None:
        with role(server):
            index = open_index(server.setting("?schema=own%20schema", user="limited"), "test_own")
            with pytest.raises(StoreUnavailableError, match="permission denied") as raised:
                index.create()
            assert "administrator" in raised.value.advice
            run(server, 'CREATE SCHEMA "own schema" AUTHORIZATION limited')
            index.create()
            index.upsert(passages([1]))
            assert index.count() == 1
            index.drop()
            index.close()

    def test_an_extension_that_cannot_be_made(self, server: PostgresServer) -> None:
        run(server, "CREATE DATABASE bare")
        with role(server):
            index = open_index(server.setting(user="limited", database="bare"), "test_none")
            with pytest.raises(StoreUnavailableError, match="lacks the extension vector") as raised:
                index.create()
            assert "CREATE EXTENSION" in raised.value.advice
            index.close()
        run(server, "DROP DATABASE bare WITH (FORCE)")

    def test_an_extension_that_is_too_old(self, server: PostgresServer, index: VectorIndex) -> None:
        run(server, "UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'")
        try:
            with pytest.raises(StoreUnavailableError, match=r"pgvector is 0\.7\.4") as raised:
                index.create()
            assert "ALTER EXTENSION" in raised.value.advice
        finally:
            run(server, "UPDATE pg_extension SET extversion = '0.8.0' WHERE extname = 'vector'")

    def test_the_first_collection_makes_schema_and_extension(self, server: PostgresServer) -> None:
        run(server, "CREATE DATABASE fresh")
        first, second = (open_index(server.setting(database="fresh"), f"test_{n}") for n in (1, 2))
        threads = [threading.Thread(target=made.create) for made in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (first.count(), second.count()) == (0, 0)
        first.close()
        second.close()
        run(server, "DROP DATABASE fresh WITH (FORCE)")


class TestConnections:
    def test_are_shared_by_threads(self, server: PostgresServer, index: VectorIndex) -> None:
        expected = [index.search([query(key)])[0] for key in range(1, 25)]
        found: dict[int, list[tuple[int, float]]] = {}

        def ask(key: int) -> None:
            [found[key]] = index.search([query(key)])

        threads = [threading.Thread(target=ask, args=[key]) for key in range(1, 25)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [found[key] for key in range(1, 25)] == expected
        [[open_now]] = run(server, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'loom'")
        assert open_now <= 8

    def test_are_not_waited_for_longer_than_a_search_may_take(
        self, server: PostgresServer, name: str, index: VectorIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pgvector, "_CONNECTIONS", 1)
        monkeypatch.setattr(pgvector, "_SEARCH_SECONDS", 0.2)
        busy = open_index(server.setting(), name)
        counted: list[int] = []
        with connect(server) as other, other.transaction():
            other.execute(f"LOCK TABLE loom.{name} IN ACCESS EXCLUSIVE MODE".encode())
            counting = threading.Thread(target=lambda: counted.append(busy.count()))
            counting.start()
            while not run(server, "SELECT 1 FROM pg_locks WHERE NOT granted"):
                threading.Event().wait(0.02)
            with pytest.raises(StoreUnavailableError, match="all 1 connections of this process are in use"):
                busy.search([query(1, language="han")])
        counting.join()
        assert counted == [600]
        busy.close()

    def test_are_closed(self, server: PostgresServer, name: str) -> None:
        closed = open_index(server.setting("?application_name=closing"), name)
        closed.drop()
        closed.close()
        closed.drop()  # what was under way while it was closed leaves none behind, either
        wait_until_none(server, "pg_stat_activity WHERE application_name = 'closing'")


class TestUrls:
    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("http://host/database", "does not begin with"),
            ("postgresql:///database", "names no host"),
            ("postgresql://host:port/database", "not a number"),
            ("postgresql://host/database?colour=red", "colour"),
            ("postgresql://[host/database", "not the address"),
            ("postgresql://user@host/database?password=hidden", "must not hold a password"),
            ("postgresql://user:hidden@host/database", "must not hold a password"),
        ],
    )
    def test_that_are_wrong(self, url: str, reason: str) -> None:
        with pytest.raises(ConfigError, match=reason) as raised:
            pgvector.PgVectorIndex(url, secret=None, collection="test", dimension=3)
        assert raised.value.advice
        assert "hidden" not in str(raised.value)

    def test_may_name_several_hosts_and_parameters_of_libpq(self) -> None:
        url = "postgresql://one:5432,two:5433/database?target_session_attrs=primary&sslmode=prefer"
        pgvector.PgVectorIndex(url, secret=None, collection="test", dimension=3).close()


def open_index(
    setting: str, name: str, *, dimension: int = DIMENSION, secret: SecretStr | None = SECRET
) -> VectorIndex:
    return open_vector_index(setting, secret=secret, collection=name, dimension=dimension)


def passages(keys: range | list[int], *, dimension: int = DIMENSION) -> PassageVectors:
    return PassageVectors(
        keys=keys,
        vectors=np.stack([unit(key, dimension) for key in keys]),
        languages=["han" if key % 3 == 0 else "alphabetic" for key in keys],
        documents=[key // 10 for key in keys],
    )


def unit(seed: int, dimension: int = DIMENSION) -> np.ndarray:
    vector = np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)
    return vector / np.linalg.norm(vector)


def query(seed: int, *, limit: int = 10, language: str = "", documents: range | None = None) -> VectorQuery:
    return VectorQuery(unit(seed), limit, language=language, documents=documents)


def connect(server: PostgresServer, database: str = "postgres") -> psycopg.Connection:
    return psycopg.connect(
        host="127.0.0.1", port=server.port, user="loom", password=PASSWORD, dbname=database, autocommit=True
    )


def run(server: PostgresServer, statement: str) -> list[tuple]:
    with connect(server) as connection:
        done = connection.execute(statement.encode())
        return done.fetchall() if done.description else []


def hnsw_indexes(server: PostgresServer, name: str) -> list[str]:
    statement = (
        "SELECT pg_get_expr(indpred, indrelid) FROM pg_index "
        f"WHERE indrelid = 'loom.{name}'::regclass AND indpred IS NOT NULL ORDER BY 1"
    )
    return [predicate for (predicate,) in run(server, statement)]


def uses(server: PostgresServer, name: str) -> int:
    """How often an HNSW index of a collection has been searched."""
    statement = (
        "SELECT coalesce(sum(idx_scan), 0)::int FROM pg_stat_user_indexes "
        f"WHERE relname = '{name}' AND indexrelname LIKE 'hnsw%'"
    )
    [(count,)] = run(server, statement)
    return count


def search_once(server: PostgresServer, name: str, *queries: VectorQuery) -> None:
    """Search in a session whose statistics are complete at the end."""
    index = open_index(server.setting("?application_name=once"), name)
    index.search(queries)
    index.close()
    wait_until_none(server, "pg_stat_activity WHERE application_name = 'once'")


def on_insert(name: str) -> str:
    return f"TRIGGER failing BEFORE INSERT ON loom.{name} FOR EACH ROW"


@contextmanager
def failing(server: PostgresServer, condition: str, state: str, *, trigger: str) -> Generator[None]:
    """Make the server raise an error, of its own kind, at an event."""
    kind = "event_trigger" if trigger.startswith("EVENT") else "trigger"
    run(
        server,
        f"CREATE FUNCTION fail() RETURNS {kind} LANGUAGE plpgsql AS $$ BEGIN IF {condition} THEN "
        f"RAISE EXCEPTION 'it was made to fail' USING ERRCODE = '{state}'; END IF; "
        f"{'' if kind == 'event_trigger' else 'RETURN NEW;'} END $$",
    )
    try:
        run(server, f"CREATE {trigger} EXECUTE FUNCTION fail()")
        yield
    finally:
        run(server, "DROP FUNCTION fail() CASCADE")


@contextmanager
def role(server: PostgresServer, options: str = "") -> Generator[None]:
    """Make the role `limited`, which may create nothing."""
    run(server, f"CREATE ROLE limited LOGIN PASSWORD '{PASSWORD}' {options}")
    try:
        yield
    finally:
        run(server, "DROP OWNED BY limited CASCADE")
        run(server, "DROP ROLE limited")


def wait_until_none(server: PostgresServer, rows: str) -> None:
    for _ in range(300):
        if not run(server, f"SELECT 1 FROM {rows}"):
            return
        threading.Event().wait(0.05)
    raise AssertionError(f"There still are {rows}")
