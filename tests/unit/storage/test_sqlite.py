"""`Database`: what was committed stays, what was not never was."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loom_core.errors import StoreError
from loom_core.storage import Database

SCHEMA = ("CREATE TABLE notes (key INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)",)

CHILD_THAT_DIES_AFTER_COMMIT = """
import os, signal, sys
from pathlib import Path
from loom_core.storage import Database

database = Database(Path(sys.argv[1]), schema=[sys.argv[2]])
with database.write() as db:
    db.execute("INSERT INTO notes (text) VALUES ('committed')")
with database.write() as db:
    db.execute("INSERT INTO notes (text) VALUES ('not committed')")
    os.kill(os.getpid(), signal.SIGKILL)
"""

CHILD_THAT_WRITES = """
import sys
from pathlib import Path
from loom_core.storage import Database

database = Database(Path(sys.argv[1]), schema=[sys.argv[2]])
for i in range(25):
    with database.write() as db:
        db.execute("INSERT INTO notes (text) VALUES (?)", (f"{sys.argv[3]}-{i}",))
"""


def texts(database: Database) -> list[str]:
    return [row["text"] for row in database.rows("SELECT text FROM notes ORDER BY key")]


def add(database: Database, text: str) -> None:
    with database.write() as db:
        db.execute("INSERT INTO notes (text) VALUES (?)", (text,))


@pytest.fixture(params=["file", "memory"])
def database(request: pytest.FixtureRequest, tmp_path: Path):
    database = Database(tmp_path / "a.db" if request.param == "file" else None, schema=SCHEMA)
    yield database
    database.close()


def test_what_a_killed_process_committed_is_there_and_the_rest_is_not(tmp_path: Path):
    path = tmp_path / "a.db"
    done = subprocess.run(
        [sys.executable, "-c", CHILD_THAT_DIES_AFTER_COMMIT, str(path), SCHEMA[0]], check=False
    )
    assert done.returncode == -signal.SIGKILL
    database = Database(path, schema=SCHEMA)
    assert texts(database) == ["committed"]
    database.close()


def test_processes_that_open_and_write_at_the_same_moment_all_succeed(tmp_path: Path):
    path = tmp_path / "a.db"
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD_THAT_WRITES, str(path), SCHEMA[0], str(n)])
        for n in range(3)
    ]
    assert [child.wait(timeout=60) for child in children] == [0, 0, 0]
    database = Database(path, schema=SCHEMA)
    assert len(texts(database)) == 75
    database.close()


def test_a_file_is_in_wal_mode_and_every_commit_is_flushed(tmp_path: Path):
    database = Database(tmp_path / "a.db", schema=SCHEMA)
    with database.read() as db:
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert db.execute("PRAGMA synchronous").fetchone()[0] == 2
        assert db.execute("PRAGMA foreign_keys").fetchone()[0] == 1
    database.close()


def test_a_nested_write_belongs_to_the_outer_transaction(database: Database):
    def add_and_fail() -> None:
        with database.write():
            add(database, "inner")
            assert texts(database) == ["inner"]
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        add_and_fail()
    assert texts(database) == []
    with database.write():
        add(database, "one")
        add(database, "two")
    assert texts(database) == ["one", "two"]


def test_a_write_that_fails_is_undone_and_the_next_one_works(database: Database):
    add(database, "one")
    two_and_one = "INSERT INTO notes (text) VALUES ('two'), ('one')"
    with pytest.raises(StoreError, match="UNIQUE") as caught, database.write() as db:
        db.execute(two_and_one)
    assert caught.value.advice
    add(database, "three")
    assert texts(database) == ["one", "three"]


def test_a_reader_sees_what_was_committed_while_another_thread_writes(tmp_path: Path):
    database = Database(tmp_path / "a.db", schema=SCHEMA)
    add(database, "one")
    seen: list[list[str]] = []
    with database.write() as db:
        db.execute("INSERT INTO notes (text) VALUES ('two')")
        reader = threading.Thread(target=lambda: seen.append(texts(database)))
        reader.start()
        reader.join()
        assert texts(database) == ["one", "two"]
    assert seen == [["one"]]
    database.close()


def test_a_snapshot_shows_one_moment(tmp_path: Path):
    database = Database(tmp_path / "a.db", schema=SCHEMA)
    with database.snapshot():
        assert texts(database) == []
        writer = threading.Thread(target=add, args=(database, "later"))
        writer.start()
        writer.join()
        assert texts(database) == []
        with database.snapshot():
            assert texts(database) == []
    assert texts(database) == ["later"]
    database.close()


def test_many_threads_share_a_database(database: Database):
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda i: add(database, f"note {i}"), range(100)))
        assert set(threads.map(lambda _: len(texts(database)), range(20))) == {100}


def test_lists_of_any_length_can_be_asked_for(database: Database):
    with database.write() as db:
        db.executemany("INSERT INTO notes (text) VALUES (?)", [(str(i),) for i in range(2500)])
    rows = database.rows_in(
        "SELECT key FROM notes WHERE key IN ({}) AND key > ?", list(range(1, 2501)), (2000,)
    )
    assert len(rows) == 500
    assert database.rows_in("SELECT key FROM notes WHERE key IN ({})", []) == []


def test_each_version_of_the_schema_is_added_once(tmp_path: Path):
    path = tmp_path / "a.db"
    old = Database(path, schema=SCHEMA)
    add(old, "kept")
    old.close()
    new = Database(path, schema=(*SCHEMA, "ALTER TABLE notes ADD COLUMN tag TEXT;\nCREATE TABLE more (x)"))
    assert new.row("SELECT text, tag FROM notes")[:] == ("kept", None)
    assert new.row("SELECT * FROM more") is None
    new.close()


def test_a_newer_schema_is_refused_and_left_as_it_is(tmp_path: Path):
    path = tmp_path / "a.db"
    Database(path, schema=(*SCHEMA, "CREATE TABLE more (x)")).close()
    with pytest.raises(StoreError, match="newer") as caught:
        Database(path, schema=SCHEMA)
    assert "Upgrade" in caught.value.advice
    Database(path, schema=(*SCHEMA, "CREATE TABLE more (x)")).close()


def test_a_migration_that_fails_leaves_the_old_version(tmp_path: Path):
    path = tmp_path / "a.db"
    Database(path, schema=SCHEMA).close()
    with pytest.raises(StoreError):
        Database(path, schema=(*SCHEMA, "CREATE TABLE more (x);\nCREATE TABLE more (x)"))
    database = Database(path, schema=SCHEMA)
    assert database.row("SELECT 1 FROM sqlite_master WHERE name = 'more'") is None
    database.close()


def test_a_file_that_is_no_database_is_told_so(tmp_path: Path):
    path = tmp_path / "a.db"
    path.write_bytes(b"this is a text, not a database. " * 100)
    with pytest.raises(StoreError, match="not a database") as caught:
        Database(path, schema=SCHEMA)
    assert "check --repair" in caught.value.advice


def test_a_folder_that_does_not_exist_is_told_so(tmp_path: Path):
    with pytest.raises(StoreError, match="unable to open") as caught:
        Database(tmp_path / "none" / "a.db", schema=SCHEMA)
    assert "folder exists" in caught.value.advice


def test_a_database_that_may_not_be_written_is_told_so(database: Database):
    with database.read() as db:
        db.execute("PRAGMA query_only=ON")
    with pytest.raises(StoreError, match="readonly") as caught:
        add(database, "x")
    assert "may write" in caught.value.advice


def test_a_full_disk_is_told_and_costs_nothing_that_was_acknowledged(database: Database):
    add(database, "safe")
    with database.read() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreError, match="full") as caught:
        add(database, "x" * 100_000)
    assert "free some space" in caught.value.advice
    assert texts(database) == ["safe"]


def test_a_disk_that_fails_is_told_so(database: Database):
    with pytest.raises(StoreError, match="disk I/O error") as caught, database.write():
        raise sqlite3.OperationalError("disk I/O error")  # as SQLite says it of some full disks, too
    assert "full or failing" in caught.value.advice


def test_a_database_that_is_only_read_refuses_to_change(tmp_path: Path):
    database = Database(tmp_path / "a.db", schema=SCHEMA)
    add(database, "safe")
    reader = Database(tmp_path / "a.db", schema=SCHEMA, read_only=True)
    assert texts(reader) == ["safe"]
    with pytest.raises(StoreError, match="readonly"):
        add(reader, "x")
    reader.close()
    assert texts(database) == ["safe"]
    database.close()


def test_a_database_that_stays_locked_is_told_so(tmp_path: Path):
    database = Database(tmp_path / "a.db", schema=SCHEMA, busy_seconds=0.05)
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked") as caught:
        add(database, "x")
    assert "Another process" in caught.value.advice
    other.execute("ROLLBACK")
    other.close()
    add(database, "x")
    database.close()


def test_a_closed_database_says_so(database: Database):
    database.close()
    with pytest.raises(StoreError, match="closed"):
        texts(database)


def test_deleted_rows_are_gone_from_the_file_or_the_reason_is_said(tmp_path: Path):
    path = tmp_path / "a.db"
    database, reader = (Database(path, schema=SCHEMA, busy_seconds=0.01) for _ in range(2))
    with database.write() as db:
        db.execute("INSERT INTO notes (text) VALUES ('geheim')")
    database.compact()
    with reader.snapshot() as snapshot:
        snapshot.execute("SELECT * FROM notes").fetchall()
        with database.write() as db:
            db.execute("DELETE FROM notes")
        with pytest.raises(StoreError, match="deleted rows"):
            database.compact()
        assert b"geheim" in path.read_bytes()
    database.compact()
    assert b"geheim" not in path.read_bytes()
    reader.close()
    database.close()


def test_a_connection_in_use_is_closed_when_it_is_given_back(tmp_path: Path):
    database = Database(tmp_path / "a.db", schema=SCHEMA)
    with database.read() as db:
        database.close()
        assert db.execute("SELECT 1").fetchone()[0] == 1
    with pytest.raises(sqlite3.ProgrammingError):
        db.execute("SELECT 1")


@pytest.mark.slow
def test_many_may_make_the_same_file_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        for number in range(30):
            together = threading.Barrier(6)

            def make(path: Path, together: threading.Barrier = together) -> None:
                together.wait()
                Database(path, schema=["CREATE TABLE t (a)"]).close()

            list(pool.map(make, [tmp_path / f"{number}.db"] * 6))
