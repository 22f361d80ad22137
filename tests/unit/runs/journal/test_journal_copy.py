"""A journal goes from a file to PostgreSQL and back, with all runs, and goes on there."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from loom_core.errors import InvalidInputError, StoreBusyError, StoreError
from loom_core.llm.messages import TextPart, UserMessage
from loom_core.runs.commands import Reply
from loom_core.runs.journal import Journal, PostgresPlace
from loom_core.runs.journal.store import copy_journal, open_database
from loom_core.runs.memory import SQLiteMemory
from loom_core.runs.run import RunRequest
from tests.fixtures.store_servers.postgres import PASSWORD, PostgresServer

TABLES = (
    *("sessions", "runs", "requests", "events", "orders", "blobs", "syncs", "run_words"),
    *("conversations", "messages", "message_words"),
)


async def _fill(place: Path) -> None:
    """Write a journal with rows in every table: all runs but the last have ended."""
    journal = Journal(place)
    memory = SQLiteMemory(journal=journal)
    await memory.replace("ses_灯塔", [UserMessage((TextPart("记住灯塔 \0 \ud83d"),))])
    assert await memory.search("灯塔")
    for number in range(120):
        run = await journal.create(RunRequest(goal=f"任务 \0 {number} \ud83d", caller="anna"))
        log = await journal.claim(run.id)
        assert log is not None
        async with log:
            log.add("text_delta", {"text": "你好 \0"}, state={"step": number})
            await log.save_blob(b"\0\xff" * number, "image/png")
            status = "input_required" if number == 119 else "completed"
            log.add("agent_finish", {}, status=status, output=f"到了 {number}")
    (waiting,) = await journal.runs(status=["input_required"])
    await journal.send_commands(waiting.id, Reply(text="第一", by="anna"))
    session = await journal.begin_session(caller="anna")
    await journal.save_session_state(session, {"城市": "杭州"}, version=0, caller="anna")
    gone = await journal.create(RunRequest(goal="gone"))
    await journal.purge(gone.id)
    assert await journal.search("任务", limit=3)
    await journal.aclose()


def _content(place: Path | PostgresPlace) -> dict[str, list[tuple[object, ...]]]:
    database, _ = open_database(place)
    rows: dict[str, list[tuple[object, ...]]] = {}
    for name in TABLES:
        rows[name] = sorted(map(tuple, database.rows(f"SELECT * FROM {name}")), key=repr)
    database.close()
    return rows


@pytest.fixture
def shared(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> PostgresPlace:
    """A place whose role may do no more than it has to."""
    monkeypatch.setenv("PGPASSWORD", "plain")
    role = f"r{secrets.token_hex(4)}"
    with psycopg.connect(postgres.url(), password=PASSWORD, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'plain'".encode())
        connection.execute(f"CREATE SCHEMA {role}_runs AUTHORIZATION {role}".encode())
    return PostgresPlace(postgres.url(f"?schema={role}", user=role))


async def test_a_journal_goes_to_postgresql_and_back_and_goes_on_there(shared: PostgresPlace, tmp_path: Path):
    first, last = tmp_path / "a" / "runs.db", tmp_path / "b" / "runs.db"
    await _fill(first)
    before = _content(first)
    assert [name for name, rows in before.items() if not rows] == []
    copy_journal(first, shared)
    copy_journal(shared, replace(shared, url=f"{shared.url}&application_name=x"))
    assert _content(shared) == before, "also after it was copied to itself"
    copy_journal(shared, last)
    assert _content(last) == before
    assert _content(first) == before
    assert not last.with_name("runs.db.drivers").exists()
    for place in (shared, last):
        journal = Journal(place)
        (waiting,) = await journal.runs(status=["input_required"])
        log = await journal.claim(waiting.id)
        assert log is not None
        async with log:
            log.add("agent_finish", {}, status="completed", output="好")
        run = await journal.create(RunRequest(goal="新"))
        assert await journal.blob(waiting.id, 1) == (b"\0\xff" * 119, "image/png")
        assert (await journal.runs(limit=1))[0].id == run.id
        assert (await journal.search("新"))[0].id == run.id
        await journal.aclose()
        database, _ = open_database(place)
        assert database.row("SELECT MAX(key) AS key FROM runs")["key"] == 122, "121 was purged"
        database.close()
    with pytest.raises(StoreError, match="is not the same in both databases"):
        copy_journal(first, shared)


async def test_a_journal_whose_runs_a_process_executes_is_not_copied(postgres_place: str, tmp_path: Path):
    path, shared = tmp_path / "runs.db", PostgresPlace(postgres_place)
    journal = Journal(path)
    run = await journal.create(RunRequest(goal="g"))
    log = await journal.claim(run.id)
    assert log is not None
    async with log:
        with pytest.raises(StoreBusyError, match=r"Processes execute runs of .*runs\.db: pid \d+ on "):
            copy_journal(path, shared)
    await journal.aclose()
    copy_journal(path, shared)
    journal = Journal(shared)
    log = await journal.claim(run.id)
    assert log is not None
    async with log:
        with pytest.raises(StoreBusyError, match="Processes execute runs of postgresql://"):
            copy_journal(path, shared)
    await journal.aclose()


async def test_a_process_that_begins_to_execute_runs_meanwhile_is_found(tmp_path: Path):
    path, other = tmp_path / "runs.db", tmp_path / "other.db"
    journal = Journal(path)
    await journal.create(RunRequest(goal="g"))
    database, drivers = open_database(path)

    def begin(_done: int, _total: int) -> None:
        drivers.enter()
        with database.write() as db:
            drivers.register(db)

    with pytest.raises(StoreBusyError, match="Processes execute runs of"):
        copy_journal(path, other, progress=begin)
    drivers.leave()
    database.close()
    await journal.aclose()


def test_a_journal_that_does_not_exist_or_is_there_already_is_not_copied(tmp_path: Path):
    with pytest.raises(InvalidInputError, match="There is no journal in"):
        copy_journal(tmp_path / "a.db", tmp_path / "b.db")
    with pytest.raises(InvalidInputError, match="already"):
        copy_journal(tmp_path / "a.db", tmp_path / "a.db")
    assert list(tmp_path.iterdir()) == []


async def test_a_journal_does_not_open_an_unfinished_copy(tmp_path: Path):
    path, copy = tmp_path / "runs.db", tmp_path / "copy.db"
    await _fill(path)

    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_journal(path, copy, progress=interrupt)
    journal = Journal(copy)
    with pytest.raises(StoreError, match=r"copy\.db is an unfinished copy"):
        await journal.runs()
    await journal.aclose()
    copy_journal(path, copy)
    journal = Journal(copy)
    assert len(await journal.runs(status=["input_required"])) == 1
    await journal.aclose()
