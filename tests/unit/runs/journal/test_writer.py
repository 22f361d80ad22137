"""`Writer`: one transaction for all, and what fails concerns only those whose it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import anyio
import pytest

from loom_core.errors import InvalidInputError, StoreError
from loom_core.runs.journal.notifier import WakeBatch
from loom_core.runs.journal.rows.schema import SCHEMA
from loom_core.runs.journal.writer import Batch, WriteJob, Writer
from loom_core.storage import Database


@pytest.fixture
def writer() -> Iterator[Writer]:
    database = Database(None, schema=SCHEMA)
    writer = Writer(database, notifier=None, listen=None, idle=lambda db: False, last=database.close)
    yield writer
    writer.stop()
    writer.join()


class Note(WriteJob):
    """Writes some events, or fails to."""

    def __init__(self, *keys: int, broken: bool = False) -> None:
        self.keys = keys
        self.broken = broken
        self.errors: list[Exception | None] = []

    def write(self, batch: Batch) -> None:
        batch.add_events([(key, 0.0, "usage", "{}", None) for key in self.keys])
        if self.broken:
            batch.execute("INSERT INTO nowhere VALUES (1)", ())

    def settle(self, error: Exception | None, wake: WakeBatch) -> None:
        self.errors.append(error)


def keys(db: sqlite3.Connection) -> list[int]:
    return [row["key"] for row in db.execute("SELECT key FROM events ORDER BY key")]


async def test_of_what_comes_together_only_what_is_broken_fails(writer: Writer):
    notes = [Note(1, 2), Note(3, broken=True), Note(*range(10, 400)), Note(1), Note(4)]
    # The thread is kept busy, so that all of these come together.
    blocked = anyio.Event()

    def block(db: sqlite3.Connection) -> None:
        for note in notes:
            writer.submit(note)

    await writer.run_in_transaction(block, after=lambda _, wake: blocked.set())
    assert await writer.run_in_transaction(keys) == [1, 2, 4, *range(10, 400)]
    assert [[type(error) for error in note.errors] for note in notes] == [
        [type(None)],
        [StoreError],
        [type(None)],
        [StoreError],
        [type(None)],
    ]


async def test_what_a_function_refuses_concerns_no_one_else(writer: Writer):
    def refuse(db: sqlite3.Connection) -> None:
        raise InvalidInputError("no")

    async def add(key: int) -> None:
        def insert(db: sqlite3.Connection) -> None:
            Batch(db).add_events([])
            db.execute("INSERT INTO events VALUES (?, 0, 'usage', '{}', NULL)", (key,))

        await writer.run_in_transaction(insert)

    async def refused() -> None:
        with pytest.raises(InvalidInputError, match="no"):
            await writer.run_in_transaction(refuse)

    async with anyio.create_task_group() as tasks:
        for key in range(20):
            tasks.start_soon(add, key)
            tasks.start_soon(refused)
    assert await writer.run_in_transaction(keys) == list(range(20))


async def test_a_mistake_in_a_function_is_raised_where_it_was_called(writer: Writer):
    with pytest.raises(ZeroDivisionError):
        await writer.run_in_transaction(lambda db: 1 // 0)
    assert await writer.run_in_transaction(lambda db: 1) == 1


async def test_what_is_being_written_is_waited_for_although_the_caller_is_cancelled(writer: Writer):
    done: list[int] = []
    with anyio.move_on_after(0):
        await writer.run_in_transaction(lambda db: done.append(1))
    assert done == [1]


async def test_who_stops_writing_takes_nothing_more(writer: Writer):
    note = Note(1)
    writer.submit(note)
    writer.stop()
    with pytest.raises(StoreError, match="closed"):
        writer.submit(Note(2))
    await anyio.to_thread.run_sync(writer.join)
    assert note.errors == [None]
