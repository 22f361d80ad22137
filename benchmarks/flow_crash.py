"""Flows are killed at random moments: every run comes to its end, and nothing is done twice or lost.

    python benchmarks/flow_crash.py [--kills 200] [--processes 1] [--seed 0] [--keep FOLDER]

Processes that share one journal drive runs of flows: requests one after the other and side by side, a case of
several, steps for each item of a list, a flow within the flow, a step that is come to again and again,
retries after a wait, questions, a confirmation, a tool that has to be approved, a time and an event that are
waited for, an operator who writes and returns the conversation; another process begins the runs, answers,
decides, pauses, aborts, resumes, and
has failed ones go on, from where they failed or from an earlier step (`flow_crash_actor.py`). One of them
gets SIGKILL at a random moment and is started again. What the API does is counted here, outside of the
processes that are killed; it refuses a fifth of what it is asked, having done nothing, and loses the answer
to a twentieth of what it has done.

At last all runs are let come to their end, and each is compared with what was counted, by the keys that the
requests carried: nothing that must not be done twice was begun again unless it had been refused, or a
person had said so; nothing was done more often than it was allowed; nothing has a result that was not done;
each message of the operator that was acknowledged is there once;
every run that is completed has done all that belongs to it, and events are numbered without a gap.
"""

from __future__ import annotations

import asyncio
import atexit
import random
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from killing import crash_run, journal_place, said_file
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Run

_ACTOR = Path(__file__).with_name("flow_crash_actor.py")
_REPEATABLE = frozenset({"check", "shelf", "announce", "receipt"})
_DOES_NOTHING = frozenset({"both", "pay", "route", "parts", "told", "rest", "paid", "size", "desk", "sure"})
_ALL = (
    "both/0/reserve",
    "both/0/shelf",
    "both/1/announce",
    "both/1/label",
    "pay/charge",
    *(f"route/1/parts/{number}/part" for number in range(3)),
    "more",
    "send",
    "finish",
)
_REFUSED = 0.2
_LOST = 0.05
_SLOWEST = 0.03  # seconds, before and after something is done


class Effects:
    """The API; counts what it has done, by `Idempotency-Key`."""

    def __init__(self) -> None:
        self.done = Counter[str]()
        self._dice = random.Random()
        listener = socket.create_server(("127.0.0.1", 0))
        self.shared = str(listener.getsockname()[1])
        methods = ["GET", "PUT", "POST"]
        app = Starlette(routes=[Route("/{what}", self._do, methods=methods)])
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        self._thread = threading.Thread(target=self._server.run, args=([listener],), daemon=True)
        self._thread.start()
        atexit.register(self._stop)  # a thread in native code can crash an interpreter that ends

    def _stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(timeout=10)

    def total(self) -> int:
        """How often something was done."""
        return self.done.total()

    async def _do(self, request: Request) -> Response:
        await asyncio.sleep(self._dice.random() * _SLOWEST)
        what = request.path_params["what"]
        if what not in _REPEATABLE and self._dice.random() < _REFUSED:
            return JSONResponse({"msg": "not now"}, 500)
        key = request.headers.get("idempotency-key", "")
        if key and (what not in _REPEATABLE or key not in self.done):  # those it knows by their keys
            self.done[key] += 1
        await asyncio.sleep(self._dice.random() * _SLOWEST)
        if self._dice.random() < _LOST:
            return JSONResponse({"msg": "no answer"}, 504)
        return JSONResponse({"done": what, "left": self._dice.randrange(-1, 2)})


class _Step:
    """One visit of a step, by a run's events.

    Attributes:
        path: of the step.
        begun: how often it was begun.
        allowed: how often it may have been done.
        results: how it ended, each time.
        wrong: what should not be.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.begun = 0
        self.allowed = 0
        self.results: list[str] = []
        self.wrong: list[str] = []
        self._again = 1
        self._free = True  # to be begun: for the first time, after a refusal, or as a person has said so

    @property
    def once(self) -> bool:
        return self.path.rsplit("/", 1)[-1] not in _REPEATABLE

    def start(self) -> None:
        if not self._free and self.once:
            self.wrong.append("begun again, although it may have been done and no person had said so")
        self.begun += 1
        self.allowed += self._again
        self._free, self._again = False, 0

    def end(self, status: str) -> None:
        self.results.append(status)
        self._free = status in {"failure", "declined"}  # by the API or by a person, and nothing was done
        self._again = 0

    def permit(self) -> None:
        """A person wants it begun again, although it may have been done."""
        self._free, self._again = True, 1


class _Steps:
    """Steps of a run, by its events."""

    def __init__(self) -> None:
        self.by_key: dict[str, _Step] = {}
        self._asked: dict[str, str] = {}
        self._at: dict[str, str] = {}
        self.counts = Counter[str]()

    def see(self, event: StreamEvent) -> None:
        """Take in an event."""
        payload: Any = event.payload
        match event.type:
            case "step_start" if payload["step_id"].rsplit("/", 1)[-1] not in _DOES_NOTHING:
                self._at[payload["step_id"]] = payload["key"]
                self.by_key.setdefault(payload["key"], _Step(payload["step_id"])).start()
            case "step_result" if payload["step_id"] in self._at:
                self.by_key[self._at[payload["step_id"]]].end(payload["status"])
            case "approval_required":
                self._asked[payload["pending"]["id"]] = kind = payload["pending"]["kind"]
                self.counts[f"asked: {kind}"] += 1
            case "approval_decided" if self._asked.get(payload["call_id"]) == "unknown":
                if payload["action"] == "approve":
                    self.by_key[payload["call_id"]].permit()
            case "resumed" if payload["from_status"] in {"failed", "aborted"}:
                self.counts["gone on after the end"] += 1
                if payload.get("step_id"):  # what came of it and what followed is forgotten
                    self.counts["gone on from a step"] += 1
                    for step in self.by_key.values():
                        if not step.results or step.results[-1] == "unknown":
                            step.permit()
            case _:
                pass


class Findings:
    """Findings of the final comparison."""

    def __init__(self, done: Counter[str]) -> None:
        self._done = done
        self.wrong: list[str] = []
        self.counts = Counter[str]()
        self._heard = Counter[str]()
        self._aborted = set[str]()

    async def compare(self, path: Path) -> None:
        """Compare all runs of a journal with what was counted."""
        from loom_core.runs.journal import Journal

        journal = Journal(journal_place(path))
        for run in reversed(await journal.runs(limit=100_000)):
            self.counts[run.status] += 1
            self._check(run, await journal.events(run.id, limit=100_000))
        await journal.aclose()
        said = said_file(path)
        for line in said.read_text("utf-8").splitlines() if said.exists() else ():
            self.counts["acknowledged messages of the operator"] += 1
            run = line.split(" ", 1)[0]
            if self._heard[line] != 1 and run not in self._aborted:  # an abort may come first
                self.wrong.append(f"the message {line!r} of the operator is there {self._heard[line]} times")

    def _check(self, run: Run, events: Sequence[StreamEvent]) -> None:
        number = run.request.idempotency_key
        self.counts["events"] += len(events)
        if [event.seq for event in events] != list(range(1, len(events) + 1)):
            self.wrong.append(f"run {number}: its events are not numbered without a gap")
        if run.status not in {"completed", "aborted"}:
            self.wrong.append(f"run {number} is {run.status}: {run.problem}")
        if run.status == "completed" and run.output != f"任务 {number} 完成":
            self.wrong.append(f"run {number} has the output {run.output!r}")
        if run.status == "aborted":
            self._aborted.add(run.id)
        steps = _Steps()
        for event in events:
            steps.see(event)
            if event.type == "operator_message":
                self._heard[event.payload["text"]] += 1
        self.counts.update(steps.counts)
        for key, step in steps.by_key.items():
            self.counts["steps"] += 1
            self.counts["begun again"] += step.begun > 1
            self.wrong += [f"run {number}, {key}: {wrong}" for wrong in self._compared(run, key, step)]
        self.wrong += [f"run {number}: {wrong}" for wrong in self._under_two_keys(run, steps)]
        # Who has a run go on from another step than the one that failed may leave that one out.
        if run.status == "completed" and not steps.counts["gone on from a step"]:
            have = {step.path for step in steps.by_key.values() if "success" in step.results}
            self.wrong += [f"run {number} has not done {path}" for path in _ALL if path not in have]
        prefix = f"{run.id}:"
        known = {f"{prefix}{key}" for key in steps.by_key}
        strange = {key for key in self._done if key.startswith(prefix)} - known
        if strange:
            self.wrong.append(f"run {number}: done without being begun: {strange}")

    def _under_two_keys(self, run: Run, steps: _Steps) -> list[str]:
        """Steps that were done, had no result, and were asked for once more under another key."""
        last: dict[str, str] = {}
        wrong: list[str] = []
        for key, step in steps.by_key.items():
            before = last.get(step.path)
            lost = before is not None and "success" not in steps.by_key[before].results
            if before is not None and lost and self._done[f"{run.id}:{before}"]:
                wrong.append(f"{before} was done, and then {key} was asked for")
            last[step.path] = key
        return wrong

    def _compared(self, run: Run, key: str, step: _Step) -> list[str]:
        done = self._done[f"{run.id}:{key}"]
        counted = step.path.rsplit("/", 1)[-1] not in {"check", "receipt"}  # these carry no key
        found = {
            f"done {done} times, allowed {step.allowed} times": step.once and done > step.allowed,
            f"done {done} times, begun {step.begun} times": not step.once and done > step.begun,
            "has a result, and was not done": counted and "success" in step.results and not done,
            f"results {step.results}": step.results.count("success") > 1,
        }
        return [*step.wrong, *(text for text, wrong in found.items() if wrong)]


if __name__ == "__main__":
    crash_run(
        (__doc__ or "").split("\n", 1)[0],
        _ACTOR,
        name="loom-flow-crash",
        effects=lambda _: Effects(),
        findings=lambda effects: Findings(effects.done),
        failed=True,
    )
