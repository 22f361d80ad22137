"""`PostgresDatabase`: what the server refuses is said with advice, and a lost connection is replaced."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest
from pydantic import SecretStr

from loom_core.errors import ConfigError, InvalidInputError, StoreError
from loom_core.storage.postgres import PostgresDatabase
from tests.fixtures.store_servers import free_port
from tests.fixtures.store_servers.postgres import PASSWORD, PostgresServer, run_postgres

pytestmark = pytest.mark.slow

_SCRIPT = """
CREATE TABLE notes (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    text TEXT NOT NULL,
    size REAL,
    content BLOB,
    open BOOLEAN NOT NULL DEFAULT TRUE
);
CREATE INDEX notes_open ON notes (key) WHERE open
"""
_SECOND = "ALTER TABLE notes ADD COLUMN title TEXT NOT NULL DEFAULT ''"
_INSERT = "INSERT INTO notes (text) VALUES (?) RETURNING key"

Open = Callable[..., PostgresDatabase]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with run_postgres() as running:
        yield running


@pytest.fixture
def open_database(server: PostgresServer) -> Iterator[Open]:
    """Opens the same schema each time."""
    opened: list[PostgresDatabase] = []
    place = server.url(f"?schema=t{secrets.token_hex(4)}")

    def open_(*scripts: str) -> PostgresDatabase:
        schema, secret = scripts or (_SCRIPT,), SecretStr(PASSWORD)
        opened.append(
            PostgresDatabase(place, name="notes", schema=schema, more={}, notifies=True, secret=secret)
        )
        return opened[-1]

    yield open_
    for database in opened:
        database.close()


def test_rows_have_their_values_by_name_and_by_position(open_database: Open) -> None:
    database = open_database()
    with database.write() as db:
        (key,) = db.execute("INSERT INTO notes (text, size, content) VALUES (?, ?, ?) RETURNING key",
                            ("100 % 织机?", 1.5, b"\x00\xff")).fetchone()  # fmt: skip
        db.executemany("INSERT INTO notes (text) VALUES (?)", [("b",), ("a",), ("Z",)])
        assert db.total_changes == 4
    with database.snapshot() as db:
        row = db.execute("SELECT text, size, content, open FROM notes WHERE key = ?", (key,)).fetchone()
        texts = [text for (text,) in db.execute("SELECT text FROM notes WHERE open ORDER BY text")]
    assert [
        [row["key"] for row in rows]
        for rows in database.rows_each(
            "SELECT key FROM notes WHERE text < ? ORDER BY key", [("b",), ("",), ("z",)]
        )
    ] == [[key, key + 2, key + 3], [], [key, key + 1, key + 2, key + 3]]
    assert (row["text"], row[1], row["content"], row["open"]) == ("100 % 织机?", 1.5, b"\x00\xff", True)
    assert texts == ["100 % 织机?", "Z", "a", "b"], "as SQLite sorts"


def test_what_a_block_raises_undoes_its_transaction(open_database: Open) -> None:
    database = open_database()

    def write_and_fail() -> None:
        with database.write() as db:
            db.execute(_INSERT, ("lost",))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    with database.write() as db, database.write() as inner:  # a part of it
        inner.execute(_INSERT, ("kept",))
        with database.snapshot() as same:
            assert same.execute("SELECT COUNT(*) FROM notes").fetchone()[0] == 1
        assert db.total_changes == 1
    with database.snapshot() as db:
        assert [row["text"] for row in db.execute("SELECT text FROM notes")] == ["kept"]


def test_writers_of_all_processes_take_turns(open_database: Open) -> None:
    databases = [open_database() for _ in range(3)]

    def count_up(database: PostgresDatabase) -> None:
        for _ in range(20):
            with database.write() as db:
                (most,) = db.execute("SELECT COALESCE(MAX(size), 0) FROM notes").fetchone()
                db.execute("INSERT INTO notes (text, size) VALUES ('', ?)", (most + 1,))

    threads = [threading.Thread(target=count_up, args=(database,)) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with databases[0].snapshot() as db:
        assert [row["size"] for row in db.execute("SELECT size FROM notes ORDER BY key")] == [*range(1, 61)]


def test_a_commit_elsewhere_changes_the_mark(open_database: Open) -> None:
    here, elsewhere = open_database(), open_database()
    before = here.change_mark()
    with elsewhere.write() as db:
        db.execute(_INSERT, ("x",))
    assert here.change_mark() != before


def test_a_commit_elsewhere_is_heard_also_after_the_server_was_restarted(
    server: PostgresServer, open_database: Open
) -> None:
    here, elsewhere = open_database(), open_database()
    heard = threading.Event()
    listener = here.listen(heard.set)
    try:
        for _ in range(2):
            assert heard.wait(60)  # what it sends itself, and so knows that it hears
            assert listener.hears
            heard.clear()
            with elsewhere.write() as db:
                db.execute(_INSERT, ("x",))
            assert heard.wait(60)
            server.kill()
            heard.clear()
            server.start()
    finally:
        listener.close()


def test_a_schema_of_an_older_loom_is_migrated_and_one_of_a_newer_is_refused(open_database: Open) -> None:
    older = open_database()
    with older.write() as db:
        db.execute(_INSERT, ("x",))
    newer = open_database(_SCRIPT, _SECOND)
    with newer.snapshot() as db:
        assert db.execute("SELECT title, text FROM notes").fetchone()["text"] == "x"
    with pytest.raises(StoreError, match=r"by a newer Loom while it was open here\. Restart"), older.write():
        pass
    with pytest.raises(StoreError, match=r"newer Loom \(format 2, this one knows 1\)\. Upgrade"):
        open_database()


def test_a_text_with_the_character_0_is_refused(open_database: Open) -> None:
    with pytest.raises(InvalidInputError, match=r"U\+0000"), open_database().write() as db:
        db.execute(_INSERT, ("a\0b",))


def test_a_wrong_statement_is_no_fault_of_the_server(open_database: Open) -> None:
    with pytest.raises(StoreError, match=r"refused a statement.*--debug"), open_database().write() as db:
        db.execute("SELECT nothing FROM notes")


def test_a_server_that_was_restarted_is_asked_again(server: PostgresServer, open_database: Open) -> None:
    database = open_database()
    with database.write() as db:
        db.execute(_INSERT, ("before",))
    server.kill()
    with pytest.raises(StoreError, match=r"cannot be asked.*acknowledged so far is safe"), database.write():
        pass
    server.start()
    with database.write() as db:
        db.execute(_INSERT, ("after",))
    with database.snapshot() as db:
        assert [row["text"] for row in db.execute("SELECT text FROM notes ORDER BY key")] == [
            "before",
            "after",
        ]


def test_a_connection_that_ends_in_the_middle_undoes_all(server: PostgresServer, open_database: Open) -> None:
    database = open_database()

    def write_and_be_cut_off() -> None:
        with database.write() as db:
            db.execute(_INSERT, ("x",))
            (pid,) = db.execute("SELECT pg_backend_pid()").fetchone()
            with psycopg.connect(server.url(), password=PASSWORD, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", [pid])
            db.execute(_INSERT, ("y",))

    with pytest.raises(StoreError, match="cannot be asked"):
        write_and_be_cut_off()
    with database.snapshot() as db:
        assert db.execute("SELECT COUNT(*) FROM notes").fetchone()[0] == 0


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://loom:geheim@host/db", "must not hold a password.*LOOM_DATABASE_SECRET"),
        ("postgresql://host/db?password=geheim", "must not hold a password"),
        ("postgresql:///db", "names no host.*postgresql://user@host"),
        ("mysql://host/db", "does not begin with postgresql://"),
        ("postgresql://host:eins/db", "not the address"),
        ("postgresql://host/db?schema=Team%22x", "cannot be the name of a schema.*lower-case"),
    ],
)
def test_what_is_no_address_is_refused_and_shows_no_password(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        PostgresDatabase(url, name="notes", schema=(_SCRIPT,), more={})
    assert "geheim" not in str(caught.value)


def test_who_may_not_come_in_is_told_where_the_password_belongs(server: PostgresServer) -> None:
    with pytest.raises(StoreError, match=r"authentication failed.*LOOM_DATABASE_SECRET"):
        PostgresDatabase(server.url(), name="n", schema=(_SCRIPT,), more={}, secret=SecretStr("wrong"))
    nowhere = f"postgresql://loom@127.0.0.1:{free_port()}/db"
    with pytest.raises(StoreError, match=r"cannot be asked.*Start it, or check its address"):
        PostgresDatabase(nowhere, name="n", schema=(_SCRIPT,), more={}, secret=SecretStr("wrong"))


def test_a_role_needs_no_more_than_its_own_schema(server: PostgresServer) -> None:
    with psycopg.connect(server.url(), password=PASSWORD, autocommit=True) as connection:
        connection.execute("CREATE ROLE plain LOGIN PASSWORD 'plain'")
        place = server.url(user="plain")
        with pytest.raises(StoreError, match=r"permission denied.*make the schema loom_own for it"):
            PostgresDatabase(place, name="own", schema=(_SCRIPT,), more={}, secret=SecretStr("plain"))
        connection.execute("CREATE SCHEMA loom_own AUTHORIZATION plain")
    database = PostgresDatabase(place, name="own", schema=(_SCRIPT,), more={}, secret=SecretStr("plain"))
    with database.write() as db:
        db.execute(_INSERT, ("x",))
    database.close()


def _failure(server: PostgresServer, user: str, rights: str) -> str:
    """The message about a database whose role has such rights."""
    with psycopg.connect(server.url(), password=PASSWORD, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'plain'".encode())
        connection.execute(f"ALTER ROLE {user} {rights}".encode())
    place = server.url("?target_session_attrs=read-write", user=user)
    with pytest.raises(StoreError) as caught:
        PostgresDatabase(place, name="n", schema=(_SCRIPT,), more={}, secret=SecretStr("plain"))
    return str(caught.value)


def test_a_server_without_a_free_connection_and_one_that_only_reads_are_told_apart(
    server: PostgresServer,
) -> None:
    full = _failure(server, "many", "CONNECTION LIMIT 0")
    assert "too many connections" in full
    assert "Raise max_connections or the role's limit" in full
    reading = _failure(server, "reader", "SET default_transaction_read_only TO on")
    assert "session is read-only" in reading
    assert "Use the address of the primary" in reading


def test_the_one_of_several_servers_that_takes_writes_is_found(server: PostgresServer) -> None:
    gone = free_port()
    hosts = f"127.0.0.1:{gone},127.0.0.1:{server.port}"
    place = f"postgresql://loom@{hosts}/postgres?target_session_attrs=read-write&schema=two"
    database = PostgresDatabase(place, name="n", schema=(_SCRIPT,), more={}, secret=SecretStr(PASSWORD))
    assert database.address == f"{hosts}/postgres"
    with database.write() as db:
        assert db.execute(_INSERT, ("x",)).fetchone()["key"] == 1
    database.close()
