"""Older files are brought up to date with a copy beside them; newer ones are left alone."""

from __future__ import annotations

import logging
import signal
import sqlite3
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from loom_core.errors import StoreError
from loom_core.knowledge.store import KnowledgeStore
from loom_core.knowledge.store.schema import SCHEMA
from loom_core.storage import Database

ONE = "CREATE TABLE notes (key INTEGER PRIMARY KEY, text TEXT NOT NULL)"
TWO = "ALTER TABLE notes ADD COLUMN extra TEXT NOT NULL DEFAULT 'new';\nCREATE TABLE more (key INTEGER)"

CHILD = """
import os, signal, sys
from pathlib import Path
from loom_core.storage import Database, sqlite

if sys.argv[4] == "kill":
    after = sqlite.back_up
    def back_up(path, *, version):
        copy = after(path, version=version)
        os.kill(os.getpid(), signal.SIGKILL)
    sqlite.back_up = back_up
database = Database(Path(sys.argv[1]), schema=sys.argv[2:4])
print(database.row("SELECT extra FROM notes")["extra"])
"""


def old_file(path: Path) -> None:
    database = Database(path, schema=[ONE])
    with database.write() as db:
        db.execute("INSERT INTO notes (text) VALUES ('长城')")
    database.close()


def start(path: Path, how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), ONE, TWO, how], stdout=subprocess.PIPE, text=True
    )


def test_an_older_file_is_migrated_and_kept_as_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path, backup = tmp_path / "a.db", tmp_path / "a.db.v1.backup"
    old_file(path)
    with caplog.at_level(logging.WARNING):
        database = Database(path, schema=[ONE, TWO])
    assert str(backup) in caplog.text
    assert [tuple(row) for row in database.rows("SELECT text, extra FROM notes")] == [("长城", "new")]
    database.close()
    copy = sqlite3.connect(backup)
    assert copy.execute("PRAGMA user_version").fetchone() == (1,)
    assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert copy.execute("SELECT * FROM notes").fetchall() == [(1, "长城")]
    copy.close()
    assert not (tmp_path / "a.db.v1.backup.partial").exists()


def test_a_new_file_needs_no_copy(tmp_path: Path):
    Database(tmp_path / "a.db", schema=[ONE, TWO]).close()
    assert not list(tmp_path.glob("*.backup"))


def test_a_script_that_fails_leaves_the_file_as_it_was(tmp_path: Path):
    path = tmp_path / "a.db"
    old_file(path)
    with pytest.raises(StoreError):
        Database(path, schema=[ONE, TWO + ";\nINSERT INTO nowhere VALUES (1)"])
    database = Database(path, schema=[ONE])
    assert [row["text"] for row in database.rows("SELECT * FROM notes")] == ["长城"]
    database.close()


def test_a_migration_that_was_killed_is_made_by_the_next(tmp_path: Path):
    path = tmp_path / "a.db"
    old_file(path)
    (tmp_path / "a.db.v1.backup.partial").write_bytes(b"left by a kill")
    child = start(path, "kill")
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    database = Database(path, schema=[ONE])  # still the old format
    assert database.row("SELECT text FROM notes") is not None
    database.close()
    database = Database(path, schema=[ONE, TWO])
    assert database.rows("SELECT extra FROM notes")[0]["extra"] == "new"
    database.close()


def test_of_processes_that_open_at_once_one_migrates_and_the_others_wait(tmp_path: Path):
    path = tmp_path / "a.db"
    old_file(path)
    children = [start(path, "") for _ in range(3)]
    assert [child.communicate()[0] for child in children] == ["new\n"] * 3


def test_a_program_of_before_writes_no_more_once_the_file_is_migrated(tmp_path: Path):
    path = tmp_path / "a.db"
    old_file(path)
    before = Database(path, schema=[ONE])
    Database(path, schema=[ONE, TWO]).close()
    with pytest.raises(StoreError, match="while it was open here"), before.write() as db:
        db.execute("INSERT INTO notes (text) VALUES ('lost')")
    before.close()
    with pytest.raises(StoreError, match="newer Loom"):
        Database(path, schema=[ONE])


def test_without_room_for_the_copy_nothing_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.db"
    old_file(path)
    usage = namedtuple("usage", "total used free")(1, 1, 1)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(StoreError, match="has to be copied"):
        Database(path, schema=[ONE, TWO])
    assert sqlite3.connect(path).execute("PRAGMA user_version").fetchone() == (1,)


def test_a_record_of_the_first_format_is_migrated_with_what_is_in_it(tmp_path: Path):
    path = tmp_path / "record.db"
    database = Database(path, schema=SCHEMA[:1])
    with database.write() as db:
        db.execute(
            "INSERT INTO documents (id, uri, title, title_source, mime, language, text, length, hash, "
            "metadata, added_at, updated_at) "
            "VALUES ('d1', 'text:1', '长城', 'given', 'text/plain', 'zh', x'00', 1, "
            "x'00', '{}', 0, 0)"
        )
        db.execute(
            "INSERT INTO chunks (id, document, ordinal, start, end, kind, name, heading_path, "
            "language, keywords, hash, vector_hash, text) "
            "VALUES ('c1', 1, 0, 0, 1, 'paragraph', '', '[]', 'zh', '[]', "
            "x'01', x'02', '长')"
        )
    database.close()
    record = KnowledgeStore(path)
    assert record.documents.counts()[:2] == (1, 1)
    assert record.vectors.coverage() == (0, 1)
    assert record.documents.list()[0].title == "长城"
    record.close()
    assert (tmp_path / "record.db.v1.backup").exists()
