"""Error texts of APIs may quote secrets, and these are redacted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from loom_core.flow.executor import FlowExecutor
from loom_core.runs.journal import Journal

if TYPE_CHECKING:
    from tests.unit.flow.executor.conftest import Api

Flows = Callable[..., FlowExecutor]

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"
ASSIGNED = "tok3n9value"
ORDER: dict[str, Any] = {
    "flow_id": "order",
    "name": "订货",
    "endpoint": {"url": "/order", "method": "POST", "failure": "{$response.body#/msg}"},
}


async def test_neither_users_nor_who_looks_for_the_fault_are_told_the_secrets_in_a_refusal(
    api: Api, flows: Flows, journal: Journal
) -> None:
    async def refused(_: Request) -> JSONResponse:
        return JSONResponse({"msg": f"令牌 {TOKEN} 已过期，password={ASSIGNED}"}, 422)

    api.on("/order", refused)
    executor = flows([ORDER])

    run = await executor.execute("order", "订茶")

    assert run.status == "failed"
    assert "令牌 [secret] 已过期" in run.output
    events = await journal.events(run.id)
    ended = next(each for each in events if each.type == "step_result")
    assert "令牌 [secret] 已过期" in ended.payload["problem"]
    assert ASSIGNED not in ended.payload["problem"]
    told = json.dumps([dict(each.payload) for each in events], ensure_ascii=False)
    assert TOKEN not in told + run.problem + run.output
