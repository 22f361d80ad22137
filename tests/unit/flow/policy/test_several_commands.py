"""Several commands of a model about one message."""

from __future__ import annotations

from typing import Any

import pytest

from loom_core.flow.policy.decision import FurtherRequest, RoutingDecision
from loom_core.llm.mock import MockProvider
from loom_core.runs.journal import Journal
from tests.unit.flow.conftest import CONFIRMED, RULES, Known, command, decides_on, talking


def _flow(target: str, text: str = "", **parameters: Any) -> dict[str, Any]:
    return command("flow", target, parameters=parameters, text=text)


async def test_two_requests_are_done_in_their_order_after_one_decision() -> None:
    said = decides_on(_flow("leave", "三天不舒服想歇着", days=3), _flow("order", "看看7号到哪了", number="7"))
    llm = MockProvider([said])
    async with talking(llm=llm) as talk:
        assert (await talk("三天不舒服想歇着，看看7号到哪了")).text == "请假还需要：事由。"
        assert (await talk("感冒")).text == "已提交：3天，感冒\n\n订单7在路上"
    assert len(llm.calls) == 1


async def test_a_further_request_is_offered_if_the_first_is_cancelled_and_survives_the_process() -> None:
    said = decides_on(_flow("leave", "想歇着", days=3), _flow("order", "看看7号到哪了", number="7"))
    journal = Journal()
    try:
        async with talking(llm=MockProvider([said]), journal=journal) as talk:
            await talk("三天想歇着，看看7号到哪了")
            session = talk.session_id
        async with talking(journal=journal) as talk:
            talk.session_id = session
            assert (await talk("算了")).text.endswith("您是要办理“查订单”吗？")
            assert (await talk("是的")).text == "订单7在路上"
    finally:
        await journal.aclose()


@pytest.mark.parametrize(
    "extra",
    [
        _flow("order", "where is order 7", number="7"),  # the message has no such words
        _flow("order", number="7"),  # and here are none at all
        _flow("leave", "I need 3 days off", days=3),  # the same again
        command("respond"),  # not a question of the message
    ],
)
async def test_an_extra_command_without_words_of_its_own_is_dropped(extra: dict[str, Any]) -> None:
    async with talking(llm=MockProvider([decides_on(_flow("leave", days=3), extra)])) as talk:
        assert (await talk("well, I need 3 days off")).text == "请假 needs: 事由."
        assert (await talk("flu")).text == "已提交：3天，flu"
        assert len(await talk.assistant.journal.runs(limit=5)) == 1


async def test_an_answer_and_a_question_get_both_in_one_reply() -> None:
    said = decides_on(
        command("answer", parameters={"days": 3}, text="大概三天的样子"),
        command("respond", text="年假一共有几天来着？"),
    )
    async with talking(llm=MockProvider([said, "每年15天 [rules-7]。"]), knowledge=Known(RULES)) as talk:
        await talk("我要请假，感冒")
        reply = await talk("大概三天的样子吧，年假一共有几天来着？")
        assert reply.text == "每年15天 [rules-7]。\n\n请假还需要：事由。"
        assert [each.id for each in reply.citations] == ["rules-7"]
        assert reply.pending[0].arguments == {"days": 3}


async def test_a_flow_that_patterns_find_is_started_next_to_the_answer_to_a_question() -> None:
    said = decides_on(_flow("leave", "请三天假", days=3), command("respond", text="年假一共有几天来着"))
    async with talking(llm=MockProvider([said, "每年15天 [rules-7]。"]), knowledge=Known(RULES)) as talk:
        reply = await talk("我想请三天假，公司规定年假一共有几天来着")
        assert reply.text == "每年15天 [rules-7]。\n\n请假还需要：事由。"
        assert reply.status == "input_required"


async def test_one_thing_is_ended_and_another_begun() -> None:
    said = decides_on(
        command("cancel", text="that leave is off"), _flow("order", "what about parcel 7", number="7")
    )
    async with talking(llm=MockProvider([said])) as talk:
        await talk("I want to take leave")
        reply = await talk("that leave is off, what about parcel 7")
        assert reply.text.endswith("订单7在路上")
        runs = await talk.assistant.journal.runs(limit=5)
        assert sorted((run.request.profile, run.status) for run in runs) == [
            ("leave", "aborted"),
            ("order", "completed"),
        ]


@pytest.mark.parametrize("said_first", ["approve", "deny"])
async def test_a_correction_holds_against_a_yes_or_no_next_to_it(said_first: str) -> None:
    said = decides_on(command(said_first), command("answer", parameters={"days": 2}))
    async with talking(CONFIRMED, llm=MockProvider([said])) as talk:
        await talk("请3天假，事由：感冒")
        reply = await talk("嗯这么着，两个整天")
        assert (reply.status, reply.route.action) == ("input_required", "correct")
        assert reply.pending[0].arguments["days"] == 2
        assert talk.api.requests == []


async def test_parts_of_an_answer_are_one_answer() -> None:
    said = decides_on(
        command("answer", parameters={"days": 3}), command("answer", parameters={"reason": "感冒"})
    )
    async with talking(llm=MockProvider([said])) as talk:
        await talk("我要请假")
        assert (await talk("这个嘛，三个整天，因为感冒的缘故吧")).text == "已提交：3天，感冒"


def test_a_request_is_kept_and_restored() -> None:
    flow = RoutingDecision(
        action="flow", target="leave", parameters={"days": 3}, inferred=("days",), text="x"
    )
    for request in (
        FurtherRequest(message="x", decision=flow, how="model", replaces=True),
        FurtherRequest(message="x"),
    ):
        assert FurtherRequest.from_json(request.to_json()) == request


@pytest.mark.parametrize("flows", [["leave"], []])
def test_requests_of_the_first_version_are_restored(flows: list[str]) -> None:
    kept = {"message": "请假", "flows": flows, "parameters": {"leave": {"days": 3}}, "reason": ""}
    request = FurtherRequest.from_json(kept)
    assert request.message == "请假"
    if flows:
        assert request.decision is not None
        assert (request.decision.target, request.decision.parameters) == ("leave", {"days": 3})
    else:
        assert request.decision is None
