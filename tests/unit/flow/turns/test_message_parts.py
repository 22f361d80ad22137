"""Messages that say several things, without a model."""

from __future__ import annotations

from typing import Any

import pytest

from loom_core.errors import NetError
from tests.unit.flow.conftest import CONFIRMED, LEAVE, ORDER, RULES, Known, Talk, talking

PRICES: dict[str, Any] = {
    "flow_id": "prices",
    "name": "价目 / prices",
    "trigger_patterns": ["多少钱", "how much (?:is|does)"],
    "endpoint": "GET /prices",
    "response": "20元 / 20 yuan",
}
FACT = "找到以下内容：\n\n[1] 每年有15天年假。 (假期制度)"


async def _arguments(talk: Talk, reply: Any) -> dict[str, Any]:
    run = await talk.assistant.journal.get(reply.run_id)
    return dict(run.pending[0].arguments)


@pytest.mark.parametrize(
    "message", ["三天。公司班车几点发车？", "三天，对了公司班车几点发车", "公司班车几点发车？三天吧"]
)
async def test_an_answer_and_a_question_get_both(message: str) -> None:
    async with talking(knowledge=Known(RULES)) as talk:
        await talk("我要请假，事由：感冒")
        reply = await talk(message)
        assert reply.text == f"{FACT}\n\n已提交：3天，感冒"
        assert [each.id for each in reply.citations] == ["rules-7"]


async def test_a_question_that_a_flow_answers_is_answered_by_the_flow() -> None:
    async with talking(LEAVE, PRICES, knowledge=Known(RULES)) as talk:
        await talk("我要请假")
        reply = await talk("三天。补一天要多少钱？")
        assert reply.text == "20元\n\n请假还需要：事由。"
        assert reply.pending[0].arguments == {"days": 3}
        assert [each for each, _ in talk.api.requests] == ["GET /prices"]


async def test_a_question_that_a_flow_answers_is_no_run_to_try_again_and_fails_once() -> None:
    async with talking(CONFIRMED, PRICES) as talk:
        talk.api.answer = lambda _: NetError("down", failure="connection")
        await talk("我要请三天假，事由：感冒")
        reply = await talk("是的。补一天要多少钱？")
        assert (reply.text.count("价目"), reply.text.count("请假")) == (1, 1)
        talk.api.answer = lambda _: {}
        again = await talk("再试一次")
        assert again.text == "已提交：3天，感冒"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("我想请三天假。公司班车几点发车？", f"{FACT}\n\n请假还需要：事由。"),
        ("请三天假，补一天多少钱？", "20元\n\n请假还需要：事由。"),
    ],
)
async def test_a_request_and_a_question_get_both(message: str, text: str) -> None:
    async with talking(LEAVE, PRICES, knowledge=Known(RULES)) as talk:
        reply = await talk(message)
        assert (reply.text, reply.flow_id) == (text, "leave")


@pytest.mark.parametrize(
    "message",
    [
        "算了，帮我看看订单7到哪了",
        "先不请了，订单7到哪了",
        "forget the leave, where is order 7?",
        "never mind. where is order 7",
    ],
)
async def test_one_thing_is_ended_and_another_begun(message: str) -> None:
    async with talking() as talk:
        await talk("我要请假")
        assert (await talk(message)).text.endswith("订单7在路上")
        runs = await talk.assistant.journal.runs(limit=5)
        assert {run.request.profile: run.status for run in runs} == {"leave": "aborted", "order": "completed"}


@pytest.mark.parametrize(
    "message", ["不用发票。多少钱？", "先别急，多少钱？", "don't need a receipt. how much is it?"]
)
async def test_nothing_is_ended_unless_the_words_say_so(message: str) -> None:
    async with talking(LEAVE, ORDER, PRICES) as talk:
        begun = await talk("我要请假")
        await talk(message)
        assert (await talk.assistant.journal.get(begun.run_id)).status == "input_required"


@pytest.mark.parametrize(
    ("message", "days", "day"),
    [
        ("三天，时间改成12月3号", 3, "12-03"),
        ("3 days, and make it December 3 instead", 3, "12-03"),
        ("三天。12月3号，不是12月2号", 3, "12-03"),
    ],
)
async def test_an_answer_and_a_correction_are_both_taken(message: str, days: int, day: str) -> None:
    async with talking() as talk:
        await talk("我要请假，12月2号")
        given = await _arguments(talk, await talk(message))
        assert (given["days"], given["day"][5:]) == (days, day)


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("可以。公司班车几点发车？", "completed"),
        ("可以，公司班车几点发车？", "input_required"),  # no yes of its own
        ("好吧，那订单7到哪了", "input_required"),
    ],
)
async def test_a_yes_counts_next_to_a_question_if_it_is_a_sentence(message: str, status: str) -> None:
    async with talking(CONFIRMED, ORDER, knowledge=Known(RULES)) as talk:
        asked = await talk("请3天假，事由：感冒")
        assert asked.status == "input_required"
        await talk(message)
        assert (await talk.assistant.journal.get(asked.run_id)).status == status


@pytest.mark.parametrize("message", ["头疼得厉害。从昨天就开始了", "感冒了，还有点发烧"])
async def test_a_text_of_several_parts_stays_whole(message: str) -> None:
    async with talking() as talk:
        await talk("请3天假")
        assert (await talk(message)).text == f"已提交：3天，{message}"
