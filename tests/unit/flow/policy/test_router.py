from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loom_core.errors import ConfigError
from loom_core.flow.config.models import FlowFile
from loom_core.flow.policy.router import FlowRouter

_LEAVE: dict[str, Any] = {
    "flow_id": "leave",
    "name": "请假申请",
    "description": "提交一次请假。\n\n需要天数。",
    "trigger_patterns": [
        "我要请假",
        "申请.*假",
        "请(?P<days>\\w+?)天(?P<kind>.)?假",
        "take (?P<days>\\w+) days? off",
    ],
    "input_schema": {
        "type": "object",
        "properties": {
            "days": {"type": "integer", "description": "几天"},
            "kind": {"enum": ["年", "病"]},
        },
        "required": ["days"],
    },
    "endpoint": "POST https://a.example/leave",
    "examples": ["我要请三天年假", "b", "c", "d"],
}


def _router(*flows: dict[str, Any], **file: Any) -> FlowRouter:
    made = [{"endpoint": "POST https://a.example/x", **flow} for flow in flows]
    read = FlowFile.model_validate({"flows": made, **file})
    return FlowRouter(read.flows, ambiguous=read.ambiguous)


def test_a_message_that_asks_for_one_flow_is_routed_to_it() -> None:
    router = _router(_LEAVE, {"flow_id": "order", "trigger_patterns": ["查.*订单"]})
    route = router.match("你好，我要请假")
    assert route.kind == "flow"
    assert route.flow is not None
    assert route.flow.flow_id == "leave"
    assert route.flows == (route.flow,)
    assert [(each.start, each.end) for each in route.matches] == [(3, 7)]
    assert router.match_by_pattern("查一下订单") is not None
    assert router.match_by_pattern("今天星期几") is None
    assert router.match("今天星期几").kind == "none"


@pytest.mark.parametrize(
    ("message", "parameters"),
    [
        ("我要请３天年假", {"days": 3, "kind": "年"}),
        ("帮我请三天假", {"days": 3}),
        ("帮我请几天假", {}),
        ("申请假，请五天病假", {"days": 5, "kind": "病"}),
        ("I'd like to take two days off", {"days": 2}),
        ("帮我请三天婚假", {"days": 3}),
    ],
)
def test_named_groups_that_are_inputs_fill_them_in_their_type(
    message: str, parameters: dict[str, object]
) -> None:
    route = _router(_LEAVE).match(message)
    assert route.kind == "flow"
    assert route.parameters == parameters


def test_groups_that_are_no_inputs_are_left_out() -> None:
    route = _router({"flow_id": "a", "trigger_patterns": ["(?P<other>请)假"]}).match("请假")
    assert route.kind == "flow"
    assert route.parameters == {}


@pytest.mark.parametrize("message", ["我不请三天假了", "我要请假，算了", "怎么申请年假", "如果我请三天假呢"])
def test_what_names_a_flow_without_asking_for_it_is_a_hint(message: str) -> None:
    route = _router(_LEAVE).match(message)
    assert route.kind == "none"
    assert [flow.flow_id for flow in route.hints] == ["leave"]
    assert not route.parameters
    assert route.matches


def test_of_several_the_highest_priority_is_meant() -> None:
    router = _router(
        {"flow_id": "a", "trigger_patterns": ["取消.*订单"]},
        {"flow_id": "b", "trigger_patterns": ["订单"], "priority": 1},
        ambiguous="ask",
    )
    route = router.match("查订单")
    assert route.flow is not None
    assert route.flow.flow_id == "b"


def test_of_equals_the_one_that_holds_the_others_is_meant() -> None:
    router = _router(
        {"flow_id": "status", "trigger_patterns": ["订单"]},
        {"flow_id": "return", "trigger_patterns": ["退.*订单"]},
        ambiguous="ask",
    )
    route = router.match("我要退掉我的订单")
    assert route.flow is not None
    assert route.flow.flow_id == "return"


def test_what_fits_several_alike_is_for_the_policy() -> None:
    flows = (
        {"flow_id": "a", "trigger_patterns": ["订单"]},
        {"flow_id": "b", "trigger_patterns": ["发票抬头"]},
    )
    route = _router(*flows, ambiguous="ask").match("订单和发票抬头")
    assert (route.kind, route.policy, route.flow) == ("ambiguous", "ask", None)
    assert [flow.flow_id for flow in route.flows] == ["b", "a"]
    assert _router(*flows).match("订单和发票抬头").policy == "llm"
    first = _router(*flows, ambiguous="first").match("订单和发票抬头")
    assert first.flow is not None
    assert first.flow.flow_id == "b"
    own = _router(flows[0], {**flows[1], "ambiguous": "first"}, ambiguous="ask")
    assert own.match("订单和发票抬头").kind == "flow"
    twins = _router({**flows[0], "flow_id": "one"}, {**flows[0], "flow_id": "two"}, ambiguous="llm")
    assert [flow.flow_id for flow in twins.match("订单").flows] == ["one", "two"]


def test_flows_that_are_off_are_neither_found_nor_described() -> None:
    router = _router({**_LEAVE, "enabled": False})
    assert router.match("我要请假").kind == "none"
    assert router.build_flow_descriptions() == ""


def test_the_model_is_told_of_flows_in_lines_of_their_own() -> None:
    router = _router(
        _LEAVE, {"flow_id": "order", "input_schema": {"properties": {"id": {"type": ["string", "null"]}}}}
    )
    assert router.build_flow_descriptions() == (
        "## Available Flows\n"
        "\n"
        "- **leave** (请假申请): 提交一次请假。 需要天数。\n"
        "  - input `days` (integer, required): 几天\n"
        "  - input `kind` (one of 年, 病)\n"
        '  - examples: "我要请三天年假"; "b"; "c"\n'
        "- **order**: (no description)\n"
        "  - input `id` (string)\n"
    )


def test_the_model_may_start_a_hidden_flow_and_is_told_not_to_offer_it() -> None:
    router = _router({"flow_id": "sos", "description": "Calls for help.", "hidden": True})
    assert "- **sos**: Calls for help.\n  - start it if the message calls for it" in (
        router.build_flow_descriptions()
    )


def test_a_pattern_that_cannot_be_used_is_refused_with_its_flow() -> None:
    with pytest.raises(ConfigError, match=r"'leave'.*column 3"):
        _router({"flow_id": "leave", "trigger_patterns": ["请假("]})


async def test_a_message_that_takes_long_lets_others_go_on() -> None:
    patterns = [f".{{0,50}}{chr(0x4E00 + at % 200)}.{{0,50}}k{at}" for at in range(600)]
    router = _router({"flow_id": "slow", "trigger_patterns": patterns})
    hostile = "".join(chr(0x4E00 + at % 200) for at in range(1300)) + "k599"
    ticks, done = 0, anyio.Event()

    async def count() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(count)
        route = await router.match_in_thread(hostile)
        seen = ticks
        done.set()
    assert route.kind == router.match(hostile).kind
    assert seen > 20
    quick = await _router(_LEAVE).match_in_thread("我要请假")
    assert quick.flow is not None
