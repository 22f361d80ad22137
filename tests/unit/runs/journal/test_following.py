"""`follow` and `changed`: a waiting task is woken by every event, here or in another process."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from loom_core.errors import NotFoundError
from loom_core.runs.commands import ApprovalDecision, Resume
from loom_core.runs.events import StreamEvent
from loom_core.runs.journal import Journal, RunLog
from loom_core.runs.run import Pending, Run, RunRequest


@pytest.fixture
async def open_journal(place: str) -> AsyncIterator[Callable[[], Journal]]:
    """Opens a file of runs, as often as wanted: each time as another process would."""
    journals: list[Journal] = []

    def open_() -> Journal:
        journals.append(Journal(place))
        return journals[-1]

    yield open_
    for journal in journals:
        await journal.aclose()


async def claimed(journal: Journal, run_id: str) -> RunLog:
    log = await journal.claim(run_id)
    assert log is not None
    return log


async def collect(journal: Journal, run_id: str, into: list[StreamEvent], after: int = 0) -> None:
    async for event in journal.follow(run_id, after=after):
        into.append(event)  # noqa: PERF401 - one by one, as it is looked at meanwhile


async def test_every_follower_gets_every_event_wherever_it_follows(open_journal: Callable[[], Journal]):
    here, elsewhere = open_journal(), open_journal()
    run = await here.create(RunRequest(goal="g"))
    seen: list[list[StreamEvent]] = [[] for _ in range(4)]
    added: list[StreamEvent] = []
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks, await claimed(here, run.id) as log:
            tasks.start_soon(collect, here, run.id, seen[0])
            tasks.start_soon(collect, elsewhere, run.id, seen[1])
            added += [log.add("text_delta", {"text": f"字{number}"}) for number in range(700)]
            await log.commit()
            tasks.start_soon(collect, here, run.id, seen[2], 650)
            for number in range(50):
                added.append(log.add("text_delta", {"text": str(number)}))
                await log.commit()
            tasks.start_soon(collect, elsewhere, run.id, seen[3], 10_000)
            added.append(log.add("agent_finish", {}, status="completed"))
    assert seen == [added, added, added[650:], []]


@pytest.mark.slow
async def test_who_follows_behind_events_that_never_come_hears_that_the_run_has_ended(
    open_journal: Callable[[], Journal],
):
    here, elsewhere = open_journal(), open_journal()
    run = await here.create(RunRequest(goal="g"))
    seen: list[StreamEvent] = []
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks, await claimed(here, run.id) as log:
            tasks.start_soon(collect, here, run.id, seen, 10_000)
            tasks.start_soon(collect, elsewhere, run.id, seen, 10_000)
            for number in range(20):  # they wait by now
                log.add("text_delta", {"text": f"字{number}"})
                await log.commit()
                await anyio.sleep(0.02)
            log.add("agent_finish", {}, status="completed")
    assert seen == []


async def test_no_one_sees_an_event_before_it_is_in_the_file(open_journal: Callable[[], Journal]):
    here, elsewhere = open_journal(), open_journal()
    run = await here.create(RunRequest(goal="g"))
    async with await claimed(here, run.id) as log, aclosing(here.follow(run.id)) as events:
        for number in range(20):
            log.add("text_delta", {"text": str(number)})
            event = await anext(events)
            assert (await elsewhere.events(run.id))[-1] == event


async def test_following_goes_on_where_a_run_that_had_failed_was_resumed(
    open_journal: Callable[[], Journal],
):
    journal = open_journal()
    run = await journal.create(RunRequest(goal="g"))
    async with await claimed(journal, run.id) as log:
        log.add("error", {"message": "m"}, status="failed")
    seen: list[StreamEvent] = []
    await collect(journal, run.id, seen)
    await collect(journal, run.id, seen, after=1)
    assert [event.type for event in seen] == ["error"]
    await journal.send_commands(run.id, Resume())
    async with await claimed(journal, run.id) as log:
        assert log.take_commands() == [Resume()]
        log.add("resumed", {}, status="working")
        await log.commit()
        async with aclosing(journal.follow(run.id)) as events:
            assert [(await anext(events)).type for _ in range(2)] == ["error", "resumed"]
            log.add("agent_finish", {}, status="completed")
            assert [event.type async for event in events] == ["agent_finish"]


async def test_a_run_that_has_ended_does_not_stand_still_when_it_was_told_to_go_on(
    open_journal: Callable[[], Journal],
):
    here, elsewhere = open_journal(), open_journal()
    run = await here.create(RunRequest(goal="查资料"))
    async with await claimed(here, run.id) as log:
        log.add("aborted", {}, status="aborted")
    await elsewhere.send_commands(run.id, Resume())
    got: list[Run] = []

    async def wait(journal: Journal) -> None:
        got.append(await journal.wait_until_idle(run.id, after=0, seconds=20))

    async def obeyed(journal: Journal) -> None:
        run_then = await journal.wait_until_applied(run.id, seconds=20)
        assert run_then.status in {"working", "completed"}

    assert (await elsewhere.wait_until_applied(run.id, seconds=0.01)).status == "aborted"
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for journal in (here, elsewhere):
                tasks.start_soon(wait, journal)
                tasks.start_soon(obeyed, journal)
            await anyio.wait_all_tasks_blocked()
            async with await claimed(here, run.id) as log:
                assert log.take_commands() == [Resume()]
                log.add("resumed", {}, status="working")
                await log.commit()
                for journal in (here, elsewhere):
                    async with aclosing(journal.follow(run.id, after=1)) as events:
                        assert (await anext(events)).type == "resumed"
                assert got == []
                log.add("agent_finish", {}, status="completed")
    assert [each.status for each in got] == ["completed"] * 2


async def test_a_run_that_ended_lets_its_followers_go_at_once(tmp_path: Path):
    journal = Journal(tmp_path / "runs.db")
    run = await journal.create(RunRequest(goal="g"))
    seen: list[list[StreamEvent]] = [[] for _ in range(1000)]
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks, await claimed(journal, run.id) as log:
            for each in seen:
                tasks.start_soon(collect, journal, run.id, each)
            for _ in range(3):
                log.add("text_delta", {})
            await log.commit()
            threads = threading.active_count()
            log.add("aborted", {}, status="aborted")
    assert {len(each) for each in seen} == {4}
    assert threads < 20
    await journal.aclose()


async def test_a_follower_that_goes_is_forgotten(open_journal: Callable[[], Journal]):
    journal = open_journal()
    run = await journal.create(RunRequest(goal="g"))
    async with await claimed(journal, run.id) as log:
        log.add("text_delta", {})
        async with aclosing(journal.follow(run.id)) as events:
            await anext(events)
            assert journal.store.notifier.needs_polling
        with anyio.move_on_after(0.01):
            await collect(journal, run.id, [], after=1)
        assert not journal.store.notifier.needs_polling


async def test_a_run_that_is_not_there_is_neither_followed_nor_waited_for():
    journal = Journal()
    with pytest.raises(NotFoundError):
        await collect(journal, "run_x", [])
    with pytest.raises(NotFoundError):
        await journal.wait_until_idle("run_x", after=0, seconds=1)
    await journal.aclose()


async def test_waiting_ends_when_the_run_does_or_needs_a_person(open_journal: Callable[[], Journal]):
    here, elsewhere = open_journal(), open_journal()
    run = await here.create(RunRequest(goal="g"))
    got: list[Run] = []

    async def wait(journal: Journal, after: int) -> None:
        got.append(await journal.wait_until_idle(run.id, after=after, seconds=20))

    with anyio.fail_after(20):
        async with await claimed(here, run.id) as log:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait, here, 0)
                tasks.start_soon(wait, elsewhere, 0)
                for _ in range(5):
                    log.add("text_delta", {})
                    await log.commit()
                assert got == []
                log.add(
                    "approval_required",
                    {},
                    status="input_required",
                    pending=(Pending(id="c", kind="approval"),),
                )
            assert [each.status for each in got] == ["input_required"] * 2
            assert (await elsewhere.wait_until_idle(run.id, after=0, seconds=20)).last_seq == 6
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait, here, 6)  # that it waits is known there
                await elsewhere.send_commands(run.id, ApprovalDecision(id="c", action="approve"))
                tasks.start_soon(wait, elsewhere, 0)  # the order is on its way
                await log.wait_for_command()
                log.take_commands()
                log.add("approval_decided", {}, status="working", pending=())
                await log.commit()
                assert len(got) == 2
                log.add("agent_finish", {}, status="completed")
            assert [each.status for each in got[2:]] == ["completed"] * 2
    assert (await here.wait_until_idle(run.id, after=99, seconds=20)).status == "completed"


@pytest.mark.parametrize("in_file", [True, False])
async def test_who_waits_again_and_again_for_a_run_that_has_ended_can_be_cancelled(
    open_journal: Callable[[], Journal], *, in_file: bool
):
    journal = open_journal() if in_file else Journal()
    run = await journal.create(RunRequest(goal="g"))
    async with await claimed(journal, run.id) as log:
        log.add("agent_finish", {}, status="completed")
    asked = 0
    with anyio.CancelScope() as scope:
        while asked < 1000:
            run = await journal.wait_until_idle(run.id, after=run.last_seq, seconds=10)
            asked += 1
            scope.cancel()
    assert asked == 1
    await journal.aclose()


async def test_waiting_ends_when_its_time_is_over(open_journal: Callable[[], Journal]):
    journal = open_journal()
    run = await journal.create(RunRequest(goal="g"))
    with anyio.fail_after(10):
        assert (await journal.wait_until_idle(run.id, after=0, seconds=0.02)).status == "working"
        assert (await journal.wait_until_idle(run.id, after=0, seconds=0)).status == "working"


def test_one_journal_serves_several_event_loops():
    journal = Journal()
    seen: list[StreamEvent] = []
    run = asyncio.run(journal.create(RunRequest(goal="g")))
    following = threading.Event()

    async def follow() -> None:
        async for event in journal.follow(run.id):
            following.set()
            seen.append(event)

    thread = threading.Thread(target=asyncio.run, args=(follow(),))

    async def drive() -> None:
        async with await claimed(journal, run.id) as log:
            log.add("text_delta", {})
            await log.commit()
            thread.start()
            assert await asyncio.to_thread(following.wait, 10)
            log.add("agent_finish", {}, status="completed")

    asyncio.run(drive())
    thread.join(10)
    assert [event.seq for event in seen] == [1, 2]
    asyncio.run(journal.aclose())


async def test_a_journal_that_no_one_closes_leaves_no_thread_behind():
    before = set(threading.enumerate())
    journal = Journal()
    await journal.create(RunRequest(goal="g"))
    (writer,) = [each for each in set(threading.enumerate()) - before if each.name == "loom-journal"]
    del journal
    gc.collect()
    await anyio.to_thread.run_sync(writer.join, 10)
    assert not writer.is_alive()
