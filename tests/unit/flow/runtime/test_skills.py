from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loom_core.flow.runtime.skills import active_skills, free_tools, skills_in_order
from loom_core.runs.commands import ApprovalDecision
from loom_core.testing import MockLLM, call
from loom_core.tools.function_tool import tool
from tests.unit.flow.conftest import LEAVE, ORDER, decides, loaded_flows, talking

ASK_PRICE: Mapping[str, Any] = {
    "name": "ask_price",
    "description": "What something costs.",
    "parameters": {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]},
    "endpoint": {"url": "/price", "method": "GET"},
}
SAVE: Mapping[str, Any] = {
    "name": "save_customer",
    "description": "Save who wants a demonstration.",
    "parameters": {"type": "object", "properties": {"phone": {"type": "string"}}, "required": ["phone"]},
    "endpoint": {"url": "/customers", "method": "POST"},
}
CLOCK: Mapping[str, Any] = {
    "name": "clock",
    "description": "What time it is.",
    "endpoint": {"url": "/time", "method": "GET"},
}
DEMO = {"id": "demo", "condition": "客户想看演示", "action": "记下电话", "tools": ["save_customer"]}
PRICE = {"id": "price", "condition": "客户问价格", "action": "查价格", "tools": ["ask_price"], "priority": 5}
FILE = {"skills": [DEMO, PRICE], "system_tools": [ASK_PRICE, SAVE, CLOCK]}


def _ids(file: Mapping[str, Any], chosen: list[str]) -> list[str]:
    return [skill.id for skill in active_skills(loaded_flows(LEAVE, **file).file, chosen)]


def _skill(id_: str, **more: Any) -> dict[str, Any]:
    return {"id": id_, "condition": "c", "action": "a", **more}


def test_skills_apply_by_priority_dependencies_and_exclusions() -> None:
    file = {
        "skills": [
            _skill("low", excludes=["high"]),
            _skill("high", priority=9),
            _skill("needs", depends_on=["base"]),
            _skill("base"),
            _skill("bars", excludes=["barred"]),
            _skill("barred", depends_on=[]),
            _skill("chain", depends_on=["barred"]),
            _skill("off", enabled=False),
        ]
    }
    assert _ids(file, ["low", "high"]) == ["high"]  # it ranks higher, and the other one yields
    assert _ids(file, ["low"]) == ["low"]
    assert _ids(file, ["needs"]) == []
    assert _ids(file, ["base", "needs"]) == ["needs", "base"]
    assert _ids(file, ["bars", "barred", "chain"]) == ["bars"]
    assert _ids(file, ["off", "unknown"]) == []
    assert [each.id for each in skills_in_order(loaded_flows(LEAVE, **FILE).file)] == ["price", "demo"]


def test_tools_of_a_skill_are_free_only_while_it_applies() -> None:
    @tool
    def mine() -> str:
        """Mine."""
        return ""

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

    loaded = loaded_flows(LEAVE, **FILE)
    tools: Any = [Named(name) for name in ("ask_price", "save_customer", "clock")] + [mine]
    assert [each.name for each in free_tools(loaded.file, tools)] == ["clock"]


async def test_a_skill_works_with_its_own_tools_and_no_others() -> None:
    llm = MockLLM(
        [
            decides("skill", "price"),
            [call("ask_price", item="茶"), call("save_customer", phone="1"), call("clock")],
            "茶10元。",
        ]
    )
    async with talking(LEAVE, file=FILE, llm=llm) as talk:
        talk.api.answer = lambda _: {"price": 10}
        reply = await talk("茶多少钱")
        assert (reply.status, reply.text) == ("completed", "茶10元。")
        assert (reply.route.action, reply.route.skills) == ("skill", ("price",))
        assert talk.api.requests == [("GET /price", {"item": "茶"})]
        events = await talk.assistant.journal.events(reply.run_id)
    ended = [each.payload for each in events if each.type == "tool_result"]
    assert sorted((each["tool"], each["status"]) for each in ended) == [
        ("ask_price", "success"),
        ("unknown", "error"),
        ("unknown", "error"),
    ]
    shown = llm.calls[1]
    assert [each.name for each in shown.tools] == ["ask_price"]
    assert "查价格" in shown.messages[0].text
    assert "记下电话" not in shown.messages[0].text


async def test_an_approval_reaches_the_user_of_the_session() -> None:
    llm = MockLLM([decides("skill", "demo"), call("save_customer", phone="138"), "记下了。"])
    async with talking(LEAVE, file=FILE, llm=llm) as talk:
        asked = await talk("我想看演示，电话138")
        assert (asked.status, asked.pending[0].tool) == ("input_required", "save_customer")
        assert "138" in asked.text
        assert talk.api.asked == []
        done = await talk("好的")
        assert (done.status, done.text) == ("completed", "记下了。")
        assert talk.api.requests == [("POST /customers", {"phone": "138"})]


async def test_who_knows_the_run_may_decide_too() -> None:
    llm = MockLLM([decides("skill", "demo"), call("save_customer", phone="138"), "没有记。"])
    async with talking(LEAVE, file=FILE, llm=llm) as talk:
        asked = await talk("我想看演示，电话138")
        order = ApprovalDecision(id=asked.pending[0].id, action="deny", by="王芳")
        done = await talk.assistant.send_command(asked.run_id, order)
        assert (done.status, done.text) == ("completed", "没有记。")
        assert talk.api.asked == []


async def test_a_tool_is_called_with_the_variables_of_the_conversation() -> None:
    scoped = {**CLOCK, "endpoint": {"url": "/time", "method": "GET", "query": {"t": "{$context.tenantId}"}}}
    llm = MockLLM([decides("tool", "clock"), call("clock"), "八点。"])
    async with talking(LEAVE, file={"system_tools": [scoped]}, llm=llm) as talk:
        reply = await talk("几点了", context={"tenantId": "acme"})
        assert (reply.text, reply.route.tool) == ("八点。", "clock")
        ((_, _, context),) = talk.api.asked
        assert context["tenantId"] == "acme"


async def test_a_skill_without_what_it_depends_on_is_answered_in_words() -> None:
    file = {"skills": [_skill("needs", depends_on=["base"]), _skill("base")]}
    llm = MockLLM([decides("skill", "needs"), "好的。"])
    async with talking(LEAVE, file=file, llm=llm) as talk:
        reply = await talk("做那件事")
        assert (reply.route.action, reply.text, reply.run_id) == ("respond", "好的。", "")


async def test_a_skill_goes_round_in_bounds() -> None:
    turns = [decides("skill", "price"), *(call("ask_price", item=str(number)) for number in range(30))]
    async with talking(LEAVE, file=FILE, llm=MockLLM(turns)) as talk:
        reply = await talk("茶多少钱")
        assert reply.status in {"failed", "completed"}
        assert len(talk.api.asked) <= 8


async def test_what_a_skill_said_is_part_of_the_conversation() -> None:
    llm = MockLLM([decides("skill", "price"), "茶10元。", decides("respond"), "是的，10元。"])
    async with talking(LEAVE, file=FILE, llm=llm) as talk:
        await talk("茶多少钱")
        await talk("真的只要这么多")
    assert [each.text for each in llm.calls[2].messages[1:]] == ["茶多少钱", "茶10元。", "真的只要这么多"]


async def test_an_interrupted_skill_is_returned_to() -> None:
    llm = MockLLM([decides("skill", "demo"), call("save_customer", phone="138"), "没有记。"])
    async with talking(LEAVE, ORDER, file=FILE, llm=llm) as talk:
        await talk("我想看演示，电话138")
        between = await talk("订单5到哪了")
        assert (between.status, between.flow_id) == ("completed", "order")
        assert "“我想看演示，电话138”还没有办完" in between.text
        ended = await talk("算了")
        assert (ended.status, ended.text) == ("aborted", "“我想看演示，电话138”已取消。")
    assert talk.api.requests == [("GET /order", {"number": "5"})]
