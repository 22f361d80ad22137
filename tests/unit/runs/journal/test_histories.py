"""Whatever happens to a journal in whatever order: it says what a plain model of it says."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from loom_core.runs.commands import Reply
from loom_core.runs.journal import Journal, RunLog
from loom_core.runs.run import RunRequest, RunStatus
from tests.fixtures.store_servers.postgres import PASSWORD, PostgresServer

pytestmark = pytest.mark.slow

TEXTS = st.sampled_from(["hello", "你好，世界", "", "\ud83d"])
STATUSES = st.sampled_from(["working", "input_required", "paused", "failed"])


@dataclass
class Model:
    """A run as it should stand."""

    goal: str
    events: list[tuple[str, Any, str | None]] = field(default_factory=list)  # text, state, changed status
    orders: list[str] = field(default_factory=list)
    driver: int | None = None  # which journal

    @property
    def status(self) -> str:
        return next((status for *_, status in reversed(self.events) if status), "working")


class Histories(RuleBasedStateMachine):
    """Two journals in one place, as two processes have it, and what becomes of it."""

    def __init__(self, new_place: Callable[[str], str]) -> None:
        super().__init__()
        self.place = new_place(f"t{secrets.token_hex(4)}")
        self.runner = asyncio.Runner()
        self.journals = [self.opened(), self.opened()]
        self.models: dict[str, Model] = {}
        self.logs: dict[str, RunLog] = {}
        self.taken: dict[str, list[str]] = {}  # orders that are obeyed with the next commit
        self.loose: dict[str, int] = {}  # how many events come with it

    def opened(self) -> Journal:
        return Journal(self.place)

    def teardown(self) -> None:
        for journal in self.journals:
            self.runner.run(journal.aclose())
        self.runner.close()

    @rule(goal=TEXTS, number=st.integers(0, 1))
    def create(self, goal: str, number: int) -> None:
        run = self.runner.run(self.journals[number].create(RunRequest(goal=goal)))
        self.models[run.id] = Model(goal)

    @precondition(lambda self: self.models)
    @rule(data=st.data(), number=st.integers(0, 1))
    def claim(self, data: st.DataObject, number: int) -> None:
        run_id = data.draw(st.sampled_from(list(self.models)))
        model = self.models[run_id]
        log = self.runner.run(self.journals[number].claim(run_id))
        assert (log is None) == (model.driver is not None)
        if log is not None:
            model.driver = number
            self.logs[run_id], self.taken[run_id], self.loose[run_id] = log, [], 0
            assert [(step.event.payload["text"], step.state) for step in log.steps] == [
                (text, state) for text, state, _ in model.events if state is not None
            ]

    @precondition(lambda self: self.logs)
    @rule(
        data=st.data(),
        text=TEXTS,
        state=st.none() | st.lists(TEXTS, max_size=2),
        status=st.none() | STATUSES,
        commit=st.booleans(),
        durable=st.booleans(),
    )
    def add(
        self,
        data: st.DataObject,
        text: str,
        state: list[str] | None,
        status: RunStatus | None,
        commit: bool,
        durable: bool,
    ) -> None:
        run_id = data.draw(st.sampled_from(list(self.logs)))
        log, model = self.logs[run_id], self.models[run_id]
        changes = {} if status is None else {"status": status}
        assert log.add("text_delta", {"text": text}, state=state, **changes).seq == len(model.events) + 1
        model.events.append((text, state, status))
        if self.taken[run_id]:
            self.loose[run_id] += 1
        if commit:
            self.runner.run(log.commit(durable=durable))
            self.taken[run_id], self.loose[run_id] = [], 0

    @precondition(lambda self: self.models)
    @rule(data=st.data(), number=st.integers(0, 1))
    def order(self, data: st.DataObject, number: int) -> None:
        run_id = data.draw(st.sampled_from(list(self.models)))
        model = self.models[run_id]
        if model.status != "failed" and not self.loose.get(run_id):
            text = str(len(model.events))
            self.runner.run(self.journals[number].send_commands(run_id, Reply(text=text)))
            model.orders.append(text)

    @precondition(lambda self: self.logs)
    @rule(data=st.data())
    def obey(self, data: st.DataObject) -> None:
        run_id = data.draw(st.sampled_from(list(self.logs)))
        log, model = self.logs[run_id], self.models[run_id]
        if model.orders:
            self.runner.run(log.wait_for_command())
        # Those of the other process come when they come, but in order.
        taken = [order.text for order in log.take_commands() if isinstance(order, Reply)]
        assert taken == model.orders[: len(taken)]
        del model.orders[: len(taken)]
        self.taken[run_id] += taken

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), broken=st.booleans())
    def let_go(self, data: st.DataObject, broken: bool) -> None:
        run_id = data.draw(st.sampled_from(list(self.logs)))
        self.end(run_id, broken=broken)

    @rule(number=st.integers(0, 1))
    def reopen(self, number: int) -> None:
        for run_id in [each for each, model in self.models.items() if model.driver == number]:
            self.end(run_id, broken=True)
        self.runner.run(self.journals[number].aclose())
        self.journals[number] = self.opened()

    def end(self, run_id: str, *, broken: bool) -> None:
        log, model = self.logs.pop(run_id), self.models[run_id]
        loose, taken = self.loose.pop(run_id), self.taken.pop(run_id)
        error = ValueError() if broken else None
        self.runner.run(log.__aexit__(type(error) if error else None, error, None))
        model.driver = None
        if broken and taken:  # they were never obeyed, and what followed from them has not happened
            model.orders[:0] = taken
            del model.events[len(model.events) - loose :]

    @invariant()
    def says_what_the_model_says(self) -> None:
        for number, journal in enumerate(self.journals):
            for run_id, model in self.models.items():
                if model.driver is not None:
                    continue  # what is not committed may be there or not
                events = self.runner.run(journal.events(run_id))
                assert [event.payload["text"] for event in events] == [text for text, *_ in model.events]
                assert [event.seq for event in events] == list(range(1, len(events) + 1))
                run = self.runner.run(journal.get(run_id))
                assert (run.request.goal, run.last_seq) == (model.goal, len(events))
                assert (run.status, run.driver) == (model.status, "")
            free = [
                run_id
                for run_id, model in self.models.items()
                if model.driver is None and (model.status == "working" or model.orders)
            ]
            if not self.logs:
                assert self.runner.run(journal.find_unclaimed()) == free, number


def test_a_journal_in_a_file_says_what_the_model_says(tmp_path: Path) -> None:
    histories = partial(Histories, lambda name: str(tmp_path / f"{name}.db"))
    run_state_machine_as_test(histories, settings=settings(max_examples=15, stateful_step_count=20))


def test_a_journal_in_postgresql_says_what_the_model_says(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    histories = partial(Histories, lambda name: postgres.url(f"?schema={name}"))
    run_state_machine_as_test(histories, settings=settings(max_examples=5, stateful_step_count=20))
