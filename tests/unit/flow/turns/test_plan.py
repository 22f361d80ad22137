"""Precedence, where a message has several readings."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loom_core.flow.turns.plan import flow_to_cancel
from tests.unit.flow.conftest import LEAVE, ORDER, loaded_flows, talking


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


APPOINTMENT = {
    "flow_id": "eye_appointment",
    "name": "预约",
    "trigger_patterns": ["约个验光"],
    "endpoint": "POST /appointments",
    "input_schema": {
        "type": "object",
        "properties": {"date": {"type": "string", "title": "日期"}},
        "required": ["date"],
    },
}
FLOWS = loaded_flows(LEAVE, ORDER, APPOINTMENT).file.flows


@pytest.mark.parametrize(
    ("message", "flow"),
    [
        ("cancel my appointment", "eye_appointment"),
        ("Please cancel the appointment.", "eye_appointment"),
        ("取消预约", "eye_appointment"),
        ("我要取消預約", "eye_appointment"),
        ("把我的预约取消掉吧", "eye_appointment"),
        ("cancel my leave", "leave"),
        ("cancel my flight", None),
        ("取消", None),
        ("不要取消预约", None),
        ("cancel my appointment tomorrow and book another", None),
    ],
)
def test_a_flow_is_ended_by_its_name(message: str, flow: str | None) -> None:
    named = flow_to_cancel(message, FLOWS)
    assert (named.flow_id if named else None) == flow


async def test_what_is_under_way_is_cancelled_by_its_name_and_nothing_is_sent() -> None:
    async with talking(APPOINTMENT, LEAVE) as talk:
        await talk("约个验光")
        reply = await talk("cancel my appointment")
        assert (reply.route.action, reply.status) == ("cancel", "aborted")
        assert talk.api.asked == []


async def test_what_is_not_under_way_is_not_cancelled_and_the_question_stays() -> None:
    async with talking(APPOINTMENT, LEAVE) as talk:
        begun = await talk("我想请假")
        reply = await talk("cancel my appointment")
        assert (reply.route.action, reply.run_id) == ("clarify", begun.run_id)
        assert "“预约” is not in progress" in reply.text


def test_a_long_message_that_cancels_nothing_takes_no_time(
    least_processor_time: Callable[[Callable[[], object]], float],
) -> None:
    message = "，" * 20_000 + "请假"
    assert least_processor_time(lambda: flow_to_cancel(message, FLOWS)) < 0.1
