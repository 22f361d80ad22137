"""Routing with an LLM: the decision is applied, and the explanation matches the action."""

from __future__ import annotations

from typing import Any

import pytest

from loom_core.llm.mock import MockProvider
from tests.unit.flow.conftest import LEAVE, ORDER, decides, talking

BARE = {key: value for key, value in LEAVE.items() if key != "input_schema"} | {
    "trigger_patterns": ["请.{0,4}假", "take leave"],
    "response": "好",
}
ORDER_THAT_ASKS = {**ORDER, "flow_id": "return", "trigger_patterns": ["退货"], "endpoint": "POST /return"}
WRITE: dict[str, Any] = {"name": "write", "description": "Writes.", "endpoint": "POST /write"}


@pytest.mark.parametrize(
    "message",
    [
        "我不请假了",
        "别给我请假",
        "我不請假了",
        "怎么请假？",
        "老板让我请假",
        "I don't want to take leave any more",
        "my colleague wants to take leave",
    ],
)
@pytest.mark.parametrize("confirm", ["model", "never"])
async def test_what_is_only_named_is_offered_however_sure_a_model_is(message: str, confirm: str) -> None:
    llm = MockProvider([decides("flow", "leave", confidence=1.0)])
    async with talking({**BARE, "confirm": confirm}, llm=llm) as talk:
        reply = await talk(message)
        assert (reply.route.action, reply.route.how, reply.run_id) == ("clarify", "model", "")
        assert reply.route.candidates == ("leave",)
        assert talk.api.asked == []
        assert (await talk("是的")).status == "completed"
    assert len(llm.calls) == 1


async def test_what_is_only_named_and_changes_nothing_is_done_if_the_model_says_so() -> None:
    llm = MockProvider([decides("flow", "order", parameters={"number": "12"})])
    async with talking(LEAVE, ORDER, llm=llm) as talk:
        assert (await talk("怎么查订单12")).text == "订单12在路上"


async def test_a_flow_that_is_only_named_while_another_waits_is_offered_too() -> None:
    llm = MockProvider([decides("flow", "leave", confidence=1.0)])
    async with talking({**BARE, "trigger_patterns": ["请假"]}, ORDER_THAT_ASKS, llm=llm) as talk:
        await talk("我要退货")
        reply = await talk("我不请假了")
        assert (reply.route.action, reply.route.candidates, talk.api.asked) == ("clarify", ("leave",), [])


CASES = [
    ("我想歇几天可以安排吗", decides("flow", "leave", confidence=0.3)),
    ("我想歇几天可以安排吗", decides("flow", "leave", confidence=0.95)),
    ("我不请假了", decides("flow", "leave", confidence=0.95)),
    ("帮我写点什么", decides("tool", "write", confidence=0.2)),
    ("帮我弄一下", decides("clarify", question="什么？")),
    ("年假有几天", decides("respond")),
]


@pytest.mark.parametrize(("message", "decision"), CASES)
async def test_what_is_explained_is_what_is_done(message: str, decision: str) -> None:
    async with talking(BARE, file={"system_tools": [WRITE]}, llm=MockProvider([decision, "好的。"])) as talk:
        done = await talk(message)
    async with talking(BARE, file={"system_tools": [WRITE]}, llm=MockProvider([decision])) as talk:
        explained = await talk.assistant.explain(message)
    assert (explained.decided_by, explained.action) == ("model", done.route.action)
    assert explained.flow_id == (done.flow_id if done.route.action == "flow" else "")


WAITING = [
    ("从周一起一共4天行吗", decides("answer", parameters={"days": 4})),
    ("从周一起一共4天行吗", decides("answer", parameters={"days": 4}, confidence=0.3)),
    ("从周一起一共4天行吗", decides("flow", "leave", parameters={"days": 4})),
    ("年假的那种可以吗", decides("answer", parameters={"kind": "年假"})),
    ("要不先这样吧，别弄了", decides("cancel")),
    ("我的88呢", decides("flow", "order", parameters={"number": "88"})),
    ("还要说什么呢", decides("clarify", question="天数")),
]


@pytest.mark.parametrize(("message", "decision"), WAITING)
async def test_what_is_explained_to_a_run_that_waits_is_what_it_is_told(message: str, decision: str) -> None:
    async with talking(llm=MockProvider([decision, decision])) as talk:
        await talk("我想请假")
        explained = await talk.assistant.explain(message, session_id=talk.session_id)
        assert (await talk(message)).route.action == explained.action
