"""Records of any run: whom it waits for, and that its clock is stopped meanwhile."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from anyio.abc import TaskGroup

from loom_core.errors import LoomError
from loom_core.observability.spans import INVOKE_AGENT
from loom_core.runs.commands import Abort, ApprovalDecision, Command, HumanInputPolicy, InputResponse
from loom_core.runs.executor import HumanBroker, RunExecutor, RunRecorder
from loom_core.runs.journal import Journal
from loom_core.runs.run import Pending, RunRequest, RunUsage


@dataclass
class State:
    """Of a run that asks about its calls, as tools of it do."""

    pending: dict[str, Pending] = field(default_factory=dict)
    calls: set[str] = field(default_factory=lambda: {"c1"})

    def add_pending(self, pending: Pending) -> None:
        self.pending[pending.id] = pending

    def apply_decision(self, decision: ApprovalDecision) -> None:
        del self.pending[decision.id]


class Record(RunRecorder[State]):
    @property
    def spent(self) -> RunUsage:
        return replace(self._spent, seconds=self.stopwatch.seconds)

    @property
    def granted_from(self) -> RunUsage:
        return RunUsage()

    def record_message(self, text: str) -> None:
        raise NotImplementedError

    def record_answer(self, answered: InputResponse) -> None:
        raise NotImplementedError

    def record_resume(self, by: str) -> None:
        raise NotImplementedError


class Parked(RunExecutor[Record]):
    """Executor of a run that is aborted just when it is parked."""

    span_form = INVOKE_AGENT

    async def _advance(self, people: HumanBroker, group: TaskGroup) -> None:
        if not self._record.run.pending:
            self._record.record_request(CALL)
            group.start_soon(self._record.journal.send_commands, self._record.run.id, Abort(by="小王"))
            await self._log.wait_for_command()  # as another task of the run does: either may be the first
        self._park()

    async def _fail(self, error: LoomError) -> None:
        raise error

    async def _end_aborted(self, abort: Abort) -> None:
        self._record._end("aborted", {"by": abort.by, "reason": abort.reason}, "aborted")

    def _revive(self, order: Command) -> None:
        raise NotImplementedError

    def _timeout_error(self) -> LoomError:
        raise NotImplementedError

    async def _wait_for_calls(self) -> None:
        pass


CALL = Pending(id="c1", kind="approval", tool="寄信", arguments_schema={"type": "object"})
QUESTION = Pending(id="q1", kind="question")


@asynccontextmanager
async def driven(journal: Journal, run_id: str):
    """A run that is driven while the block lasts, and what its journal has of it until then."""
    log = await journal.claim(run_id)
    assert log is not None
    async with log:
        yield Record(log, State()), log.steps


@pytest.fixture
async def journal(tmp_path: Path):
    journal = Journal(tmp_path / "runs.db")
    yield journal
    await journal.aclose()


@pytest.fixture
async def run_id(journal: Journal) -> str:
    return (await journal.create(RunRequest(goal="寄一封信"))).id


@pytest.fixture
async def record(journal: Journal, run_id: str):
    async with driven(journal, run_id) as (record, _):
        yield record


async def events(record: Record) -> list[tuple[str, dict]]:
    await record.commit()
    return [(each.type, each.payload) for each in await record.journal.events(record.run.id)]


async def test_a_run_waits_as_long_as_someone_is_asked_and_its_clock_stands_still(record):
    record.record_request(CALL)
    record.record_request(QUESTION)
    assert (record.run.status, record.run.pending) == ("input_required", (CALL, QUESTION))
    still = record.stopwatch.seconds
    assert record.stopwatch.seconds == still
    record.record_decision(ApprovalDecision(id="c1", action="approve", by="小王"))
    assert record.run.status == "input_required"
    record.close_question("q1", action="accept", by="小王")
    assert (record.run.status, record.run.pending) == ("working", ())
    told = await events(record)
    assert [type_ for type_, _ in told[-4:]] == ["approval_required"] * 2 + ["approval_decided"] * 2
    assert told[-4][1]["pending"]["arguments_schema"] == {}


async def test_what_a_tool_asks_is_not_kept_for_a_process_that_goes_on(journal, run_id):
    async with driven(journal, run_id) as (record, _):
        record.record_request(CALL)
        record.record_request(QUESTION)
    async with driven(journal, run_id) as (_, steps):
        assert [step.event.payload["pending"]["id"] for step in steps] == ["c1"]


async def test_a_paused_run_stays_so_when_someone_answers(record):
    record.record_request(CALL)
    record.record_pause("小王")
    record.record_decision(ApprovalDecision(id="c1", action="deny", by="小王"))
    assert (record.run.status, record.paused) == ("paused", True)


async def test_a_run_that_fails_waits_for_no_one_and_says_why(record):
    record.record_request(CALL)
    record.record_failure(LoomError("没有纸了。", advice="买纸。"), failure="tool", output="")
    assert (record.run.status, record.run.pending, record.paused) == ("failed", (), False)
    assert record.run.problem == "没有纸了。 买纸。"
    assert (await events(record))[-1] == (
        "error",
        {"message": "没有纸了。", "advice": "买纸。", "failure": "tool"},
    )


async def test_a_large_thing_gets_an_address_of_the_run(record):
    assert (await record.save_blob(b"x", "text/plain")).startswith(f"loom://runs/{record.run.id}/blobs/")


@pytest.mark.parametrize("_time", range(8))
async def test_an_abort_that_comes_just_as_the_run_is_parked_is_not_lost(_time):
    journal = Journal()
    log = await journal.claim((await journal.create(RunRequest(goal="等一等"))).id)
    assert log is not None
    async with log:
        executor = Parked(log, Record(log, State()), asking=HumanInputPolicy(accepts_commands=True))
        assert (await executor.execute()).status == "aborted"
