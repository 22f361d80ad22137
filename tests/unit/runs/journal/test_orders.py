"""Commands of runs: which fit a run's status, and that each is applied exactly once."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import anyio
import pytest

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.runs.commands import Abort, ApprovalDecision, Command, InputResponse, Pause, Reply, Resume
from loom_core.runs.journal import Journal, RunLog
from loom_core.runs.run import Pending, RunRequest, RunStatus


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


async def standing(journal: Journal, status: RunStatus, *pending: Pending) -> str:
    """A run that stands so, and that no one drives."""
    run = await journal.create(RunRequest(goal="g"))
    async with await claimed(journal, run.id) as log:
        log.add("usage", {}, status=status, pending=pending)
    return run.id


CALL = Pending(id="c1", kind="approval", tool="fs:write")
UNKNOWN = Pending(id="c2", kind="unknown", tool="fs:write")
QUESTION = Pending(
    id="q1",
    kind="question",
    schema={"type": "object", "properties": {"城市": {"type": "string"}}, "required": ["城市"]},
)
WRITING = Pending(
    id="c4",
    kind="approval",
    tool="fs:write",
    arguments_schema={"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]},
)
LATE = Pending(id="c3", kind="approval", deadline=time.time() - 1)


@pytest.mark.parametrize(
    ("status", "order"),
    [
        ("input_required", ApprovalDecision(id="c1", action="approve", by="anna")),
        ("input_required", ApprovalDecision(id="c1", action="edit", arguments={"路径": "/tmp/甲"})),
        ("input_required", ApprovalDecision(id="c2", action="deny", reason="不要")),
        ("input_required", InputResponse(id="q1", action="accept", content={"城市": "北京"})),
        ("working", ApprovalDecision(id="c1", action="approve")),
        ("working", Reply(text="再快一点 \ud83d")),
        ("input_required", Reply(text="never mind")),
        ("paused", Reply(text="and then stop")),
        ("working", Pause(by="anna")),
        ("input_required", Pause()),
        ("paused", Resume()),
        ("failed", Resume()),
        ("aborted", Resume(by="ben")),
        ("paused", Abort(reason="too slow")),
        ("working", Abort()),
    ],
)
async def test_an_order_that_fits_reaches_the_next_executor(status: RunStatus, order: Command):
    journal = Journal()
    run_id = await standing(journal, status, CALL, UNKNOWN, QUESTION)
    assert (await journal.send_commands(run_id, order)).status == status
    assert await journal.find_unclaimed() == [run_id]
    async with await claimed(journal, run_id) as log:
        await log.wait_for_command()
        assert log.take_commands() == [order]
        assert log.take_commands() == []
        await log.commit()
    async with await claimed(journal, run_id) as log:
        assert log.take_commands() == []
    await journal.aclose()


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        (
            InputResponse(id="q1", action="accept", content={"城市": 5}),
            r"`城市` must be a string, got 5 \(a number",
        ),
        (InputResponse(id="q1", action="accept"), "`城市` is required"),
        (
            ApprovalDecision(id="c4", action="edit", arguments={"size": "大"}),
            r"`size` must be an integer, got \"大\"",
        ),
        (ApprovalDecision(id="c4", action="edit", arguments={}), "`size` is required"),
    ],
)
async def test_what_does_not_fit_what_is_asked_leaves_it_open(order: Command, reason: str):
    journal = Journal()
    run_id = await standing(journal, "input_required", QUESTION, WRITING)
    with pytest.raises(InvalidInputError, match=reason):
        await journal.send_commands(run_id, order)
    assert (await journal.get(run_id)).pending == (QUESTION, WRITING)
    await journal.send_commands(
        run_id,
        InputResponse(id="q1", action="decline"),
        ApprovalDecision(id="c4", action="edit", arguments={"size": "12"}),  # as it is corrected for a model
    )
    await journal.aclose()


async def test_an_order_of_another_process_is_not_overtaken_by_one_from_here(
    open_journal: Callable[[], Journal],
):
    here, elsewhere = open_journal(), open_journal()
    run = await here.create(RunRequest(goal="g"))
    async with await claimed(here, run.id) as log:
        await elsewhere.send_commands(run.id, Reply(text="第一"))
        await here.send_commands(run.id, Reply(text="第二"))
        assert log.take_commands() == [Reply(text="第一"), Reply(text="第二")]
        await log.commit()
        assert log.take_commands() == []


async def test_of_several_orders_all_are_taken_or_none():
    journal = Journal()
    run_id = await standing(journal, "input_required", CALL, QUESTION)
    approved = ApprovalDecision(id="c1", action="approve")
    with pytest.raises(InvalidInputError, match="does not wait for 'c9'"):
        await journal.send_commands(run_id, approved, ApprovalDecision(id="c9", action="approve"))
    with pytest.raises(InvalidInputError, match="was decided already"):
        await journal.send_commands(run_id, approved, ApprovalDecision(id="c1", action="deny"))
    with pytest.raises(InvalidInputError, match="cannot be stored"):
        await journal.send_commands(
            run_id, approved, InputResponse(id="q1", action="decline", content={"x": object()})
        )
    assert await journal.find_unclaimed() == []
    answered = InputResponse(id="q1", action="accept", content={"城市": "北京"})
    await journal.send_commands(run_id, approved, answered)
    async with await claimed(journal, run_id) as log:
        assert log.take_commands() == [approved, answered]
        await log.commit()
    await journal.aclose()


@pytest.mark.parametrize(
    ("status", "order", "reason"),
    [
        ("input_required", ApprovalDecision(id="c9", action="approve"), "does not wait for 'c9'"),
        ("input_required", ApprovalDecision(id="q1", action="approve"), "is a question"),
        ("input_required", InputResponse(id="c1", action="accept"), "is a call"),
        ("input_required", ApprovalDecision(id="c2", action="edit"), "may have been done already"),
        ("input_required", ApprovalDecision(id="c3", action="approve"), "counts as refused"),
        ("completed", ApprovalDecision(id="c9", action="approve"), "has ended"),
        ("completed", Resume(), "is completed"),
        ("working", Resume(), "is running already"),
        ("paused", Pause(), "is paused already"),
        ("failed", Pause(), "has ended"),
        ("aborted", Abort(), "has ended"),
        ("completed", Reply(text="thanks"), "has ended"),
        ("working", Reply(text=" \n"), "is empty"),
    ],
)
async def test_an_order_that_does_not_fit_is_refused(status: RunStatus, order: Command, reason: str):
    journal = Journal()
    pending = () if status == "completed" else (CALL, UNKNOWN, QUESTION, LATE)
    run_id = await standing(journal, status, *pending)
    with pytest.raises(InvalidInputError, match=reason):
        await journal.send_commands(run_id, order)
    async with await claimed(journal, run_id) as log:
        assert log.take_commands() == []
    await journal.aclose()


async def test_of_two_decisions_the_first_holds_and_the_second_is_told_so():
    journal = Journal()
    run_id = await standing(journal, "input_required", CALL)
    await journal.send_commands(run_id, ApprovalDecision(id="c1", action="deny"))
    with pytest.raises(InvalidInputError, match="the first decision holds"):
        await journal.send_commands(run_id, ApprovalDecision(id="c1", action="approve"))
    await journal.aclose()


async def test_an_order_is_judged_by_those_that_are_on_their_way():
    journal = Journal()
    run_id = await standing(journal, "working")
    await journal.send_commands(run_id, Pause())
    with pytest.raises(InvalidInputError, match="paused already"):
        await journal.send_commands(run_id, Pause())
    await journal.send_commands(run_id, Resume())
    await journal.send_commands(run_id, Abort())
    with pytest.raises(InvalidInputError, match="has ended"):
        await journal.send_commands(run_id, Reply(text="wait"))
    await journal.send_commands(run_id, Resume())
    async with await claimed(journal, run_id) as log:
        assert log.take_commands() == [Pause(), Resume(), Abort()]
        log.add("aborted", {"by": "", "reason": ""}, status="aborted")
        assert log.take_commands() == [Resume()]
    await journal.aclose()


async def test_a_run_behind_which_the_session_has_gone_on_is_not_resumed():
    journal = Journal()
    run_id = await standing(journal, "failed")
    session = (await journal.get(run_id)).request.session_id
    later = await journal.create(RunRequest(goal="h", session_id=session))
    with pytest.raises(InvalidInputError, match=later.id):
        await journal.send_commands(run_id, Resume())
    await journal.aclose()


@pytest.mark.parametrize(("status", "order"), [("failed", Resume()), ("aborted", Resume())])
async def test_a_session_takes_no_other_run_while_one_is_about_to_be_resumed(
    status: RunStatus, order: Command
):
    journal = Journal()
    run_id = await standing(journal, status)
    await journal.send_commands(run_id, order)
    session = (await journal.get(run_id)).request.session_id
    with pytest.raises(InvalidInputError, match=f"{run_id}.*resumed"):
        await journal.create(RunRequest(goal="另一个", session_id=session))
    await journal.aclose()


async def test_a_session_takes_no_other_run_while_someone_has_still_to_be_heard():
    journal = Journal()
    run = await journal.create(RunRequest(goal="g"))
    async with await claimed(journal, run.id) as log:
        await journal.send_commands(run.id, Reply(text="等一下"))
        log.add("agent_finish", {}, status="completed")
    with pytest.raises(InvalidInputError, match=run.id):
        await journal.create(RunRequest(goal="h", session_id=run.request.session_id))
    assert await journal.find_unclaimed() == [run.id]
    async with await claimed(journal, run.id) as log:
        assert log.take_commands() == [Reply(text="等一下")]
    await journal.create(RunRequest(goal="h", session_id=run.request.session_id))
    await journal.aclose()


async def test_who_was_refused_still_sees_what_others_write(open_journal: Callable[[], Journal]):
    here, elsewhere = open_journal(), open_journal()
    run = await here.create(RunRequest(goal="g"))
    other = await here.create(RunRequest(goal="h"))
    with pytest.raises(InvalidInputError) as refused:  # and the error is kept, with all that it holds
        await here.create(RunRequest(goal="i", session_id=run.request.session_id))
    await elsewhere.send_commands(run.id, Reply(text="你好"))
    await here.send_commands(other.id, Pause())
    assert run.id in str(refused.value)


async def test_only_the_caller_may_give_orders():
    journal = Journal()
    run = await journal.create(RunRequest(goal="g", caller="anna"))
    with pytest.raises(NotFoundError):
        await journal.send_commands(run.id, Abort(), caller="ben")
    await journal.send_commands(run.id, Abort(), caller="anna")
    await journal.aclose()


async def test_a_run_whose_deadline_has_passed_has_something_to_do():
    journal = Journal()
    await standing(journal, "input_required", CALL)
    late = await standing(journal, "input_required", CALL, LATE)
    assert await journal.find_unclaimed() == [late]
    await journal.aclose()


async def test_who_waits_for_an_order_is_woken_by_one_given_here_or_in_another_process(
    open_journal: Callable[[], Journal],
):
    here, elsewhere = open_journal(), open_journal()
    run = await here.create(RunRequest(goal="g"))
    got: list[Command] = []
    async with await claimed(here, run.id) as log:
        for journal in (here, elsewhere):
            async with anyio.create_task_group() as tasks:
                with anyio.fail_after(10):
                    tasks.start_soon(journal.send_commands, run.id, Reply(text="你好"))
                    await log.wait_for_command()
            got += log.take_commands()
            await log.commit()
    assert got == [Reply(text="你好")] * 2


async def test_an_order_that_was_seen_while_no_one_waited_for_it_is_not_lost(
    open_journal: Callable[[], Journal],
):
    here, elsewhere = open_journal(), open_journal()
    run = await here.create(RunRequest(goal="g"))
    other = await elsewhere.create(RunRequest(goal="h"))
    async with await claimed(here, run.id) as log, aclosing(here.follow(other.id)) as events:
        await elsewhere.send_commands(run.id, Reply(text="hello"))
        async with await claimed(elsewhere, other.id) as far:
            far.add("text_delta", {})
        with anyio.fail_after(10):
            await anext(events)  # so what came before it was seen, too
            await log.wait_for_command()
        assert log.take_commands() == [Reply(text="hello")]
        await log.commit()


async def test_what_follows_from_an_order_is_written_with_its_being_obeyed_or_not_at_all(
    open_journal: Callable[[], Journal],
):
    journal = open_journal()
    run = await journal.create(RunRequest(goal="g"))
    await journal.send_commands(run.id, Reply(text="hello"))

    async def fail() -> None:
        async with await claimed(journal, run.id) as log:
            log.add("text_delta", {})
            assert len(log.take_commands()) == 1
            log.add("message_received", {"text": "hello"})
            await journal.create(RunRequest(goal="h"))  # goes the same way, behind what is written by itself
            assert len(await journal.events(run.id)) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with await claimed(journal, run.id) as log:
        assert log.run.last_seq == 1
        assert log.take_commands() == [Reply(text="hello")]
        log.add("message_received", {"text": "hello"})
        await log.commit()
        log.add("text_delta", {})
    async with await claimed(journal, run.id) as log:
        assert log.run.last_seq == 3
        assert log.take_commands() == []


async def test_orders_that_came_before_and_while_a_run_is_claimed_come_once_each(
    open_journal: Callable[[], Journal],
):
    journal = open_journal()
    run = await journal.create(RunRequest(goal="g"))
    texts = [str(number) for number in range(20)]
    got: list[str] = []

    async def drive() -> None:
        while len(got) < len(texts):
            async with await claimed(journal, run.id) as log:
                await log.wait_for_command()
                got.extend(order.text for order in log.take_commands() if isinstance(order, Reply))
                await log.commit()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive)
        with anyio.fail_after(10):
            for text in texts:
                await journal.send_commands(run.id, Reply(text=text))
    assert got == texts
