"""Runs, counted from their events."""

from __future__ import annotations

import pytest

from loom_core.observability import LoomMetrics, families
from loom_core.observability.metrics import new_registry
from loom_core.runs.events import StreamEvent
from loom_core.runs.run import Run, RunRequest
from loom_core.runs.run_meter import RunMeter


@pytest.fixture
def registry():
    return new_registry()


@pytest.fixture
def meter(registry):
    return RunMeter(LoomMetrics(registry=registry))


def tell(meter, *events):
    """Tell events: type, seconds, status of the run with it, payload."""
    for type_, at, status, payload in events:
        run = Run(id="run_1", request=RunRequest(goal="灯塔"), status=status, created=0.0, updated=at)
        meter.on_event(StreamEvent(type_, payload, run_id="run_1", at=at), run)


def test_an_iteration_ends_with_the_next_one_or_with_the_run(meter, registry):
    tell(
        meter,
        ("request_start", 0.0, "working", {}),
        ("model_start", 1.0, "working", {"model": "m"}),
        ("tool_result", 2.5, "working", {}),
        ("model_start", 3.0, "working", {"model": "m"}),
        ("agent_finish", 4.0, "completed", {}),
    )
    assert registry.samples(families.ITERATIONS) == {(): 2}
    assert registry.samples(families.ITERATION_SECONDS) == {(): 2}
    assert registry.sums(families.ITERATION_SECONDS) == {(): 3.0}
    assert registry.samples(families.RUNS) == {("agent", "completed"): 1}


def test_time_in_which_people_are_waited_for_is_not_the_agents(meter, registry):
    tell(
        meter,
        ("model_start", 0.0, "working", {}),
        ("approval_required", 1.0, "input_required", {}),
        ("approval_decided", 500.0, "working", {"action": "approve"}),
        ("paused", 502.0, "paused", {}),
        ("message_received", 600.0, "paused", {}),
        ("resumed", 900.0, "working", {}),
        ("agent_finish", 901.0, "completed", {}),
    )
    assert registry.sums(families.ITERATION_SECONDS) == {(): 4.0}
    assert registry.samples(families.APPROVALS) == {("approve",): 1}


def test_a_wait_before_an_iteration_is_none_of_it(meter, registry):
    tell(
        meter,
        ("paused", 0.0, "paused", {}),
        ("resumed", 50.0, "working", {}),
        ("paused", 60.0, "paused", {}),
        ("model_start", 100.0, "working", {}),
        ("error", 103.0, "failed", {"failure": "budget"}),
    )
    assert registry.sums(families.ITERATION_SECONDS) == {(): 3.0}
    assert registry.samples(families.RUN_FAILURES) == {("agent", "budget"): 1}
    assert registry.samples(families.RUNS) == {("agent", "failed"): 1}


def test_an_agent_is_active_while_it_is_worked_on(meter, registry):
    def active():
        return registry.samples(families.ACTIVE_AGENTS).get((), 0)

    tell(meter, ("request_start", 0.0, "working", {}))
    assert active() == 1
    tell(meter, ("approval_required", 1.0, "input_required", {}))
    assert active() == 0
    tell(meter, ("approval_decided", 2.0, "working", {"action": "approve"}))
    assert active() == 1
    run = Run(id="run_1", request=RunRequest(goal="灯塔"), status="working", created=0.0, updated=2.0)
    meter.on_detach(run)
    meter.on_detach(run)
    assert active() == 0, "left as it is, no task here works on it"


def test_flows_are_counted_by_their_steps_and_are_no_agents(meter, registry):
    tell(
        meter,
        ("route", 0.0, "working", {"action": "flow", "how": "rules"}),
        ("flow_start", 0.0, "working", {"flow_id": "请假"}),
        ("step_result", 1.0, "working", {"status": "success", "seconds": 0.5}),
        ("step_result", 2.0, "working", {"status": "failure", "seconds": 0.25}),
        ("error", 3.0, "failed", {"failure": "step"}),
    )
    assert registry.samples(families.FLOW_STEPS) == {("success",): 1, ("failure",): 1}
    assert registry.sums(families.FLOW_STEP_SECONDS) == {(): 0.75}
    assert registry.samples(families.RUNS) == {("flow", "failed"): 1}
    assert registry.samples(families.RUN_FAILURES) == {("flow", "step"): 1}
    assert registry.samples(families.ACTIVE_AGENTS).get((), 0) == 0


def test_a_run_that_someone_ends_is_aborted_not_failed(registry):
    meter = RunMeter(LoomMetrics(registry=registry), kind="flow")
    tell(meter, ("aborted", 1.0, "aborted", {"by": "张三"}))
    assert registry.samples(families.RUNS) == {("flow", "aborted"): 1}
    assert registry.samples(families.RUN_FAILURES) == {}


def test_compactions_are_counted_with_what_they_leave(meter, registry):
    tell(meter, ("compression_applied", 1.0, "working", {"before": 1000, "after": 250}))
    assert registry.samples(families.COMPACTIONS) == {(): 1}
    assert registry.samples(families.COMPACTION_TOKENS) == {("before",): 1000, ("after",): 250}


def test_calls_and_answers_are_counted_from_events_only_where_that_is_wanted(registry):
    look = {"tool": "look", "seconds": 0.5}
    events = (
        ("model_start", 1.0, "working", {"model": "深思"}),
        ("usage", 3.0, "working", {"input_tokens": 10, "output_tokens": 5, "cost": 0.25}),
        ("tool_result", 4.0, "working", {**look, "status": "success", "stages": {"execute": 0.5}}),
        ("tool_result", 4.0, "working", {**look, "status": "denied", "stages": {"discover": 0.1}}),
    )
    tell(RunMeter(LoomMetrics(registry=registry)), *events)
    assert registry.samples(families.LLM_CALLS) == registry.samples(families.TOOL_CALLS) == {}
    tell(RunMeter(LoomMetrics(registry=registry), calls=True), *events)
    assert registry.samples(families.LLM_CALLS) == {(): 1}
    assert registry.sums(families.LLM_SECONDS) == {("", "深思"): 2.0}
    assert registry.samples(families.LLM_TOKENS) == {("", "深思", "input"): 10, ("", "深思", "output"): 5}
    assert registry.samples(families.LLM_COST) == {("", "深思"): 0.25}
    assert registry.samples(families.TOOL_CALLS) == {("look", "success"): 1, ("look", "denied"): 1}
    assert registry.samples(families.TOOL_SECONDS) == {("look",): 1}


def test_requests_to_the_model_that_fail_are_counted_with_their_time(registry):
    meter = RunMeter(LoomMetrics(registry=registry), calls=True)
    tell(
        meter,
        ("model_start", 0.0, "working", {"model": "深思"}),
        ("model_retry", 2.0, "working", {"attempt": 1, "wait": 5.0}),
        ("error", 8.0, "failed", {"failure": "server"}),
        ("resumed", 9.0, "working", {}),
        ("model_start", 10.0, "working", {"model": "深思"}),
        ("aborted", 14.0, "aborted", {"by": "张三"}),
    )
    assert registry.samples(families.LLM_CALLS) == {(): 3}
    assert registry.sums(families.LLM_SECONDS) == {("", "深思"): 2.0 + 1.0 + 4.0}
