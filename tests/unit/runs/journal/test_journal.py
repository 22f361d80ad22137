"""`Journal`: what was asked for, what has happened, and who may see it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from loom_core.errors import InvalidInputError, NotFoundError, StoreError
from loom_core.llm.interface import Usage
from loom_core.observability.log_fields import logging_with
from loom_core.runs.commands import OperatorMessage
from loom_core.runs.journal import Journal, NewEvent, RunLog
from loom_core.runs.run import Attachment, Budget, Pending, Run, RunRequest, RunUsage, caller_name


@pytest.fixture(params=["file", "memory", "postgres"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    match request.param:
        case "file":
            journal = Journal(tmp_path / "agent" / "runs.db")
        case "memory":
            journal = Journal()
        case _:
            journal = Journal(request.getfixturevalue("postgres_place"))
    yield journal
    await journal.aclose()


async def claimed(journal: Journal, run_id: str) -> RunLog:
    log = await journal.claim(run_id)
    assert log is not None
    return log


async def finished(journal: Journal, goal: str, output: str = "done", **request: str) -> Run:
    run = await journal.create(RunRequest(goal=goal, **request))
    async with await claimed(journal, run.id) as log:
        log.add("agent_finish", {"output": output}, status="completed", output=output)
    return log.run


async def test_a_run_is_kept_with_all_that_was_asked_for(journal: Journal):
    request = RunRequest(
        goal="查一下北京的天气 \ud83d",
        profile="weather",
        budget=Budget(iterations=3, tokens=1000, cost=0.5, tool_calls=2, seconds=60.0),
        allowed_tools=("fs:*", "天气"),
        output_schema={"type": "object"},
        idempotency_key="k",
        caller="anna",
        depth=1,
        metadata={"来源": [1, None]},
    )
    run = await journal.create(request)
    assert run.id.startswith("run_")
    assert len(run.id) == 20
    assert run.status == "working"
    assert run.request == replace(request, session_id=run.request.session_id)
    assert await journal.get(run.id) == run


async def test_what_the_log_calls_who_asks_is_kept_with_the_run(journal: Journal):
    with logging_with({"caller": "爱丽丝", "run_id": "run_another"}):
        run = await journal.create(RunRequest(goal="g", caller="token:3f2a9c"))
    assert caller_name(await journal.get(run.id)) == "爱丽丝"
    assert caller_name(await journal.create(RunRequest(goal="g"))) == ""


async def test_what_changes_in_a_run_is_read_as_it_was_written(journal: Journal):
    run = await journal.create(RunRequest(goal="g"))
    pending = (Pending(id="c1", kind="approval", tool="fs:write", arguments={"路径": "/tmp"}, deadline=5.5),)
    spent = RunUsage(iterations=2, usage=Usage(10, 20, cost=0.25), tool_calls=1, seconds=1.5)
    async with await claimed(journal, run.id) as log:
        log.add("approval_required", {}, status="input_required", pending=pending, spent=spent)
        log.add("usage", {}, output="一半", structured={"a": [1]}, problem="why \udc00")
        await log.commit()
        assert await journal.get(run.id) == log.run
    stands = await journal.get(run.id)
    assert (stands.status, stands.pending, stands.spent) == ("input_required", pending, spent)
    assert (stands.output, stands.structured, stands.problem) == ("一半", {"a": [1]}, "why \udc00")
    assert stands.last_seq == 2
    assert stands.driver == ""
    assert log.run.driver.startswith("pid ")


async def test_events_have_numbers_without_a_gap_and_come_back_in_order(journal: Journal):
    run = await journal.create(RunRequest(goal="g"))
    async with await claimed(journal, run.id) as log:
        added = [log.add("text_delta", {"text": f"字{number}"}) for number in range(300)]
    assert [event.seq for event in added] == list(range(1, 301))
    assert await journal.events(run.id, limit=1000) == added
    assert await journal.events(run.id, after=298) == added[298:]
    assert await journal.events(run.id, limit=2) == added[:2]


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
async def test_no_event_is_lost_that_is_added_while_others_are_being_written(journal: Journal):
    run = await journal.create(RunRequest(goal="g"))

    async def add(log: RunLog) -> None:
        for _ in range(500):
            log.add("text_delta", {"text": "字"})
            await log.commit()

    async with await claimed(journal, run.id) as log, anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(add, log)
    events = await journal.events(run.id, limit=3000)
    assert [event.seq for event in events] == list(range(1, 2001))


async def test_the_process_that_claims_a_run_gets_its_events_and_state(journal: Journal):
    run = await journal.create(RunRequest(goal="g"))
    async with await claimed(journal, run.id) as log:
        assert list(log.steps) == []
        first = log.add("request_start", {"goal": "g"}, state={"history": ["你好", None, 1.5]})
        log.add("text_delta", {"text": "x"})
        last = log.add("tool_result", {}, state=[])
    async with await claimed(journal, run.id) as log:
        assert [(step.event, step.state) for step in log.steps] == [
            (first, {"history": ["你好", None, 1.5]}),
            (last, []),
        ]
        assert log.add("text_delta", {}).seq == 4


async def test_a_run_is_claimed_once_and_free_again_afterwards(journal: Journal):
    run = await journal.create(RunRequest(goal="g"))
    assert await journal.find_unclaimed() == [run.id]
    async with await claimed(journal, run.id):
        assert await journal.claim(run.id) is None
        assert await journal.find_unclaimed() == []
        assert (await journal.get(run.id)).driver.startswith("pid ")
    async with await claimed(journal, run.id) as log:
        log.add("agent_finish", {}, status="completed")
    assert await journal.find_unclaimed() == []


async def test_a_log_takes_nothing_after_its_block(journal: Journal):
    run = await journal.create(RunRequest(goal="g"))
    async with await claimed(journal, run.id) as log:
        log.add("text_delta", {})
    with pytest.raises(StoreError, match="not executed here any more"):
        log.add("text_delta", {})
    with pytest.raises(StoreError):
        await log.commit()
    with pytest.raises(StoreError):
        await log.save_blob(b"", "text/plain")


async def test_what_was_added_is_written_also_where_the_block_ends_with_an_exception(journal: Journal):
    run = await journal.create(RunRequest(goal="g"))

    async def fail() -> None:
        async with await claimed(journal, run.id) as log:
            log.add("text_delta", {})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert (await journal.get(run.id)).last_seq == 1


async def test_a_durable_commit_has_something_to_flush_even_if_all_is_written(journal: Journal):
    run = await journal.create(RunRequest(goal="g"))
    async with await claimed(journal, run.id) as log:
        log.add("tool_start", {})
        await log.commit()
        await log.commit(durable=True)
        await log.commit(durable=True)
    assert len(await journal.events(run.id)) == 1


async def test_an_event_changes_no_other_fields_and_holds_only_what_json_can(journal: Journal):
    run = await journal.create(RunRequest(goal="g"))
    async with await claimed(journal, run.id) as log:
        with pytest.raises(TypeError, match="'goal'"):
            log.add("usage", {}, goal="other")
        with pytest.raises(InvalidInputError, match="cannot be stored"):
            log.add("usage", {"what": object()})
        nested: list[object] = []
        for _ in range(100_000):
            nested = [nested]
        with pytest.raises(InvalidInputError):
            log.add("usage", {}, state=nested)
        assert log.add("usage", {}).seq == 1


async def test_a_blob_is_read_by_its_number(journal: Journal):
    run = await journal.create(RunRequest(goal="g"))
    async with await claimed(journal, run.id) as log:
        assert await log.save_blob("很长".encode() * 1000, "text/plain") == 1
        assert await log.save_blob(b"\x89PNG", "image/png") == 2
    async with await claimed(journal, run.id) as log:
        assert await log.save_blob(b"", "text/plain") == 3
    assert await journal.blob(run.id, 1) == ("很长".encode() * 1000, "text/plain")
    assert await journal.blob(run.id, 2) == (b"\x89PNG", "image/png")
    with pytest.raises(NotFoundError, match="no blob 4"):
        await journal.blob(run.id, 4)


async def test_attachments_are_blobs_that_only_the_executor_of_a_run_loads(journal: Journal):
    attachments = (
        Attachment(b"\x89PNG", "猫.png", "image/png"),
        Attachment("喵".encode(), "a.txt", "text/plain"),
    )
    run = await journal.create(RunRequest(goal="看", attachments=attachments))
    async with await claimed(journal, run.id) as log:
        assert [each.data for each in log.run.request.attachments] == [b"\x89PNG", "喵".encode()]
        assert await log.save_blob(b"", "text/plain") == 3
        log.add("agent_finish", {}, status="completed")
    (listed,) = await journal.runs()
    assert listed.request.attachments == attachments  # by their digests
    assert {each.data for each in listed.request.attachments} == {b""}
    fork = await journal.fork(run.id, listed.request, [1])
    assert await journal.blob(fork.id, 1) == (b"\x89PNG", "image/png")
    await journal.purge(run.id)
    assert await journal.blob(fork.id, 2) == ("喵".encode(), "text/plain")


async def test_the_same_key_gives_the_same_run_to_the_same_caller_only(journal: Journal):
    run = await finished(journal, "g", idempotency_key="k", caller="anna")
    again = await journal.create(RunRequest(goal="g", idempotency_key="k", caller="anna"))
    assert (again.id, again.status) == (run.id, "completed")
    other = await journal.create(RunRequest(goal="g", idempotency_key="k", caller="ben"))
    assert other.id != run.id
    with pytest.raises(InvalidInputError, match="another goal"):
        await journal.create(RunRequest(goal="h", idempotency_key="k", caller="anna"))
    keyless = [await journal.create(RunRequest(goal="g")) for _ in range(2)]
    assert keyless[0].id != keyless[1].id


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("profile", "港务", "profile"),
        ("allowed_tools", ("天气",), "set of allowed tools"),
        ("output_schema", {"type": "object", "required": []}, "output schema"),
        ("budget", Budget(tokens=6), "budget"),
        ("session_id", "ses_none", "session"),
    ],
)
async def test_a_key_is_for_one_request_and_no_other(journal: Journal, name: str, value: object, said: str):
    request = RunRequest(
        goal="查一下天气",
        allowed_tools=("天气", "fs:*"),
        output_schema={"type": "object"},
        budget=Budget(tokens=5, seconds=1.5),
        idempotency_key="键" * 1000,
    )
    run = await journal.create(request)
    session = run.request.session_id
    for same in (request, replace(request, session_id=session, metadata={"client": "another"})):
        assert (await journal.create(same)).id == run.id
    with pytest.raises(InvalidInputError, match=f"was used for another {said} ") as refused:
        await journal.create(replace(request, **{name: value}))
    assert len(str(refused.value)) < 500


async def test_numbers_that_are_too_large_for_the_file_find_nothing(journal: Journal):
    first = await finished(journal, "g")
    await finished(journal, "h")
    for after in (2**32 - 1, 2**32, 2**63, 10**30):
        assert await journal.events(first.id, after=after) == []
    assert len(await journal.events(first.id, after=-(10**30), limit=10**30)) == 1
    assert len(await journal.runs(limit=10**30)) == 2
    for number in (-1, 2**63, 10**30):
        with pytest.raises(NotFoundError, match="no blob"):
            await journal.blob(first.id, number)


async def test_the_runs_of_a_session_come_one_after_the_other(journal: Journal):
    first = await journal.create(RunRequest(goal="g", caller="anna"))
    session = first.request.session_id
    with pytest.raises(InvalidInputError, match=first.id):
        await journal.create(RunRequest(goal="h", session_id=session, caller="anna"))
    async with await claimed(journal, first.id) as log:
        log.add("error", {}, status="failed", problem="p")
    second = await journal.create(RunRequest(goal="h", session_id=session, caller="anna"))
    assert second.request.session_id == session
    for wrong in ({"session_id": session, "caller": "ben"}, {"session_id": "ses_none"}):
        with pytest.raises(NotFoundError, match="no session"):
            await journal.create(RunRequest(goal="h", **wrong))


@pytest.mark.parametrize("name", ["caller", "idempotency_key", "session_id"])
async def test_a_name_that_is_no_text_is_refused(journal: Journal, name: str):
    with pytest.raises(InvalidInputError, match=name):
        await journal.create(RunRequest(goal="g", **{name: "\ud800"}))


async def test_a_session_that_no_one_knows_may_begin_under_its_own_id(journal: Journal):
    request = RunRequest(goal="继续", session_id="ses_elsewhere")
    with pytest.raises(NotFoundError):
        await journal.create(request)
    run = await journal.create(request, begins_session=True)
    assert run.request.session_id == "ses_elsewhere"
    with pytest.raises(InvalidInputError, match="has a run that has not ended"):
        await journal.create(request, begins_session=True)
    with pytest.raises(NotFoundError):
        await journal.create(replace(request, caller="anna"), begins_session=True)


async def test_a_request_that_json_cannot_hold_leaves_nothing_behind(journal: Journal):
    with pytest.raises(InvalidInputError):
        await journal.create(RunRequest(goal="g", metadata={"x": object()}))
    assert await journal.runs() == []


async def test_no_request_keeps_the_database_from_searching_in_all_of_them(journal: Journal):
    with pytest.raises(InvalidInputError, match="not JSON compliant"):
        await journal.create(RunRequest(goal="a", metadata={"context": {"level": float("nan")}}))
    run = await journal.create(RunRequest(goal="a", budget=Budget(cost=float("inf"))))

    (found,) = await journal.runs(caller="another", profiles=["default"])
    assert (found.id, found.request.budget) == (run.id, Budget())


async def test_runs_are_listed_latest_first_by_caller_session_and_status(journal: Journal):
    done = await finished(journal, "a", caller="anna")
    open_ = await journal.create(RunRequest(goal="b", caller="anna"))
    other = await journal.create(RunRequest(goal="c", caller="ben"))
    assert [run.id for run in await journal.runs()] == [other.id, open_.id, done.id]
    assert [run.id for run in await journal.runs(caller="anna")] == [open_.id, done.id]
    assert [run.id for run in await journal.runs(caller="")] == []
    assert [run.id for run in await journal.runs(status=["completed", "failed"])] == [done.id]
    assert [run.id for run in await journal.runs(session_id=other.request.session_id)] == [other.id]
    assert [run.id for run in await journal.runs(limit=1)] == [other.id]


@pytest.mark.parametrize("run_id", ["run_aaaaaaaaaaaaaaaa", "", "\ud800", "運行"])
async def test_a_run_that_is_not_there_is_not_found(journal: Journal, run_id: str):
    with pytest.raises(NotFoundError):
        await journal.get(run_id)
    with pytest.raises(NotFoundError):
        await journal.claim(run_id)
    with pytest.raises(NotFoundError):
        await journal.events(run_id)


async def test_a_run_is_not_shown_to_another_caller(journal: Journal):
    run = await finished(journal, "secret plan", caller="anna")
    assert (await journal.get(run.id, caller="anna")).id == run.id
    with pytest.raises(NotFoundError):
        await journal.get(run.id, caller="ben")
    with pytest.raises(NotFoundError):
        await journal.purge(run.id, caller="ben")
    assert await journal.search("secret", caller="ben") == []
    assert len(await journal.search("secret", caller="anna")) == 1


async def test_runs_are_found_by_words_of_goal_and_output_in_english_and_chinese(journal: Journal):
    weather = await finished(journal, "查询北京的天气预报", "北京今天晴，25 度")
    report = await finished(journal, "Write the quarterly report", "Sales grew in Shanghai（上海）")
    assert [run.id for run in await journal.search("天气")] == [weather.id]
    assert [run.id for run in await journal.search("上海")] == [report.id]
    assert [run.id for run in await journal.search("reports")] == [report.id]
    assert {run.id for run in await journal.search("晴 report")} == {weather.id, report.id}
    assert len(await journal.search("天气 report", limit=1)) == 1
    assert await journal.search("火星") == []
    assert await journal.search("") == []


async def test_a_run_that_goes_on_is_found_by_what_it_says_then(journal: Journal):
    run = await journal.create(RunRequest(goal="翻译"))
    async with await claimed(journal, run.id) as log:
        log.add("error", {}, status="failed", output="apple")
        await log.commit()
        assert len(await journal.search("apple")) == 1
        log.add("agent_finish", {}, status="completed", output="pear")
        await log.commit()
    assert await journal.search("apple") == []
    assert len(await journal.search("pear")) == 1


async def test_a_forgotten_run_has_gone_with_all_that_belongs_to_it(journal: Journal):
    run = await finished(journal, "remember the alamo")
    await journal.search("alamo")
    await journal.purge(run.id)
    assert await journal.search("alamo") == []
    for ask in (journal.get, journal.events, journal.purge):
        with pytest.raises(NotFoundError):
            await ask(run.id)
    with pytest.raises(NotFoundError, match="no session"):
        await journal.create(RunRequest(goal="g", session_id=run.request.session_id))


async def test_a_run_at_work_is_not_forgotten(journal: Journal):
    run = await journal.create(RunRequest(goal="g"))
    async with await claimed(journal, run.id):
        with pytest.raises(InvalidInputError, match="being executed"):
            await journal.purge(run.id)


async def test_old_runs_are_pruned_but_for_the_last_ones_and_those_not_at_their_end(journal: Journal):
    done = [await finished(journal, f"g{number}") for number in range(30)]
    open_ = await journal.create(RunRequest(goal="open"))
    assert await journal.prune(older_than=3600) == 0
    assert await journal.prune(older_than=-1, keep_last=3) == 28
    assert [run.id for run in await journal.runs()] == [open_.id, done[29].id, done[28].id]


async def test_a_journal_in_a_file_is_there_when_it_is_opened_again(tmp_path: Path):
    path = tmp_path / "new" / "runs.db"
    journal = Journal(path)
    assert not path.parent.exists()
    run = await finished(journal, "记住我")
    await journal.aclose()
    assert list(path.with_name("runs.db.drivers").iterdir()) == []
    again = Journal(str(path))
    assert (await again.get(run.id)).output == "done"
    assert [found.id for found in await again.search("记住")] == [run.id]
    await again.aclose()


async def test_a_closed_journal_says_so(journal: Journal):
    run = await journal.create(RunRequest(goal="g"))
    log = await claimed(journal, run.id)
    await journal.aclose()
    await journal.aclose()
    for ask in (journal.get, journal.events):
        with pytest.raises(StoreError, match="closed"):
            await ask(run.id)
    with pytest.raises(StoreError, match="closed"):
        async with log:
            log.add("text_delta", {})
    with pytest.raises(ZeroDivisionError):
        async with log:
            raise ZeroDivisionError


async def test_closing_a_journal_frees_its_runs_and_keeps_what_was_added(place: str):
    journal, other = Journal(place), Journal(place)
    run = await journal.create(RunRequest(goal="g"))
    log = await claimed(journal, run.id)
    log.add("text_delta", {})
    assert await other.claim(run.id) is None
    await journal.aclose()
    async with await claimed(other, run.id) as log:
        assert log.run.last_seq == 1
    await other.aclose()


async def test_a_place_where_nothing_can_be_written_is_refused_with_advice(tmp_path: Path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StoreError) as caught:
        await Journal(tmp_path / "file" / "runs.db").create(RunRequest(goal="g"))
    assert caught.value.advice
    (tmp_path / "broken.db").write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError) as caught:
        await Journal(tmp_path / "broken.db").runs()
    assert "Restore it" in caught.value.advice


async def test_runs_are_found_by_the_kind_of_what_they_wait_for(journal: Journal):
    kinds: dict[str, str] = {}
    for kind in ("question", "event", "operator"):
        run = await journal.create(RunRequest(goal='it says "kind":"operator"', caller=kind))
        async with await claimed(journal, run.id) as log:
            pending = Pending(id="p", kind=kind, tool="paid", arguments={"key": "甲%_"})
            log.add("approval_required", {}, status="input_required", pending=(pending,))
        kinds[run.id] = kind
    for kind in ("question", "event", "operator"):
        assert [kinds[run.id] for run in await journal.runs(waits_for=kind)] == [kind]
    assert await journal.runs(waits_for="event", caller="operator") == []
    assert [kinds[run.id] for run in await journal.runs(waits_for="event", waits_for_name="paid")] == [
        "event"
    ]
    assert await journal.runs(waits_for="event", waits_for_name="sent") == []


@pytest.mark.parametrize("name", ["支付.成功", 'a "b"', "50% off_", "back\\slash", "two words", "it's"])
async def test_an_event_is_found_by_a_name_of_any_characters(journal: Journal, name: str):
    run = await journal.create(RunRequest(goal="wait"))
    async with await claimed(journal, run.id) as log:
        pending = Pending(id="p", kind="event", tool=name)
        log.add("approval_required", {}, status="input_required", pending=(pending,))
    found = await journal.runs(waits_for="event", waits_for_name=name)
    assert [each.id for each in found] == [run.id]


async def test_an_operator_writes_only_where_a_run_waits_for_one(journal: Journal):
    run = await journal.create(RunRequest(goal="help"))
    async with await claimed(journal, run.id) as log:
        asked = Pending(id="q", kind="question")
        handed = Pending(id="h", kind="operator", deadline=1.0)
        log.add("approval_required", {}, status="input_required", pending=(asked, handed))
    with pytest.raises(InvalidInputError, match="not with an operator"):
        await journal.send_commands(run.id, OperatorMessage(id="q", text="Hello", by="Anna"))
    with pytest.raises(InvalidInputError, match="deadline"):
        await journal.send_commands(run.id, OperatorMessage(id="h", text="Hello", by="Anna"))
    with pytest.raises(InvalidInputError, match="does not wait for"):
        await journal.send_commands(run.id, OperatorMessage(id="x", text="Hello", by="Anna"))


async def test_a_fork_keeps_its_events_and_blobs_when_the_original_is_gone(journal: Journal) -> None:
    run = await journal.create(RunRequest(goal="读"))
    async with await claimed(journal, run.id) as log:
        log.add("request_start", {"goal": "读"}, state={"history": []})
        for number in (1, 2):
            await log.save_blob(f"全文 {number}".encode(), "text/plain")
            text = f"loom://runs/{run.id}/blobs/{number}"
            log.add("tool_result", {"text": text}, state={"message": text})
        log.add("agent_finish", {"output": "好"}, status="completed", output="好")
    given = NewEvent("message_received", {"text": "再读"}, {"text": "再读"})
    fork = await journal.fork(run.id, RunRequest(goal="读"), [1, 2, given])
    assert (fork.status, fork.last_seq, fork.output) == ("working", 3, "")
    await journal.purge(run.id)
    events = await journal.events(fork.id)
    assert [(event.seq, event.type) for event in events] == [
        (1, "request_start"),
        (2, "tool_result"),
        (3, "message_received"),
    ]
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert events[1].payload["text"] == f"loom://runs/{fork.id}/blobs/1"
    assert await journal.blob(fork.id, 1) == ("全文 1".encode(), "text/plain")
    async with await claimed(journal, fork.id) as log:
        states = [step.state for step in log.steps]
        assert states == [{"history": []}, {"message": events[1].payload["text"]}, {"text": "再读"}]
        assert await log.save_blob("新".encode(), "text/plain") == 2, (
            "the blob of a later event is not copied"
        )
