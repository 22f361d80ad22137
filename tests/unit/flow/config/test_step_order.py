"""Which steps may have been done before which."""

from __future__ import annotations

from loom_core.flow.config.flow_validation import steps_before
from loom_core.flow.config.models import FlowConfig


def before(*steps):
    flow = FlowConfig.model_validate({"flow_id": "f", "steps": list(steps)})
    return {step: "".join(sorted(found)) for step, found in steps_before(flow.steps).items()}


def step(name, **more):
    return {"stepId": name, "tool": "s:t", **more}


def test_a_step_follows_those_that_stand_before_it():
    assert before(step("a"), step("b"), step("c")) == {"a": "", "b": "a", "c": "ab"}


def test_what_is_jumped_back_to_may_follow_what_stands_behind_it():
    back = step("b", onFailure=[{"type": "goto", "stepId": "a"}])
    assert before(step("a"), back, step("c")) == {"a": "ab", "b": "ab", "c": "ab"}
    again = step("b", onFailure=[{"type": "retry", "stepId": "a"}])
    assert before(step("a"), again)["a"] == "ab"


def test_branches_follow_what_stands_before_them_and_not_each_other():
    both = {"stepId": "p", "parallel": [[step("x"), step("y")], [step("z")]]}
    assert before(step("a"), both, step("c")) == {
        "a": "",
        "p": "a",
        "x": "ap",
        "y": "apx",
        "z": "ap",
        "c": "apxyz",
    }


def test_cases_follow_what_stands_before_them_and_not_each_other():
    route = {"stepId": "p", "switch": [{"when": "$message", "steps": [step("x")]}, {"steps": [step("z")]}]}
    assert before(step("a"), route, step("c")) == {"a": "", "p": "a", "x": "ap", "z": "ap", "c": "apxz"}
