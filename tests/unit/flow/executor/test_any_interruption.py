"""Wherever a run is broken off, it comes to the same end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from starlette.requests import Request

from loom_core.flow.executor import FlowExecutor
from loom_core.flow.executor.recorder import restore_state
from loom_core.llm.mock import MockProvider
from loom_core.runs.journal import Journal
from loom_core.runs.run import Run

if TYPE_CHECKING:
    from tests.unit.flow.executor.conftest import Api

pytestmark = pytest.mark.slow

Flows = Callable[..., FlowExecutor]

_FLOW: dict[str, Any] = {
    "flow_id": "f",
    "input_schema": {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]},
    "steps": [
        {"stepId": "find", "operation": "GET /find", "outputs": {"id": "$response.body#/id"}},
        {
            "stepId": "both",
            "parallel": [
                [
                    {"stepId": "a", "operation": "PUT /a/{$steps.find.outputs.id}"},
                    {"stepId": "b", "operation": "PUT /b", "outputs": {"b": "$response.body#/id"}},
                ],
                [{"stepId": "c", "workflowId": "inner"}],
            ],
        },
        {"stepId": "sort", "llm": {"prompt": "{$inputs.who}", "choices": ["one", "other"]}},
        {"stepId": "told", "say": "找到{$steps.find.outputs.id}了。"},
        {
            "stepId": "route",
            "switch": [
                {
                    "when": "$steps.sort.outputs.result == 'one'",
                    "steps": [{"stepId": "x", "operation": "PUT /x"}],
                },
                {
                    "steps": [
                        {
                            "stepId": "each",
                            "for_each": {
                                "in": ["甲", "{$inputs.who}", "{$steps.b.outputs.b}"],
                                "parallel": 2,
                                "steps": [
                                    {"stepId": "e", "operation": "PUT /e/{$item}"},
                                    {"stepId": "g", "say": "{$item}"},
                                ],
                            },
                        }
                    ]
                },
            ],
        },
        {
            "stepId": "again",
            "operation": "GET /again",
            "onFailure": [{"type": "retry", "stepId": "login", "retryAfter": 0}],
            "onSuccess": [{"type": "goto", "stepId": "last"}],
        },
        {"stepId": "login", "operation": "PUT /login"},
        {
            "stepId": "last",
            "operation": "PUT /last",
            "parameters": {
                "b": "{$steps.b.outputs.b}",
                "c": "{$steps.c.outputs.d}",
                "e": "$steps.route.outputs.result",
            },
        },
    ],
    "outputs": {"b": "$steps.b.outputs.b", "c": "$steps.c.outputs.d"},
    "response": "{$inputs.who}：{$outputs.b} {$outputs.c}",
}
_INNER: dict[str, Any] = {
    "flow_id": "inner",
    "input_schema": {"type": "object", "properties": {"who": {"type": "string"}}},
    "steps": [{"stepId": "d", "operation": "PUT /d", "outputs": {"d": "$response.body#/id"}}],
    "outputs": {"d": "$steps.d.outputs.d"},
}


async def test_a_run_that_is_broken_off_anywhere_comes_to_the_same_end(
    api: Api, flows: Flows, journal: Journal
) -> None:
    api.on("/find", {"id": 7})
    api.on("/b", {"id": "乙"})
    api.on("/d", {"id": "丁"})
    logged_in = set[str]()

    async def log_in(request: Request) -> Any:
        logged_in.add("王芳")
        return {"ok": True}

    async def again(request: Request) -> Any:
        return {"ok": True} if logged_in else 401

    api.on("/login", log_in)
    api.on("/again", again)
    executor = flows([_FLOW, _INNER], llm=MockProvider(lambda _: '{"choice": "other"}'))
    ends = list[tuple[str, list[str], Any]]()
    at, most = 0, 1
    while at <= most:
        logged_in.clear()
        run = await journal.create(executor.build_request("f", "做", {"who": "王芳"}))
        for cut in (at, at + 3):
            await _drive_until(executor, run, cut)
        run = await executor.resume(run.id)
        assert run.status == "completed", run.problem
        ends.append((run.status, sorted(run.output.split("\n\n")), await _outputs(journal, run)))
        at, most = at + 2, run.last_seq
    assert len(ends) > 10
    assert ends[0][1] == sorted(["找到7了。", "甲", "王芳", "乙", "王芳：乙 丁"])
    assert all(end == ends[0] for end in ends)


async def _drive_until(executor: FlowExecutor, run: Run, until: int) -> None:
    """Drive a run until so many events are there, and be gone."""
    async with anyio.create_task_group() as group:
        group.start_soon(executor.resume, run.id)
        if until:
            async with aclosing(executor.journal.follow(run.id)) as events:
                async for event in events:
                    if event.seq >= until:
                        break
        group.cancel_scope.cancel()


async def _outputs(journal: Journal, run: Run) -> Any:
    """Return the outcome of each step, as it is read back."""
    log = await journal.claim(run.id)
    assert log is not None
    async with log:
        state = restore_state(log.steps)
    return {
        frame.path: {step.step_id: (step.status, step.outputs, step.visit) for step in frame.steps.values()}
        for frame in state.frames.values()
    }
