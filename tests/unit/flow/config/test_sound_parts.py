"""One part of a wrong form hides nothing of the others, and what it seems to break is not told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loom_core.flow.config import flow_file_problems, flow_file_warnings

FULL = {
    "flow_url": "https://api.example",
    "model": {"provider": "deepseek", "fallbacks": ["ollama/qwen3"]},
    "net": {"allow": ["10.0.0.0/8"]},
    "retrieve_knowledge_url": "/know",
    "flows": [
        {
            "flow_id": "请假",
            "trigger_patterns": ["我要请假", "请(?P<天数>\\d+)天假"],
            "input_schema": {"type": "object", "properties": {"天数": {"type": "integer"}}},
            "steps": [
                {
                    "stepId": "看",
                    "operation": {"method": "GET", "url": "/left"},
                    "outputs": {"余": "$response.body"},
                },
                {"stepId": "问", "ask": {"question": "?", "into": "天数"}},
                {
                    "stepId": "并",
                    "parallel": [
                        [{"stepId": "甲", "tool": "notify"}],
                        [{"stepId": "乙", "workflowId": "订单"}],
                    ],
                    "onFailure": [
                        {"type": "retry", "criteria": ["$steps.看.outputs.余 > 1"]},
                        {"type": "end"},
                    ],
                },
            ],
            "response": "{$steps.看.outputs.余}",
        },
        {"flow_id": "订单", "endpoint": "GET /orders", "outputs": {"号": "$response.body"}},
    ],
    "skills": [{"id": "s", "condition": "c", "action": "a", "tools": ["notify"]}],
    "system_tools": [{"name": "notify", "description": "d", "endpoint": "POST /n"}],
}


@pytest.fixture
def told(tmp_path):
    """Return the messages about a file, without their positions."""

    def look(value) -> list[str]:
        path = tmp_path / "flow.json"
        path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
        return [each.message for each in flow_file_problems(path)]

    return look


def changed(path, value):
    """`FULL` with something else at a path."""
    whole = json.loads(json.dumps(FULL))
    at = whole
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    return whole


def every_path(value, path=()):
    if path:
        yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in parts:
        yield from every_path(each, (*path, key))


def test_the_file_of_these_tests_is_in_order(told):
    assert told(FULL) == []


@pytest.mark.slow
def test_whatever_stands_anywhere_is_told_and_never_stops_the_rest(told):
    for path in every_path(FULL):
        for junk in (None, 5, "?", [], {}, [5], {"?": 5}):
            found = told(changed(path, junk))
            assert len(found) < 12, (path, junk, found)
            assert all(found)


@pytest.mark.parametrize(
    ("path", "value", "only"),
    [
        (("flows", 0, "steps", 0, "operation", "method"), "FETCH", "operation.method should be"),
        (("flows", 0, "steps", 0, "operation"), {"methd": "GET", "url": "/left"}, "methd is not known"),
        (("flows", 0, "steps", 2, "parallel", 0, 0, "tool"), 5, "tool should be a string"),
        (("flows", 0, "steps", 2, "onFailure", 1, "type"), "jump", "type should be 'end'"),
        (("flows", 0, "input_schema"), 5, "input_schema should be an object"),
        (("flows", 1, "endpoint"), {"body": 1, "methd": "GET"}, "methd is not known"),
        (("flows", 1, "flow_id"), "a b", "an id is 1 to 64"),
        (("flow_url",), 5, "flow_url should be a string"),
        (("system_tools", 0, "description"), 5, "description should be a string"),
        (("skills", 0, "condition"), 5, "condition should be a string"),
    ],
)
def test_what_refers_to_a_broken_part_is_not_blamed(told, path, value, only):
    found = told(changed(path, value))
    if path != ("flows", 1, "flow_id"):  # what runs the flow of this id does not find it
        assert len(found) == 1, found
    assert any(only in each for each in found), found


def test_of_a_broken_flow_the_sound_steps_and_patterns_are_checked(told):
    file = changed(("flows", 0, "steps", 2, "onFailure", 1, "type"), "jump")
    file["flows"][0]["trigger_patterns"] = ["", "(", "(?P<日>x)"]
    file["flows"][0]["response"] = "{$steps.没有.outputs.x}"
    found = told(file)
    assert [
        any(each in one for one in found) for each in ("'end'", "trigger_patterns[0]", "not closed", "'日'")
    ] == [True] * 4
    assert any("there is no step '没有'" in each for each in found)


@pytest.mark.parametrize("whole", ["flows", "skills", "system_tools"])
def test_where_too_much_is_wrong_only_that_is_told(told, whole):
    assert told(changed((whole,), {"a": 1})) == [f"{whole} should be a list."]


def test_a_flow_a_skill_and_a_tool_are_named_with_what_is_wrong_in_them(told):
    file = changed(("flows", 0, "trigger_patterns"), ["("])
    file["skills"][0]["tools"] = ["notfy"]
    file["system_tools"][0]["endpoint"] = "POST /n/{$inputs.id}"
    found = told(file)
    assert [each.partition(":")[0] for each in found] == ["flow '请假'", "skill 's'", "tool 'notify'"]


def test_variables_that_are_not_set_are_reported_separately(tmp_path: Path, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    monkeypatch.setenv("SITE_KEY", "x")
    path = tmp_path / "flow.json"
    headers = {"Authorization": "Bearer env:NO_SUCH_KEY", "X-Key": "env:SITE_KEY"}
    path.write_text(
        json.dumps(
            {"flows": [{"flow_id": "a", "endpoint": {"url": "https://a.example", "headers": headers}}]}
        )
    )
    assert flow_file_problems(path) == []
    (warning,) = flow_file_warnings(path)
    assert "NO_SUCH_KEY is not set" in warning.message
    assert warning.column == path.read_text().index('"Authorization"') + 1
