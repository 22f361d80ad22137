"""Messages to users about errors, approvals and delays, in their language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import pytest

from loom_core.errors import NetError, NetFailure, SourceError
from loom_core.flow.http.response import EndpointResult
from loom_core.knowledge.model import KnowledgeItem
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.commands import Abort, ApprovalDecision, InputResponse
from loom_core.testing import MockLLM, call
from tests.unit.flow.conftest import LEAVE, ORDER, decides, talking

_STEPS: Mapping[str, Any] = {
    **ORDER,
    "trigger_patterns": ["订单", "where is order"],
    "response": "",
    "input_schema": {},
    "endpoint": None,
    "steps": [{"stepId": "internal", "operation": "POST /internal"}],
}
_SAVE: Mapping[str, Any] = {"name": "save", "description": "Save.", "endpoint": "POST /save"}


@pytest.mark.parametrize(
    ("failure", "chinese", "english"),
    [
        ("connection", "连不上", "cannot be reached"),
        ("timeout", "没有及时答复", "did not answer in time"),
        ("unavailable", "太忙", "too busy"),
        ("unusable", "无法理解", "could not be understood"),
        ("refused", "我们这边出了问题", "on our side"),
    ],
)
async def test_a_request_without_an_answer_is_told_by_what_went_wrong(
    failure: NetFailure, chinese: str, english: str
) -> None:
    for message, expected in (("订单7到哪了", chinese), ("so where is order 7", english)):
        async with talking() as talk:
            talk.api.answer = lambda _: NetError("http://127.0.0.1:9 is down.", failure=failure)
            reply = await talk(message)
            run = await talk.assistant.journal.get(reply.run_id)
        assert reply.status == "failed"
        assert expected in reply.text
        assert "127.0.0.1" not in reply.text
        assert "127.0.0.1" in run.problem  # which operators read
        assert (reply.language == "zh") is (expected is chinese)


def _answered(status: int, body: Any) -> EndpointResult:
    return EndpointResult(status, {}, body, 1, 0.0, "http://127.0.0.1:9/internal")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (404, "没有接受"),
        (429, "太忙"),
        (500, "出了故障"),
        (504, "不知道是否已经办好"),
        (401, "我们这边出了问题"),
    ],
)
async def test_an_answer_that_is_a_no_is_told_by_its_kind(status: int, said: str) -> None:
    async with talking(_STEPS) as talk:
        talk.api.answer = lambda _: _answered(status, {"message": "ORA-00942"})
        reply = await talk("订单7到哪了")
    assert reply.text.startswith("“查订单”没有办成。")
    assert said in reply.text
    assert not [each for each in ("ORA", "internal", "127.0.0.1", str(status)) if each in reply.text]
    assert reply.text.endswith("要再试，请说“再试一次”。")


async def test_what_the_file_says_of_a_failure_is_told_and_what_can_be_put_right() -> None:
    told = {"url": "/leave", "method": "POST", "failure": "{$response.body#/msg}"}
    step = {"stepId": "internal", "operation": told, "successCriteria": ["$response.body#/code == 0"]}
    for flow, status in (
        ({**LEAVE, "endpoint": told}, 409),
        ({**LEAVE, "endpoint": None, "steps": [step]}, 200),
    ):
        async with talking(flow) as talk:
            talk.api.answer = lambda _, status=status: _answered(status, {"code": 7, "msg": "余额不足"})
            await talk("我要请三天假")
            reply = await talk("感冒了")
        advice = "要再试，请说“再试一次”；要先改正哪一项，请说“改成……”。"
        assert reply.text == f"“请假”没有办成。余额不足{advice}"


async def test_what_a_server_says_in_both_languages_is_told_in_one() -> None:
    told = {"url": "/leave", "method": "POST", "failure": "{$response.body#/msg}"}
    async with talking({**ORDER, "endpoint": told}) as talk:
        talk.api.answer = lambda _: _answered(404, {"msg": "没有订单 7 / There is no order 7"})
        assert (await talk("订单7到哪了")).text.startswith("“查订单”没有办成。没有订单 7要再试")
        assert "There is no order 7 To try" in (await talk("so where is order 7")).text


async def test_a_failure_inside_another_flow_is_told_in_its_own_words() -> None:
    outer = {"flow_id": "outer", "name": "全部", "trigger_patterns": ["全部"], "steps": []}
    begin, look = {"stepId": "a", "workflowId": "order"}, {"stepId": "b", "operation": "GET /look"}
    outer["steps"] = [{"stepId": "in", "parallel": [[begin], [look]]}]
    inner = {**_STEPS, "trigger_patterns": []}
    async with talking(outer, inner) as talk:
        talk.api.answer = lambda url: _answered(404, {}) if "internal" in url else {"ok": True}
        assert "“全部”没有办成。办理所用的系统没有接受。" in (await talk("全部办一下")).text


async def test_a_tool_of_the_file_that_fails_in_a_step_is_told_in_words() -> None:
    flow = {**_STEPS, "steps": [{"stepId": "internal", "tool": "save"}]}
    saves = {**_SAVE, "confirm": False}
    for answer, said in (
        (_answered(500, {"msg": "ORA-00942"}), "出了故障"),
        (NetError("http://127.0.0.1:9 is down.", failure="connection"), "连不上"),
    ):
        async with talking(flow, file={"system_tools": [saves]}) as talk:
            talk.api.answer = lambda _, answer=answer: answer
            reply = await talk("订单7到哪了")
            run = await talk.assistant.journal.get(reply.run_id)
        assert said in reply.text
        assert "127.0.0.1" not in reply.text
        assert "127.0.0.1" in run.problem


@pytest.mark.parametrize("confirm", [True, None])
async def test_what_has_to_be_confirmed_is_asked_in_the_words_and_the_language_of_the_user(
    confirm: bool | None,
) -> None:
    saves = {**_SAVE, "confirm": confirm}
    flow = {**_STEPS, "name": "包裹", "steps": [{"stepId": "internal", "tool": "save"}]}
    async with talking(flow, file={"system_tools": [saves]}) as talk:
        assert (await talk("订单7到哪了")).text == "要我继续办理“包裹”吗？"
    llm = MockLLM([decides("tool", "save"), call("save"), "好了。"])
    async with talking(flow, file={"system_tools": [saves]}, llm=llm) as talk:
        assert (await talk("帮我存一下")).text == "要我为您这样办理吗？"
    async with talking({**flow, "name": "Parcels"}, file={"system_tools": [saves]}) as talk:
        assert (await talk("so where is order 7")).text == "Shall I go on with “Parcels”?"


async def test_what_no_one_knows_of_is_asked_about_with_the_inputs_and_not_with_the_request() -> None:
    request = {"url": "/pay", "method": "POST", "body": {"n": "{$inputs.number}"}}
    pay = {"stepId": "internal", "description": "付款", "operation": request}
    async with talking({**ORDER, "endpoint": None, "steps": [pay]}) as talk:
        talk.api.answer = lambda _: NetError("http://127.0.0.1:9 is lost.", failure="interrupted")
        failed = await talk("订单7到哪了")
        assert "没有及时答复。不知道是否已经办好。" in failed.text
        asked = await talk("再试一次")
    assert asked.pending[0].kind == "unknown"
    assert asked.text.splitlines() == [
        "步骤付款已经开始，但不知道是否完成。要再做一次吗？请先确认，以免重复。",
        "订单号：7",
    ]


async def test_who_says_that_it_did_not_succeed_and_wants_it_again_gets_it() -> None:
    request = {"url": "/pay", "method": "POST", "body": {"n": "{$inputs.number}"}}
    flow = {**ORDER, "endpoint": None, "steps": [{"stepId": "internal", "operation": request}]}
    async with talking(flow) as talk:
        talk.api.answer = lambda _: NetError("http://127.0.0.1:9 is lost.", failure="interrupted")
        await talk("订单7到哪了")
        asked = await talk("再试一次")
        assert asked.pending[0].kind == "unknown"
        talk.api.answer = lambda _: {"ok": True}
        again = await talk("没有成功，再发一次吧")
        assert (again.route.action, again.text) == ("approve", "订单7在路上")
        assert len(talk.api.asked) == 2


async def test_who_says_no_or_calls_it_off_reads_that_whichever_way_they_say_it() -> None:
    confirmed = {**ORDER, "confirm": "always"}
    async with talking(confirmed) as talk:
        asked = await talk("订单7到哪了")
        by_form = ApprovalDecision(id=asked.pending[0].id, action="deny", by="the user")
        denied = await talk.assistant.send_command(asked.run_id, by_form)
        run = await talk.assistant.journal.get(asked.run_id)
        assert (denied.status, denied.text) == ("aborted", "好的，没有执行。")
        assert run.problem == "该运行已中止（操作者：用户）：未获同意"
        asked = await talk("订单8到哪了")
        off = await talk.assistant.send_command(asked.run_id, Abort(by="the user"))
        assert (off.status, off.text) == ("aborted", "“查订单”已取消。")
    async with talking() as talk:
        asked = await talk("我要请三天假")
        by_form = InputResponse(id=asked.pending[0].id, action="decline", by="the user")
        assert (await talk.assistant.send_command(asked.run_id, by_form)).text == "好的，没有执行。"


class Failing:
    """A source of knowledge that cannot be asked."""

    def identity(self, message: str, context: Mapping[str, Any]) -> str:
        return message

    async def find(self, message: str, context: Mapping[str, Any]) -> Sequence[KnowledgeItem]:
        raise SourceError("http://kb.corp answered with 500.")


async def test_knowledge_that_cannot_be_asked_is_not_told_as_nothing_found() -> None:
    async with talking(knowledge=Failing()) as talk:
        reply = await talk("年假有几天")
        assert reply.text == "资料现在查不了，请稍后再问。\n我可以帮您办理：请假、查订单。"
        assert "kb.corp" in reply.route.problem
        english = await talk("how many days are there", session_id="")
        assert english.text.startswith("I cannot look that up at the moment.")
    llm = MockProvider([decides("respond"), "现在查不了。"])
    async with talking(knowledge=Failing(), llm=llm) as talk:
        reply = await talk("年假有几天")
        assert (reply.text, "kb.corp" in reply.route.problem) == ("现在查不了。", True)
    asked = llm.calls[1].messages[0].text
    assert "could not be looked up now" in asked
    assert "kb.corp" not in asked


async def test_a_model_that_takes_too_long_to_decide_is_gone_on_without() -> None:
    llm = MockProvider([MockAnswer(decides("flow", "leave"), delay=60)] * 3)
    async with talking(llm=llm, file={"decision_seconds": 0.05}) as talk:
        with anyio.fail_after(30):
            reply = await talk("随便说说吧")
            problem = "The model took longer than 0.05 s; `decision_seconds` may allow it more."
            assert (reply.route.action, reply.route.problem) == ("respond", problem)
            found = await talk.assistant.explain("随便说说吧")
            assert found.problem == problem
            await talk("我要请三天假")
            again = await talk("这个嘛怎么说呢？")
            assert (again.status, again.route.problem) == ("input_required", problem)


async def test_a_model_that_takes_too_long_to_answer_leaves_it_to_the_passages() -> None:
    llm = MockProvider([decides("respond"), MockAnswer("…", delay=60)])
    async with talking(llm=llm, file={"decision_seconds": 0.2}) as talk:
        with anyio.fail_after(30):
            reply = await talk("年假有几天")
    assert reply.text.startswith("没有找到相关的内容。")
    assert "longer than 0.2 s" in reply.route.problem


async def test_a_conversation_keeps_its_language_for_what_is_said_in_any() -> None:
    async with talking() as talk:
        await talk("我要请三天假")
        for said in ("abc", "no"):
            reply = await talk(said)
            assert reply.language == "zh"
        assert (await talk("hi")).text.startswith("您好。")
        assert (await talk("where is order 7")).language == "en"
