"""Replies to a free-text slot: which messages are its value, and which are asides."""

from __future__ import annotations

from typing import Any

import pytest

from loom_core.llm.mock import MockProvider
from tests.unit.flow.conftest import ORDER, decides, talking

REPAIR: dict[str, Any] = {
    "flow_id": "repair",
    "name": "报修",
    "trigger_patterns": ["报修"],
    "endpoint": "POST /repair",
    "response": "好",
    "input_schema": {
        "type": "object",
        "properties": {"what": {"type": "string", "title": "故障"}},
        "required": ["what"],
    },
}
ASIDES = [
    "不想说",
    "转人工",
    "为什么要填这个？",
    "為什麼要填這個",
    "请问这个是什么",
    "怎麼填",
    "要填嗎",
    "别报了，没坏",
    "投诉你们",
    "你说什么？",
    "I'd rather not say",
    "can you connect me to a person",
]


@pytest.mark.parametrize("message", ASIDES)
async def test_an_aside_is_not_posted(message: str) -> None:
    async with talking(REPAIR, ORDER) as talk:
        begun = await talk("我要报修")
        reply = await talk(message)
        assert (reply.route.action, reply.run_id) == ("clarify", begun.run_id)
        assert "故障" in reply.text
        assert talk.api.asked == []


@pytest.mark.parametrize("message", [*ASIDES, "没坏，就是很吵", "屏幕上有订单12的字样"])
async def test_a_model_is_asked_what_words_leave_open(message: str) -> None:
    llm = MockProvider([decides("clarify", question="？")])
    async with talking(REPAIR, ORDER, llm=llm) as talk:
        await talk("我要报修")
        assert (await talk(message)).route.how == "model"
        assert talk.api.asked == []
    assert len(llm.calls) == 1


@pytest.mark.parametrize(
    "message",
    ["空调坏了", "屏幕不亮", "没有声音", "故障：为什么一直响？", "屏幕上有订单12的字样", "打印機卡紙"],
)
async def test_an_answer_is_taken_without_a_model(message: str) -> None:
    async with talking(REPAIR, ORDER) as talk:
        await talk("我要报修")
        assert (await talk(message)).text == "好"
        assert talk.api.requests == [("POST /repair", {"what": message.removeprefix("故障：")})]


@pytest.mark.parametrize("message", ["空调坏了", "故障：为什么一直响？", "打印機卡紙"])
async def test_a_plain_answer_asks_no_model(message: str) -> None:
    llm = MockProvider([])
    async with talking(REPAIR, ORDER, llm=llm) as talk:
        await talk("我要报修")
        assert (await talk(message)).text == "好"
    assert llm.calls == []


async def test_a_request_for_another_flow_is_done_and_the_question_stays() -> None:
    async with talking(REPAIR, ORDER) as talk:
        await talk("我要报修")
        reply = await talk("我忘了，你先帮我查一下订单777吧")
        assert (reply.flow_id, reply.text) == (
            "order",
            "订单777在路上\n\n“报修”还没有办完：报修还需要：故障。",
        )
        assert (await talk("空调坏了")).text == "好"


async def test_a_field_for_questions_takes_a_question() -> None:
    schema = {
        "type": "object",
        "properties": {"q": {"type": "string", "title": "您的问题"}},
        "required": ["q"],
    }
    async with talking({**REPAIR, "input_schema": schema}) as talk:
        await talk("我要报修")
        assert (await talk("为什么空调一直响？")).text == "好"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("139", "这句话没有看懂。手机号：11 位数字。"),
        ("几点关门？", "这句话没有看懂。手机号：11 位数字。"),
        ("what is it for?", "I did not understand that as an answer. 手机号: 11 位数字."),
    ],
)
async def test_what_is_wanted_is_told_where_something_else_is_said(message: str, told: str) -> None:
    phone = {"type": "string", "title": "手机号", "pattern": "^1[0-9]{10}$", "description": "11 位数字"}
    schema = {"type": "object", "properties": {"phone": phone}, "required": ["phone"]}
    async with talking({**REPAIR, "input_schema": schema}) as talk:
        await talk("我要报修")
        assert (await talk(message)).text.startswith(told)
        assert talk.api.asked == []
        assert (await talk("call me at 13800138000")).text == "好"


async def test_a_question_that_is_declined_is_the_end_of_it() -> None:
    async with talking(REPAIR) as talk:
        await talk("我要报修")
        assert (await talk("不用了谢谢")).status == "aborted"
        assert talk.api.asked == []


async def test_an_answer_with_a_request_in_it_fills_all_that_was_asked() -> None:
    days = {"type": "integer", "title": "天数"}
    start = {"type": "string", "title": "从哪天", "pattern": "^(?:明天|后天)$"}
    schema = {"type": "object", "properties": {"days": days, "start": start}, "required": ["days", "start"]}
    async with talking({**REPAIR, "input_schema": schema}) as talk:
        await talk("我要报修")
        await talk("明天开始报修三天")
        assert talk.api.requests == [("POST /repair", {"days": 3, "start": "明天"})]


@pytest.mark.parametrize("message", ["50天", "改成五十天"])
async def test_a_number_that_will_not_do_is_answered_with_the_limit(message: str) -> None:
    days = {"type": "integer", "title": "天数", "maximum": 30}
    schema = {"type": "object", "properties": {"days": days}, "required": ["days"]}
    flow = {
        **REPAIR,
        "input_schema": schema,
        "confirm": "always",
        "trigger_patterns": ["报修(?P<days>\\d+)?"],
    }
    async with talking(flow) as talk:
        assert (await talk("我要报修50天")).text == "天数不能是50：最多是30。\n\n报修还需要：天数。"
        if message.startswith("改"):
            await talk("3")
        assert (await talk(message)).text.startswith("天数不能是50：最多是30。\n\n")
        assert talk.api.asked == []
