"""Slot values found for a flow are taken as far as its schema accepts them."""

from __future__ import annotations

from typing import Any

import pytest

from loom_core.flow.responses.phrases import Phrases
from loom_core.flow.turns.actions import describe_refused_numbers, drop_invalid_inputs
from tests.unit.flow.conftest import LEAVE, loaded_flows


@pytest.mark.parametrize(
    ("found", "taken"),
    [
        ({"days": 3, "reason": "感冒了"}, {"days": 3, "reason": "感冒了"}),
        ({"days": 0, "reason": "感冒了"}, {"reason": "感冒了"}),
        ({"days": 3, "kind": "事假", "color": "红"}, {"days": 3}),
        ({}, {}),
    ],
)
def test_each_input_is_taken_by_itself(found: dict[str, Any], taken: dict[str, Any]) -> None:
    assert drop_invalid_inputs(loaded_flows(LEAVE).file.flows[0], found) == taken


def test_a_number_that_is_not_taken_is_told_and_others_are_not() -> None:
    flow, phrases = loaded_flows(LEAVE).file.flows[0], Phrases("zh")
    told = describe_refused_numbers(flow, {"days": 0, "reason": "感冒了", "color": 7}, phrases=phrases)
    assert "天数" in told
    assert "\n" not in told
    assert describe_refused_numbers(flow, {"days": 3}, phrases=phrases) == ""
