"""The path of runs that really took place, through the diagram of their flow."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from loom_core.flow.config import LoadedFlows, parse_flow_file
from loom_core.flow.diagram.drawing import draw_run
from loom_core.flow.executor import FlowExecutor
from loom_core.flow.http import EndpointCaller
from loom_core.runs.commands import ApprovalDecision
from loom_core.runs.journal import Journal


def _loaded(*flows: dict[str, Any]) -> LoadedFlows:
    return parse_flow_file(json.dumps({"flows": flows}))


@pytest.fixture
async def journal() -> AsyncGenerator[Journal]:
    journal = Journal()
    yield journal
    await journal.aclose()


async def _trace(loaded: LoadedFlows, journal: Journal, flow: str, *answers: bool, **inputs: Any) -> Any:
    """The data of a run, whose questions get these answers."""
    caller = EndpointCaller(loaded.file)
    executor = FlowExecutor(loaded, caller=caller, journal=journal)
    run = await executor.execute(flow, parameters=inputs)
    for yes in answers:
        decision = ApprovalDecision(id=run.pending[0].id, action="approve" if yes else "deny")
        await journal.send_commands(run.id, decision)
        run = await executor.resume(run.id)
    await caller.aclose()
    data = draw_run(loaded, run, await journal.events(run.id))
    assert data is not None
    return data


def _statuses(data: Any) -> dict[str, str]:
    return {path: step["status"] for path, step in data["trace"]["steps"].items()}


async def test_a_run_that_recovers_from_a_failed_item_and_waits(
    trip: dict[str, Any], journal: Journal
) -> None:
    data = await _trace(_loaded(trip), journal, "trip", days=5)
    assert _statuses(data) == {
        "look": "done",
        "look/0/train": "done",
        "look/0/fare": "done",
        "look/1/hotel": "done",
        "approval": "done",
        "approval/1/note": "done",
        "cities": "recovered",
        "cities/0/known": "failed",
        "cities/0/visa": "done",
        "cities/0/mail": "done",
        "sorry": "done",
        "again": "waiting",
    }
    trace = data["trace"]
    assert trace["steps"]["cities"] | {"latest": {}} == {
        "status": "recovered",
        "starts": 1,
        "latest": {},
        "items": 3,
        "failed_items": 1,
    }
    assert trace["steps"]["cities/0/visa"]["latest"] == {"cities/0/visa": "done", "cities/2/visa": "done"}
    taken = {"cities:failure:full", "cities/0/visa:success:1", "cities/0/visa:success:", "approval/1/:start"}
    assert taken <= {*trace["lines"]} <= {line["key"] for line in data["lines"]}
    assert not {"approval/0/:start", "approval/else/:start", "cities:success:"} & {*trace["lines"]}
    assert (data["title"], data["has_changed"], trace["reached_end"]) == ("Trip", False, False)


async def test_a_no_ends_the_run_at_its_step_and_a_case_that_is_not_there_is_else(
    trip: dict[str, Any], journal: Journal
) -> None:
    loaded = _loaded(trip)
    declined = await _trace(loaded, journal, "trip", False, days=12)
    assert _statuses(declined)["approval/0/boss"] == _statuses(declined)["approval"] == "declined"
    assert "approval/0/boss:failure:" in declined["trace"]["lines"]
    short = await _trace(loaded, journal, "trip", days=1)
    assert {"approval/else/:start", "approval/else/:end"} <= {*short["trace"]["lines"]}


async def test_a_flow_inside_a_step_is_one_step_and_its_end_is_the_end(journal: Journal) -> None:
    inner = {"flow_id": "inner", "steps": [{"stepId": "x", "say": "x"}]}
    outer = {"flow_id": "outer", "steps": [{"stepId": "sub", "workflowId": "inner"}]}
    data = await _trace(_loaded(inner, outer), journal, "outer")
    assert _statuses(data) == {"sub": "done"}
    assert data["trace"]["reached_end"]
    assert data["trace"]["lines"] == [":start", "sub:success:"]
    assert data["trace"]["unknown"] == []


async def test_a_flow_that_has_changed_since_is_drawn_as_it_is_now(
    trip: dict[str, Any], journal: Journal
) -> None:
    caller = EndpointCaller(_loaded(trip).file)
    run = await FlowExecutor(_loaded(trip), caller=caller, journal=journal).execute(
        "trip", parameters={"days": 5}
    )
    await caller.aclose()
    events = await journal.events(run.id)
    without = {**trip, "steps": [step for step in trip["steps"] if step["stepId"] != "approval"]}
    data = draw_run(_loaded(without), run, events)
    assert data is not None
    assert data["has_changed"]
    assert data["trace"]["unknown"] == ["approval"]
    assert draw_run(_loaded({**trip, "flow_id": "other"}), run, events) == {"is_missing": True}
