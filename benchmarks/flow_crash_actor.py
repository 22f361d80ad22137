"""One process of the crash run of flows (`flow_crash.py`), which goes on until it is killed.

    python benchmarks/flow_crash_actor.py drive JOURNAL PORT
    python benchmarks/flow_crash_actor.py person JOURNAL SEED

`drive` drives runs of flows whose steps ask an API at that port of this machine, side by side and one after
the other, in circles, after a wait, in a flow within the flow, and through a tool. `person` begins runs,
answers and decides what they ask, and now and then pauses, aborts, resumes them or has them go on from a
step; once the file `JOURNAL.stop` is there it begins nothing and lets all runs come to their end.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import anyio

from loom_core.errors import InvalidInputError
from loom_core.flow.config import LoadedFlows, parse_flow_file
from loom_core.flow.executor import FlowExecutor
from loom_core.flow.http import ConfigToolLoader, EndpointCaller
from loom_core.runs.host import RunHost
from loom_core.runs.journal import Journal
from loom_core.runs.orders import Abort, Answered, Decided, Order, Pause, Resume, Retry
from loom_core.runs.run import Pending, Run, RunRequest

_OPEN = 12  # runs at the same time
_LOOK_SECONDS = 0.3
_STEPS = ("check", "both", "pay", "more", "send", "finish")


def _post(step_id: str, **more: object) -> dict[str, Any]:
    return {"stepId": step_id, "operation": f"POST /{step_id}", **more}


def flows(port: int) -> LoadedFlows:
    """The flows of the crash run."""
    again = {"type": "retry", "retryAfter": 0.2, "retryLimit": 20}
    goods = {"type": "object", "properties": {"number": {"type": "integer"}, "goods": {"type": "string"}}}
    order: dict[str, Any] = {
        "flow_id": "order",
        "input_schema": goods | {"required": ["number", "goods"]},
        "steps": [
            {"stepId": "check", "operation": "GET /check"},
            {
                "stepId": "both",
                "parallel": [
                    [_post("reserve", onFailure=[again]), {"stepId": "shelf", "operation": "PUT /shelf"}],
                    [_post("announce", idempotent=True), _post("label", onFailure=[again])],
                ],
                "onFailure": [again],
            },
            {"stepId": "pay", "workflowId": "pay"},
            {"stepId": "size", "ask": {"question": "多大？", "schema": {"type": "integer"}}},
            _post(
                "more",
                parameters={"size": "{$steps.size.outputs.answer}"},
                onFailure=[again],
                onSuccess=[{"type": "goto", "stepId": "more", "criteria": ["$response.body#/left > 0"]}],
            ),
            {"stepId": "sure", "confirm": "都对吗？"},
            {"stepId": "send", "tool": "send", "parameters": {"to": "{$inputs.goods}"}, "onFailure": [again]},
            _post("finish", onFailure=[again]),
        ],
        "response": "任务 {$inputs.number} 完成",
    }
    pay = {
        "flow_id": "pay",
        "input_schema": {"type": "object", "properties": {"number": {"type": "integer"}}},
        "steps": [_post("charge", onFailure=[again]), {"stepId": "receipt", "operation": "GET /receipt"}],
    }
    send = {
        "name": "send",
        "description": "Send it.",
        "parameters": {"type": "object", "properties": {"to": {"type": "string"}}},
        "endpoint": "POST /send",
    }
    written = {
        "flow_url": f"http://127.0.0.1:{port}",
        "net": {"allow": ["127.0.0.1"]},
        "flows": [order, pay],
        "system_tools": [send],
    }
    return parse_flow_file(json.dumps(written))


async def drive(path: Path, port: int) -> None:
    """Drive whatever nobody drives."""
    journal, loaded = Journal(path), flows(port)
    async with EndpointCaller(loaded.file) as caller:
        executor = FlowExecutor(
            loaded, journal=journal, caller=caller, tools=ConfigToolLoader(loaded.file, caller).load()
        )
        async with RunHost(journal, executor.runner, look_seconds=_LOOK_SECONDS):
            print("began", flush=True)
            await anyio.sleep_forever()


class Person:
    """Begins runs, and has a say in them."""

    def __init__(self, journal: Journal, *, stop: Path, seed: int) -> None:
        self._journal = journal
        self._stop = stop
        self._dice = random.Random(seed)

    async def live(self) -> None:
        """Go on until the process ends."""
        while True:
            stopping = self._stop.exists()
            runs = await self._journal.runs(status=("working", "input_required", "paused"), limit=1000)
            for run in runs:
                await self._see_to(run, stopping=stopping)
            for run in await self._journal.runs(status=("failed",), limit=1000):
                if stopping or self._dice.random() < 0.2:
                    step = "" if stopping or self._dice.random() < 0.7 else self._dice.choice(_STEPS)
                    await self._order(run, Retry(step=step, by="小王"))
            for run in await self._journal.runs(status=("aborted",), limit=5):
                if not stopping and self._dice.random() < 0.05:
                    await self._order(run, Resume(by="小王"))
            if not stopping and len(runs) < _OPEN:
                await self._begin()
            await anyio.sleep(0.05)

    async def _begin(self) -> None:
        (last, *_) = await self._journal.runs(limit=1) or [None]
        number = 1 if last is None else int(last.request.idempotency_key) + 1
        inputs: dict[str, Any] = {"number": number}
        if self._dice.random() < 0.6:
            inputs["goods"] = "茶叶"
        metadata = {"kind": "flow", "inputs": inputs, "confirm": self._dice.random() < 0.3}
        request = RunRequest(
            goal=f"订单 {number}", profile="order", idempotency_key=str(number), metadata=metadata
        )
        await self._journal.create(request)

    async def _see_to(self, run: Run, *, stopping: bool) -> None:
        dice = self._dice
        for pending in run.pending:
            if stopping or dice.random() < 0.5:
                await self._order(run, self._said(pending))
        if run.status == "paused" and (stopping or dice.random() < 0.2):
            await self._order(run, Resume(by="小王"))
        if not stopping:
            told = dice.random()
            if told < 0.002:
                await self._order(run, Abort(reason="先不做", by="小王"))
            elif told < 0.007:
                await self._order(run, Pause(by="小王"))

    def _said(self, pending: Pending) -> Order:
        if pending.kind == "question":
            fits = (
                {"goods": "茶叶", "answer": 3} if self._dice.random() < 0.9 else {"goods": 1, "answer": "大"}
            )
            content = {name: fits[name] for name in pending.schema["properties"]}
            return Answered(id=pending.id, action="accept", content=content, by="小王")
        if self._dice.random() < (0.5 if pending.kind == "unknown" else 0.05):
            return Decided(id=pending.id, action="deny", reason="不用了", by="小王")
        return Decided(id=pending.id, action="approve", by="小王")

    async def _order(self, run: Run, order: Order) -> None:
        try:
            await self._journal.order(run.id, order)
        except InvalidInputError:  # it stands differently by now
            return


async def person(path: Path, seed: int) -> None:
    """Be the person."""
    journal = Journal(path)
    print("began", flush=True)
    await Person(journal, stop=path.with_name(f"{path.name}.stop"), seed=seed).live()


async def main() -> None:
    role, path, more = sys.argv[1:]
    await (drive(Path(path), int(more)) if role == "drive" else person(Path(path), int(more)))


if __name__ == "__main__":
    anyio.run(main)
