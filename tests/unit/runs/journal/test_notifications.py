"""Changes in a journal in PostgreSQL wake those who wait on other nodes, without their polling for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Never

import anyio
import pytest

from loom_core.errors import StoreError
from loom_core.runs.commands import Pause
from loom_core.runs.journal import Journal, PostgresPlace
from loom_core.runs.journal.notifier import Inbox, Notifier
from loom_core.runs.journal.rows.runs import find_run
from loom_core.runs.journal.store import open_database
from loom_core.runs.journal.writer import Writer
from loom_core.runs.run import Run, RunRequest
from loom_core.storage.commit_listener import CommitListener
from loom_core.storage.postgres import PostgresDatabase

Start = Callable[..., Notifier]


@pytest.fixture
async def elsewhere(postgres_place: str) -> AsyncIterator[Journal]:
    """The journal of another node."""
    journal = Journal(postgres_place)
    yield journal
    await journal.aclose()


@pytest.fixture
def start_writer(postgres_place: str) -> Iterator[Start]:
    """Starts the writer of this node."""
    writers: list[Writer] = []

    def start(*, poll_seconds: float, listen: Callable[..., CommitListener] | None = None) -> Notifier:
        database, _ = open_database(PostgresPlace(postgres_place))
        assert isinstance(database, PostgresDatabase)
        notifier = Notifier()
        writers.append(
            Writer(
                database,
                notifier=notifier,
                listen=listen or database.listen,
                idle=lambda db: False,
                last=database.close,
                poll_seconds=poll_seconds,
            )
        )
        notifier.on_first_waiter = writers[-1].wake_up
        return notifier

    yield start
    for writer in writers:
        writer.stop()
        writer.join()


async def key_of(journal: Journal, run: Run) -> int:
    return (await journal.store.read(lambda db: find_run(db, run.id))).key


async def receive_command(notifier: Notifier, elsewhere: Journal) -> None:
    """Send a command on the other node, and wait until this one has it."""
    run = await elsewhere.create(RunRequest(goal="g"))
    inbox, key = Inbox(), await key_of(elsewhere, run)
    notifier.connect(key, inbox)
    with anyio.fail_after(60), notifier.watch_commands():
        await elsewhere.send_commands(run.id, Pause(by="小王"))
        await inbox.wait_until_filled()
    notifier.disconnect(key, inbox)
    taken = inbox.take()
    assert taken is not None
    assert (taken.command, inbox.take()) == (Pause(by="小王"), None)


async def test_a_command_is_heard_without_polling(start_writer: Start, elsewhere: Journal):
    notifier = start_writer(poll_seconds=3600.0)
    for _ in range(3):
        await receive_command(notifier, elsewhere)


async def test_a_command_arrives_also_where_no_notification_does(start_writer: Start, elsewhere: Journal):
    def refuse() -> Never:
        raise StoreError("No connection is left.")

    def listen(heard: Callable[[], None]) -> CommitListener:
        return CommitListener(refuse, print, "runs", heard)

    await receive_command(start_writer(poll_seconds=0.05, listen=listen), elsewhere)


async def test_a_change_of_a_run_is_heard_without_polling(start_writer: Start, elsewhere: Journal):
    notifier = start_writer(poll_seconds=3600.0)
    run = await elsewhere.create(RunRequest(goal="g"))
    log = await elsewhere.claim(run.id)
    assert log is not None
    with anyio.fail_after(60), notifier.watch(await key_of(elsewhere, run)) as watch:
        async with log:
            log.add("paused", {}, status="paused")
            await log.commit()
            while watch.status != "paused":
                await watch.wait_for_change(watch.count)


async def test_a_command_of_a_run_that_no_process_executes_is_heard_without_polling(
    start_writer: Start, elsewhere: Journal
):
    notifier = start_writer(poll_seconds=3600.0)
    with anyio.fail_after(60):
        for _ in range(2):
            run, count = await elsewhere.create(RunRequest(goal="g")), notifier.unclaimed.count
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(notifier.wait_for_unclaimed, count)
                await elsewhere.send_commands(run.id, Pause(by="小王"))
