"""What comes first, where a message may be several things."""

from __future__ import annotations

import pytest

from tests.unit.flow.conftest import LEAVE, ORDER, talking


@pytest.mark.parametrize("said", ["帮帮我", "help", "继续", "测试", "再来一次", "在吗", "停止"])
async def test_a_pattern_comes_before_manners(said: str) -> None:
    flow = {
        **ORDER,
        "flow_id": "own",
        "trigger_patterns": [f"^{said}$"],
        "input_schema": {},
        "response": "在",
    }
    async with talking(flow) as talk:
        assert (await talk(said)).text == "在"


async def test_a_yes_and_the_end_come_before_a_pattern() -> None:
    flow = {
        **ORDER,
        "flow_id": "own",
        "trigger_patterns": ["^继续$", "^取消$"],
        "input_schema": {},
        "response": "在",
    }
    async with talking({**LEAVE, "confirm": "always"}, flow) as talk:
        for last, action in (("继续", "approve"), ("取消", "cancel")):
            await talk("我要请三天假")
            await talk("感冒了")
            assert (await talk(last)).route.action == action
        assert (await talk("取消")).text == "在"
