from __future__ import annotations

import json
from typing import Any

import pytest

from loom_core.errors import ConfigError
from loom_core.flow.regression import check_utterances, read_utterances
from loom_core.llm.mock import MockProvider
from tests.unit.flow.conftest import LEAVE, ORDER, decides, loaded_flows

CONFIRMED = {**LEAVE, "confirm": "always"}
DECISION = {"action": "flow", "target": "leave", "parameters": {"days": 2}, "confidence": 0.9}
LINES: list[dict[str, Any]] = [
    {"message": "我要请3天假", "session": "a", "expect": {"action": "flow", "flow": "leave", "how": "rules"}},
    {
        "message": "感冒了",
        "session": "a",
        "expect": {"action": "answer", "inputs": {"days": 3, "reason": "感冒了"}},
    },
    {
        "message": "好的",
        "session": "a",
        "expect": {"action": "approve", "status": "completed", "inputs": {"days": 3}},
    },
    {"message": "我不请假了", "expect": {"action": "clarify", "flow": "", "candidates": ["leave"]}},
    {
        "message": "想休息两天",
        "session": "b",
        "decision": DECISION,
        "expect": {"how": "model", "flow": "leave", "inputs": {"days": 2, "reason": None}},
        "expect_rules": {"action": "respond", "how": "none", "flow": ""},
    },
    {"message": "想休息两天", "session": "c", "decision": DECISION, "expect": {"flow": "leave"}},
    {"message": "感冒了", "session": "c", "expect": {"action": "answer"}, "note": "behind a decision"},
    {"message": "where is order 12", "expect": {"flow": "order", "inputs": {"number": "12"}}},
]


def written(lines: list[dict[str, Any]]) -> str:
    return "// what is expected\n\n" + "\n".join(json.dumps(each, ensure_ascii=False) for each in lines)


async def test_messages_go_where_they_are_expected_to() -> None:
    loaded = loaded_flows(CONFIRMED, ORDER, model="deepseek")  # which is not asked
    report = await check_utterances(loaded, read_utterances(written(LINES)))
    assert [str(each) for each in report.differences] == []
    assert (report.checked, report.left_out, report.failed) == (8, (), 0)


async def test_steps_that_ask_a_model_are_answered_without_it() -> None:
    asked = MockProvider([])  # any question to it would be an error
    task = {"prompt": "{$message}", "choices": ["a", "b"]}
    steps = [{"stepId": "kind", "llm": task}, {"stepId": "text", "llm": {"prompt": "?"}}]
    flow = {"flow_id": "sort", "trigger_patterns": ["sort it"], "steps": steps}
    line = {"message": "sort it", "expect": {"flow": "sort", "status": "completed"}}
    report = await check_utterances(loaded_flows(flow), read_utterances(written([line])), llm=asked)
    assert ([str(each) for each in report.differences], asked.calls) == ([], [])


async def test_with_rules_alone_what_needs_a_decision_is_left_out_unless_the_file_says_what_follows() -> None:
    report = await check_utterances(
        loaded_flows(CONFIRMED, ORDER), read_utterances(written(LINES)), mode="rules"
    )
    assert [str(each) for each in report.differences] == []
    assert (report.checked, report.left_out) == (6, (8, 9))


async def test_a_line_of_answers_is_what_requests_get_from_there_on() -> None:
    answers: dict[str, Any] = {"answers": {"GET https://x.example/orders": {"state": "sent"}}}
    get = {
        "stepId": "get",
        "operation": "GET https://x.example/orders",
        "outputs": {"state": "$response.body#/state"},
    }
    flow = {**ORDER, "endpoint": None, "steps": [get], "response": "It is {$steps.get.outputs.state}."}
    lines: list[dict[str, Any]] = [
        {"message": "where is order 12", "expect": {"status": "failed"}},
        answers,
        {"message": "where is order 12", "expect": {"status": "completed"}},
    ]
    report = await check_utterances(loaded_flows(flow), read_utterances(written(lines)))
    assert ([str(each) for each in report.differences], report.checked) == ([], 2)
    with pytest.raises(ConfigError, match="answers"):
        read_utterances('{"answers": ["GET /orders"]}')


async def test_what_differs_is_told_by_line() -> None:
    wrong = [
        {"message": "我要请3天假", "expect": {"action": "respond", "flow": "order", "inputs": {"days": 4}}},
        {"message": "订单5到哪了", "expect": {"flow": "order"}},
    ]
    report = await check_utterances(loaded_flows(), read_utterances(written(wrong)))
    assert (report.checked, report.failed) == (2, 1)
    assert [str(each) for each in report.differences] == [
        'line 3: \'我要请3天假\': action is "flow", not "respond"',
        'line 3: \'我要请3天假\': flow is "leave", not "order"',
        "line 3: '我要请3天假': inputs.days is 3, not 4",
    ]


async def test_a_real_model_may_decide_instead_of_the_script() -> None:
    lines = [{"message": "想休息两天", "decision": DECISION, "expect": {"flow": "leave"}}]
    llm = MockProvider([decides("clarify", question="?")])
    report = await check_utterances(loaded_flows(), read_utterances(written(lines)), llm=llm)
    assert [each.what for each in report.differences] == ["flow"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "u.jsonl:2:2: the text ends too early."),
        ('{"message": "x"}', "u.jsonl:2:1: it lacks 'expect'."),
        (
            '{"message": "x", "expect": {"flows": "y"}}',
            "u.jsonl:2:29: expect.flows is not known here. Did you mean flow?",
        ),
        ('{"message": 5, "expect": {}}', "u.jsonl:2:2: message should be a string."),
        ('{"message": "x", "expect": {"action": "dance"}}', "u.jsonl:2: there is no action 'dance'"),
    ],
)
def test_a_line_that_is_none_has_a_place_and_a_reason(line: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_utterances(f"\n{line}\n", name="u.jsonl")
    assert str(raised.value).startswith(said)


async def test_a_line_may_say_when_it_is_said() -> None:
    day = {"type": "string", "format": "date", "title": "开始日期"}
    schema = {"type": "object", "properties": {"day": day}, "required": ["day"]}
    flow = {**LEAVE, "input_schema": schema, "trigger_patterns": ["请假"], "response": "好"}
    lines = [
        {
            "message": "我要请假",
            "session": "a",
            "now": "2026-11-27T20:00:00-05:00",
            "expect": {"flow": "leave"},
        },
        {
            "message": "明天",
            "session": "a",
            "now": "2026-11-27T20:00:00-05:00",
            "expect": {"inputs": {"day": "2026-11-29"}},
        },
        {
            "message": "明天",
            "session": "b",
            "context": {"timezone": "America/New_York"},
            "now": "2026-11-27T20:00:00-05:00",
            "expect": {"action": "respond"},
        },
        {
            "message": "明天请假",
            "session": "b",
            "now": "2026-11-27T20:00:00-05:00",
            "expect": {"inputs": {"day": "2026-11-28"}},
        },
    ]
    loaded = loaded_flows(flow, basic_settings={"timezone": "Asia/Shanghai"})
    report = await check_utterances(loaded, read_utterances(written(lines)))
    assert [str(each) for each in report.differences] == []


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match="now"):
        read_utterances('{"message": "明天", "now": "2026-11-27T20:00:00", "expect": {}}')


def test_a_time_zone_must_exist() -> None:
    with pytest.raises(ConfigError, match="there is no time zone 'Mars/Base'"):
        loaded_flows(LEAVE, basic_settings={"timezone": "Mars/Base"})
