"""Every way that a message can take by rules alone: to a flow, to what is known, to a run that waits."""

from __future__ import annotations

import pytest

from loom_core.errors import ConfigError, InvalidInputError, NetError
from loom_core.flow.orchestrator import WorkflowOrchestrator
from loom_core.flow.policy.router import Disambiguation
from loom_core.flow.responses.reply import CHOICE
from loom_core.llm.mock import MockProvider
from tests.unit.flow.conftest import (
    CONFIRMED,
    LEAVE,
    ORDER,
    RULES,
    Known,
    decides,
    loaded_flows,
    talking,
)


async def test_a_pattern_begins_a_flow_with_what_its_groups_hold_and_asks_for_the_rest() -> None:
    async with talking() as talk:
        reply = await talk("我要请三天假")
        assert (reply.status, reply.flow_id, reply.text) == ("input_required", "leave", "请假还需要：事由。")
        assert (reply.route.action, reply.route.how) == ("flow", "rules")
        assert reply.route.pattern == LEAVE["trigger_patterns"][0]
        assert "我要请三天假"[reply.route.start : reply.route.end] == "请三天假"
        assert reply.pending[0].schema["required"] == ["reason"]
        assert {"rules", "run", "total"} <= reply.timings.keys()

        done = await talk("感冒了")
        assert (done.status, done.text, done.run_id) == ("completed", "已提交：3天，感冒了", reply.run_id)
        assert talk.api.requests == [("POST /leave", {"days": 3, "reason": "感冒了"})]


async def test_rules_ask_no_model_and_no_source() -> None:
    llm, known = MockProvider([]), Known(RULES)
    async with talking(llm=llm, knowledge=known) as talk:
        reply = await talk("订单123到哪了")
        assert (reply.status, reply.text) == ("completed", "订单123在路上")
    assert llm.calls == []
    assert known.asked == []


async def test_greetings_and_thanks_ask_no_one() -> None:
    llm, known = MockProvider([]), Known(RULES)
    async with talking(llm=llm, knowledge=known, file={"basic_settings": {"name": "小布"}}) as talk:
        hello = await talk("你好")
        assert (hello.text, hello.route.action) == ("您好，我是小布。我可以帮您办理：请假、查订单。", "greet")
        assert (await talk("谢谢！")).text == "不客气。"
        assert (await talk("thanks", session_id="")).text == "You are welcome."
        assert (await talk("再见")).text == "再见。"
        assert (await talk("")).route.action == "greet"
    assert llm.calls == []
    assert known.asked == []


async def test_a_hidden_flow_is_started_and_never_named_among_what_can_be_done() -> None:
    hidden = {
        **ORDER,
        "flow_id": "sos",
        "name": "紧急求助 / Emergency",
        "hidden": True,
        "trigger_patterns": ["救命", "\\bhelp me now\\b"],
        "input_schema": {},
        "endpoint": "POST /sos",
        "response": "救护车已经出发 / An ambulance is on its way",
    }
    async with talking(LEAVE, hidden) as talk:
        for message in ("你好", "今天天气怎么样", "hello", "what is the capital of France"):
            assert "紧急" not in (text := (await talk(message, session_id="")).text)
            assert "Emergency" not in text
            assert "请假" in text
        assert (await talk("救命啊", session_id="")).text == "救护车已经出发"
        assert (await talk("help me now", session_id="")).text == "An ambulance is on its way"
        prompt = talk.assistant.build_system_prompt()
    assert "- **sos** (紧急求助 / Emergency)" in prompt
    llm = MockProvider([decides("flow", "sos")])
    async with talking(LEAVE, hidden, llm=llm) as talk:
        assert (await talk("我摔倒了起不来")).text == "救护车已经出发"


async def test_a_refusal_begins_nothing_without_a_word_of_the_user() -> None:
    async with talking() as talk:
        reply = await talk("我不请假了")
        assert (reply.status, reply.route.action, reply.run_id) == ("input_required", "clarify", "")
        assert "不办理“请假”" in reply.text
        assert reply.pending[0].id == CHOICE
        assert (await talk("今天天气怎么样")).route.action == "respond"  # it is not offered any more
        assert (await talk("好的")).route.action == "greet"

        await talk("我不请假了")
        begun = await talk("是的，要请")
        assert begun.route.action != "flow"  # neither yes nor no
        await talk("我不请假了")
        assert (await talk(Disambiguation.message_of({"choice": False}))).route.action == "cancel"
        await talk("我不请假了")
        assert (await talk(Disambiguation.message_of({"choice": True}))).flow_id == "leave"
    assert talk.api.asked == []


@pytest.mark.parametrize("said", ["对，我不请假", "我没说要请假", "请假要扣工资吗", "No, I don't want 请假"])
async def test_a_flow_that_is_offered_is_not_chosen_by_a_refusal_or_a_question_with_its_name(
    said: str,
) -> None:
    async with talking() as talk:
        for first in ("我不请假了", "怎么请假？"):
            await talk(first)
            assert (await talk(said)).run_id == ""


async def test_a_question_about_a_flow_is_answered_and_the_flow_offered() -> None:
    async with talking(knowledge=Known(RULES)) as talk:
        reply = await talk("怎么请假？")
        assert reply.route.action == "respond"
        assert "每年有15天年假" in reply.text
        assert "您是要办理“请假”吗？" in reply.text
        assert [each.id for each in reply.citations] == ["rules-7"]
        assert (await talk("是的")).flow_id == "leave"


async def test_a_message_that_fits_two_flows_asks_which_and_takes_number_or_name() -> None:
    two = [
        {**LEAVE, "trigger_patterns": ["休息"]},
        {**ORDER, "flow_id": "break", "name": "休息室", "trigger_patterns": ["休息"]},
    ]
    for said in ("2", "第二个", "休息室", "the second one"):
        async with talking(*two, file={"ambiguous": "ask"}) as talk:
            reply = await talk("我要休息")
            assert (reply.route.action, reply.route.candidates) == ("clarify", ("leave", "break"))
            assert "1. 请假\n2. 休息室" in reply.text
            assert (await talk(said)).flow_id == "break"
    async with talking(*two, file={"ambiguous": "ask"}) as talk:
        await talk("我要休息")
        assert (await talk("都不要，算了")).route.action == "cancel"
    async with talking(*two, file={"ambiguous": "first"}) as talk:
        assert (await talk("我要休息")).flow_id == "leave"


async def test_without_a_model_passages_answer_or_what_can_be_done_is_said() -> None:
    async with talking(knowledge=Known(RULES)) as talk:
        reply = await talk("年假有几天")
        assert reply.text == "找到以下内容：\n\n[1] 每年有15天年假。 (假期制度)"
        assert reply.citations[0].source == "kb://rules"
    async with talking(knowledge=Known()) as talk:
        assert (await talk("年假有几天")).text == "没有找到相关的内容。\n我可以帮您办理：请假、查订单。"


async def test_the_file_may_say_in_which_language_is_spoken() -> None:
    async with talking(file={"basic_settings": {"language": "en"}}) as talk:
        assert (await talk("谢谢")).text == "You are welcome."
        assert (await talk("我要请三天假")).text == "请假 needs: 事由."


async def test_confirming_shows_what_is_confirmed_and_a_correction_is_confirmed_again() -> None:
    async with talking(CONFIRMED, ORDER) as talk:
        await talk("我要请三天假")
        asked = await talk("感冒了")
        assert asked.text == "要开始“请假”吗？\n天数：3\n事由：感冒了"
        corrected = await talk("改成五天")
        assert (corrected.status, corrected.route.action) == ("input_required", "correct")
        assert "天数：5" in corrected.text
        assert talk.api.asked == []
        done = await talk("好的，提交吧")
        assert (done.status, done.route.action) == ("completed", "approve")
    assert talk.api.requests == [("POST /leave", {"days": 5, "reason": "感冒了"})]


async def test_a_no_ends_it_and_nothing_was_done() -> None:
    async with talking(CONFIRMED) as talk:
        await talk("我要请三天假")
        await talk("感冒了")
        reply = await talk("先不要")
        assert (reply.status, reply.route.action, reply.text) == ("aborted", "deny", "好的，没有执行。")
    assert talk.api.asked == []


@pytest.mark.parametrize("message", ["算了", "取消吧", "我不请假了", "我不请了", "cancel it"])
async def test_what_waits_can_be_cancelled(message: str) -> None:
    async with talking() as talk:
        await talk("我要请三天假")
        reply = await talk(message)
        assert (reply.status, reply.route.action) == ("aborted", "cancel")
        assert (await talk("算了")).route.how == "none"


async def test_another_flow_comes_in_between_and_the_first_is_offered_again() -> None:
    async with talking() as talk:
        first = await talk("我要请三天假")
        between = await talk("订单123到哪了")
        assert (between.status, between.flow_id) == ("completed", "order")
        assert between.text == "订单123在路上\n\n“请假”还没有办完：请假还需要：事由。"
        assert between.waiting is not None
        assert between.waiting.run_id == first.run_id
        done = await talk("感冒了")
        assert (done.run_id, done.status, done.waiting) == (first.run_id, "completed", None)


async def test_an_answer_corrects_and_manners_are_returned_while_something_is_asked() -> None:
    async with talking() as talk:
        await talk("我要请三天假")
        polite = await talk("谢谢")
        assert polite.text == "不客气。\n\n请假还需要：事由。"
        corrected = await talk("改成四天")
        assert (corrected.route.action, corrected.status) == ("correct", "input_required")
        again = await talk("我要请五天假")
        assert (again.route.action, again.status) == ("correct", "input_required")
        await talk("感冒了")
    assert talk.api.requests == [("POST /leave", {"days": 5, "reason": "感冒了"})]


async def test_what_is_no_answer_is_looked_up_or_asked_again() -> None:
    async with talking(knowledge=Known(RULES)) as talk:
        await talk("我想请假")
        assert (await talk("感冒了，三天")).status == "completed"
        await talk("我想请个假")
        reply = await talk("年假一共多少")
        assert reply.route.action == "respond"
        assert "每年有15天年假" in reply.text
        assert reply.text.endswith("请假还需要：天数、事由。")
    async with talking(knowledge=Known()) as talk:
        await talk("我想请假")
        assert (await talk("说不好")).text.startswith("这句话没有看懂。")


async def test_a_failed_flow_is_tried_again_by_a_word() -> None:
    async with talking() as talk:
        talk.api.answer = lambda _: NetError("The line is down.", failure="connection")
        failed = await talk("订单123到哪了")
        assert (failed.status, failed.route.action) == ("failed", "flow")
        assert failed.text.startswith("“查订单”没有办成。")
        talk.api.answer = lambda _: {"ok": True}
        again = await talk("再试一次")
        assert (again.status, again.route.action, again.run_id) == ("completed", "retry", failed.run_id)


async def test_a_message_that_is_no_text_or_too_long_is_refused() -> None:
    async with talking() as talk:
        with pytest.raises(InvalidInputError, match="a lone surrogate"):
            await talk("\ud800")
        with pytest.raises(InvalidInputError, match="20001 characters"):
            await talk("长" * 20_001)


async def test_inputs_of_a_pattern_that_the_schema_refuses_are_asked_for() -> None:
    async with talking() as talk:
        assert (await talk("我要请0天假")).text == "天数不能是0：至少是1。\n\n请假还需要：天数、事由。"


async def test_the_file_itself_may_hold_what_is_known() -> None:
    documents = [{"text": "# 年假\n\n每位员工每年有15天年假。", "title": "假期制度"}]
    source = {"kind": "documents", "documents": documents}
    async with talking(file={"knowledge": source, "knowledge_seconds": 30}) as talk:
        reply = await talk("年假有几天")
        assert "15天年假" in reply.text
        assert reply.citations


def test_knowledge_that_only_a_program_can_open_is_asked_for() -> None:
    loaded = loaded_flows(LEAVE, knowledge={"kind": "local", "knowledge_base": "hr"})
    with pytest.raises(ConfigError, match="kind `local`"):
        WorkflowOrchestrator(loaded)


async def test_steps_that_ask_and_confirm_take_corrections_and_ask_again() -> None:
    steps = [
        {"stepId": "when", "ask": {"question": "{$inputs.days}天，从哪天开始？", "into": "day"}},
        {"stepId": "sure", "confirm": "从{$inputs.day}起请{$inputs.days}天，确定吗？"},
        {"stepId": "send", "operation": "POST /leave"},
    ]
    flow = {**LEAVE, "steps": steps, "input_schema": {**LEAVE["input_schema"], "required": ["days"]}}
    del flow["endpoint"]
    async with talking({**flow, "response": "好了"}) as talk:
        assert (await talk("我要请三天假")).text == "3天，从哪天开始？"
        corrected = await talk("改成五天")
        assert (corrected.route.action, corrected.text) == ("correct", "5天，从哪天开始？")
        asked = await talk("2026年12月1日")
        assert asked.text.splitlines()[0] == "从2026年12月1日（周二）起请5天，确定吗？"
        again = await talk("改成两天")
        assert again.text.splitlines()[0] == "从2026年12月1日（周二）起请2天，确定吗？"
        assert (await talk("确定")).text == "好了"
    assert talk.api.requests[0][1]["days"] == 2


async def test_a_question_about_another_flow_is_no_answer() -> None:
    async with talking(knowledge=Known()) as talk:
        await talk("我要请三天假")
        reply = await talk("怎么查订单12")
        assert (reply.route.action, reply.status) == ("clarify", "input_required")
        assert (await talk("我要请三天假")).text == "请假还需要：事由。"
        assert talk.api.asked == []


@pytest.mark.parametrize(
    ("message", "action"),
    [
        ("行吧，正好都有空", "approve"),
        ("yeah I guess that's fine with me", "approve"),
        ("时间冲突了，去不了", "deny"),
        ("no that's the wrong week", "deny"),
        ("可以，但我想先问问医生", "clarify"),
        ("that's right, I don't need it anymore", "deny"),
        ("that room is fine, but let me ask my wife", "clarify"),
    ],
)
async def test_a_yes_or_no_among_other_words_is_understood_and_never_a_yes_with_a_no_in_it(
    message: str, action: str
) -> None:
    async with talking(CONFIRMED, ORDER) as talk:
        await talk("我要请三天假")
        await talk("感冒了")
        assert (await talk(message)).route.action == action


async def test_a_yes_among_other_words_that_names_another_flow_begins_it() -> None:
    async with talking(CONFIRMED, ORDER) as talk:
        await talk("我要请三天假")
        await talk("感冒了")
        assert (await talk("好吧，那订单123到哪了")).flow_id == "order"
