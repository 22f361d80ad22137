"""Flows as diagrams."""

from __future__ import annotations

import json

from loom_core.flow.config import parse_flow_file
from loom_core.flow.diagram.shape import render_mermaid, shape_of


def _drawn(**keys):
    text = json.dumps({"flow_url": "https://a.example", "flows": [{"flow_id": "请假", **keys}]})
    file = parse_flow_file(text).file
    return render_mermaid(shape_of(file, file.flows[0]))


def test_a_flow_of_one_request_is_a_line():
    drawn = _drawn(endpoint="GET /x")
    assert "flowchart TD" in drawn
    assert '  start(("请假"))' in drawn
    assert '  n1["request: GET /x"]' in drawn
    assert "  start --> n1" in drawn
    assert "  n1 --> finish" in drawn
    assert 'POST flow_url"]' in _drawn()


def test_every_way_through_the_steps_is_drawn():
    drawn = _drawn(
        steps=[
            {"stepId": "问", "ask": "几天？"},
            {
                "stepId": "确认",
                "confirm": "提交吗？",
                "onFailure": [{"type": "goto", "stepId": "问"}],
                "onSuccess": [{"type": "end", "criteria": ["$message == 'x'"]}],
            },
            {
                "stepId": "p",
                "parallel": [[{"stepId": "a", "tool": "s:t"}], [{"stepId": "b", "operation": "GET /b"}]],
            },
            {"stepId": "c", "confirm": "?"},
            {
                "stepId": "d",
                "operation": "POST /d",
                "onFailure": [{"type": "retry", "retryLimit": 3, "criteria": ["$statusCode == 503"]}],
            },
            {"stepId": "e", "successCriteria": ["$message != ''"], "onSuccess": [{"type": "end"}]},
            {"stepId": "f", "say": "好的。"},
        ]
    )
    lines = [line.strip() for line in drawn.splitlines()]
    assert 'n1[/"问: 几天？"/]' in lines
    assert 'n2{"确认: 提交吗？"}' in lines
    assert "n2 -.-> n1" in lines
    assert "n2 --> n3" in lines
    assert "n2 -->|\"$message == 'x'\"| finish" in lines
    assert 'subgraph sn3["p"]' in lines
    assert {"n3 --> n9", "n3 --> n10", "n9 --> n8", "n10 --> n8", "n8 --> n4"} <= set(lines)
    assert 'n4 -.->|"no"| finish' in lines
    assert 'n5 -.->|"retry ×3 $statusCode == 503"| n5' in lines
    assert 'n6{{"e"}}' in lines
    assert lines.count("n6 --> finish") == 1
    assert 'n7("f: 好的。")' in lines


def test_cases_and_items_are_drawn_with_what_decides_them():
    one = {"stepId": "a", "tool": "s:t"}
    cases = [{"when": "$message == 'x'", "steps": [one]}, {"steps": [{**one, "stepId": "b"}]}]
    lines = [line.strip() for line in _drawn(steps=[{"stepId": "p", "switch": cases}]).splitlines()]
    assert {"n1 -->|\"$message == 'x'\"| n3", 'n1 -->|"else"| n4', "n3 --> n2", "n2 --> finish"} <= {*lines}
    lines = [line.strip() for line in _drawn(steps=[{"stepId": "p", "switch": cases[:1]}]).splitlines()]
    assert 'n1 -->|"else"| n2' in lines
    each = {"stepId": "p", "for_each": {"in": "$context.ids", "steps": [one]}}
    assert 'n1 -->|"each $context.ids"| n3' in _drawn(steps=[each])


def test_a_task_of_a_model_is_drawn() -> None:
    assert 'n1[\\"a: Sort it."\\]' in _drawn(steps=[{"stepId": "a", "llm": {"prompt": "Sort it."}}])


def test_a_text_cannot_end_its_quotation_or_bring_marks_of_its_own():
    drawn = _drawn(name='a"]; click x\n<b>`', endpoint="GET /x")
    assert '(("a#34;]#59; click x #60;b#62;#96;"))' in drawn
    assert len(max(drawn.splitlines(), key=len)) < 400
    assert "…" in _drawn(name="长" * 500)
