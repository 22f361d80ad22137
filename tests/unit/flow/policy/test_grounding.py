from __future__ import annotations

from typing import Any

import pytest

from loom_core.flow.config.models import has_side_effects
from loom_core.flow.policy.decision import Grounding, grounding_of
from tests.unit.flow.conftest import loaded_flows

SAID = ["我感冒了，想从明天起休息三天", "My order is ORD-88, two boxes", "acme"]


@pytest.mark.parametrize(
    ("value", "schema", "ground"),
    [
        (3, {"type": "integer"}, "said"),
        (2, {"type": "integer"}, "said"),
        (7, {"type": "integer"}, "made_up"),
        ("感冒", {}, "said"),
        ("感冒休息", {}, "inferred"),
        ("ord88", {}, "said"),
        ("ORD-89", {}, "made_up"),
        ("牙疼", {}, "made_up"),
        ("acme", {}, "said"),
        ("2026-11-24", {"format": "date"}, "inferred"),
        ("病假", {"enum": ["年假", "病假"]}, "inferred"),
        (True, {"type": "boolean"}, "inferred"),
        ([3, 9], {"items": {"type": "integer"}}, "made_up"),
        ({"days": 3, "why": "感冒"}, {}, "said"),
        ("", {}, "said"),
    ],
)
def test_what_was_said_is_told_from_what_is_made_up(
    value: Any, schema: dict[str, Any], ground: Grounding
) -> None:
    assert grounding_of(value, schema, said=SAID) == ground


def test_a_numeral_in_a_word_that_counts_nothing_says_no_number() -> None:
    assert grounding_of(1, {"type": "integer"}, said=["我們一共四個人，一起去"]) == "made_up"
    assert grounding_of(4, {"type": "integer"}, said=["我們一共四個人，一起去"]) == "said"


def test_a_flow_changes_something_if_any_of_its_steps_may() -> None:
    tools = [
        {"name": "read", "description": "d", "endpoint": "GET /r"},
        {"name": "write", "description": "d", "endpoint": "POST /w"},
    ]
    looks = [{"stepId": "a", "operation": "GET /a"}, {"stepId": "b", "tool": "read"}]
    flows: list[dict[str, Any]] = [
        {"flow_id": "reads", "endpoint": "GET /x"},
        {"flow_id": "posts", "endpoint": "POST /x"},
        {"flow_id": "default"},
        {"flow_id": "looks", "steps": looks},
        {"flow_id": "calls", "steps": [*looks, {"stepId": "c", "tool": "write"}]},
        {"flow_id": "inner", "steps": [{"stepId": "c", "workflowId": "posts"}]},
        {"flow_id": "outer", "steps": [{"stepId": "c", "workflowId": "looks"}]},
        {
            "flow_id": "branches",
            "steps": [{"stepId": "p", "parallel": [looks, [{"stepId": "d", "operation": "PUT /p"}]]}],
        },
    ]
    file = loaded_flows(*flows, system_tools=tools).file
    changing = [flow.flow_id for flow in file.flows if has_side_effects(file, flow)]
    assert changing == ["posts", "default", "calls", "inner", "branches"]
