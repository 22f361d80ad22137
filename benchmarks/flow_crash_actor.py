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
from pathlib import Path
from typing import Any

import anyio
from killing import journal_place, said_file
from person import BY, Person, act

from loom_core.errors import InvalidInputError
from loom_core.flow.config import LoadedFlows, parse_flow_file
from loom_core.flow.executor import FlowExecutor
from loom_core.flow.http import ConfigToolLoader, EndpointCaller
from loom_core.runs.commands import ApprovalDecision, Command, InputResponse, OperatorMessage, Retry
from loom_core.runs.host import RunHost
from loom_core.runs.journal import Journal
from loom_core.runs.run import Pending, Run, RunRequest

_LOOK_SECONDS = 0.3
_STEPS = ("check", "both", "pay", "route", "more", "send", "finish")


def _post(step_id: str, **more: object) -> dict[str, Any]:
    return {"stepId": step_id, "operation": f"POST /{step_id}", **more}


def flows(port: int) -> LoadedFlows:
    """The flows of the crash run."""
    again = {"type": "retry", "retryAfter": 0.2, "retryLimit": 20}
    goods = {"type": "object", "properties": {"number": {"type": "integer"}, "goods": {"type": "string"}}}
    agreed = {"type": "object", "properties": {"price": {"type": "integer"}}, "required": ["price"]}
    parts = {"in": ["甲", "乙", "丙"], "parallel": 2, "steps": [_post("part", onFailure=[again])]}
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
            {
                "stepId": "route",
                "switch": [
                    {"when": "$inputs.number < 0", "steps": [_post("never")]},
                    {"steps": [{"stepId": "parts", "for_each": parts}, {"stepId": "told", "say": "好的。"}]},
                ],
            },
            {"stepId": "rest", "wait_for": {"seconds": 0.3}},
            {"stepId": "paid", "wait_for": {"event": "paid", "key": "{$inputs.number}"}},
            {"stepId": "size", "ask": {"question": "多大？", "schema": {"type": "integer"}}},
            {"stepId": "desk", "handover": {"schema": agreed}},
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


async def drive(path: Path, port: str) -> None:
    """Drive whatever no one drives."""
    journal, loaded = Journal(journal_place(path)), flows(int(port))
    async with EndpointCaller(loaded.file) as caller:
        executor = FlowExecutor(
            loaded, journal=journal, caller=caller, tools=ConfigToolLoader(loaded.file, caller).load()
        )
        async with RunHost(journal, executor.runner, look_seconds=_LOOK_SECONDS):
            print("began", flush=True)
            await anyio.sleep_forever()


class Customer(Person):
    """Orders goods, and has what failed tried again; is the operator, and sends events, too."""

    async def _order(self, run: Run, order: Command) -> None:
        handed_over = {each.id for each in run.pending if each.kind == "operator"}
        if isinstance(order, InputResponse) and order.id in handed_over and self._dice.random() < 0.5:
            text = f"{run.id} {self._dice.getrandbits(64):x}"
            said = OperatorMessage(id=order.id, text=text, by=BY)
            try:
                await self._journal.send_commands(run.id, said)
            except InvalidInputError:  # the conversation was returned
                return
            with said_file(self._path).open("a", encoding="utf-8") as file:  # it was acknowledged
                file.write(f"{text}\n")
            return
        await super()._order(run, order)

    async def _look_back(self, *, stopping: bool) -> None:
        for run in await self._journal.runs(status=("failed",), limit=1000):
            if stopping or self._dice.random() < 0.2:
                step = "" if stopping or self._dice.random() < 0.7 else self._dice.choice(_STEPS)
                await self._order(run, Retry(step=step, by=BY))

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

    def _said(self, pending: Pending) -> Command:
        if pending.kind == "event":
            return InputResponse(id=pending.id, action="accept", content={"payload": 1}, by=BY)
        if pending.kind == "operator":
            return InputResponse(id=pending.id, action="accept", content={"price": 5}, by=BY)
        if pending.kind == "question":
            fits = (
                {"goods": "茶叶", "answer": 3} if self._dice.random() < 0.9 else {"goods": 1, "answer": "大"}
            )
            content = {name: fits[name] for name in pending.schema["properties"]}
            return InputResponse(id=pending.id, action="accept", content=content, by=BY)
        if self._dice.random() < (0.5 if pending.kind == "unknown" else 0.05):
            return ApprovalDecision(id=pending.id, action="deny", reason="不用了", by=BY)
        return ApprovalDecision(id=pending.id, action="approve", by=BY)


if __name__ == "__main__":
    anyio.run(act, drive, Customer)
