"""Conversations with flows, counted."""

from __future__ import annotations

from typing import Any

from loom_core.observability.families import ACTIVE_AGENTS, FLOW_ROUTES, FLOW_STEPS, RUNS
from tests.unit.flow.conftest import talking


async def test_messages_are_counted_by_what_decided_and_steps_by_how_they_ended(counted: Any) -> None:
    async with talking() as talk:
        await talk("我要请三天假")
        await talk("感冒了")
        await talk("你好")
    assert counted.samples(FLOW_ROUTES) == {
        ("flow", "rules"): 1,
        ("answer", "pending"): 1,
        ("greet", "manners"): 1,
    }
    assert counted.samples(FLOW_STEPS) == {("success",): 1}
    assert counted.samples(RUNS) == {("flow", "completed"): 1}
    assert counted.samples(ACTIVE_AGENTS).get((), 0) == 0
