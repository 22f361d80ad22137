from __future__ import annotations

import json
from typing import Any

import pytest

from loom_core.flow.config import parse_flow_file
from loom_core.flow.config.localization import localize
from loom_core.flow.understanding.language import in_language
from tests.unit.flow.conftest import talking

_FLOW: dict[str, Any] = {
    "flow_id": "leave",
    "name": "请假 / Leave",
    "trigger_patterns": ["请假", "take leave"],
    "input_schema": {
        "type": "object",
        "properties": {"days": {"type": "integer", "title": "天数 / days"}, "note": True},
        "required": ["days"],
    },
    "steps": [
        {"stepId": "which", "ask": {"question": "哪天起？ / From which day?"}},
        {
            "stepId": "sure",
            "confirm": "从{$steps.which.outputs.answer}起？ / From {$steps.which.outputs.answer}?",
        },
        {"stepId": "route", "switch": [{"steps": [{"stepId": "hello", "say": "您好！ / Hello!"}]}]},
        {
            "stepId": "both",
            "parallel": [
                [{"stepId": "a", "description": "查 / look", "operation": "GET /a"}],
                [{"stepId": "b", "operation": {"url": "/b", "failure": "不行 / no"}}],
            ],
        },
    ],
    "response": "已提交 {$inputs.days} 天 / Submitted: {$inputs.days}",
}


@pytest.mark.parametrize(
    ("text", "chinese", "english"),
    [
        ("天数 / days", "天数", "days"),
        ("days / 天数", "天数", "days"),
        ("天数", "天数", "天数"),
        ("kg / m", "kg / m", "kg / m"),
        ("甲 / 乙", "甲 / 乙", "甲 / 乙"),
        ("上午 / am / pm", "上午 / am / pm", "上午 / am / pm"),
        ("天数/days", "天数/days", "天数/days"),
        ("", "", ""),
    ],
)
def test_of_a_text_in_both_languages_one_is_told(text: str, chinese: str, english: str) -> None:
    assert (in_language(text, "zh"), in_language(text, "en")) == (chinese, english)


def test_a_file_says_everything_for_people_in_one_language() -> None:
    written = {
        "flow_url": "http://127.0.0.1:9",
        "basic_settings": {"greeting": "您好 / Hello"},
        "flows": [_FLOW],
    }
    file = parse_flow_file(json.dumps(written)).file
    for language, gone in (
        ("zh", "From|Leave|days of|Submitted|Hello|look"),
        ("en", "请假|天数|哪天起|已提交|您好|不行"),
    ):
        told = localize(file, language)
        flow = told.flows[0].model_dump(mode="json", exclude={"trigger_patterns"})
        text = json.dumps([flow, told.basic_settings.greeting], ensure_ascii=False)
        assert [each for each in gone.split("|") if each in text] == []
    assert file.flows[0].title == "请假 / Leave"


async def test_each_conversation_is_told_in_its_language() -> None:
    async with talking(_FLOW) as talk:
        assert (await talk("我要请假")).text == "请假还需要：天数。"
        assert (await talk("三天")).text == "哪天起？"
        assert (await talk("周一")).text.splitlines() == ["从周一起？", "天数：3"]
        assert (await talk("好的")).text == "您好！\n\n已提交 3 天"
        assert (await talk("你好")).text == "您好。我可以帮您办理：请假。"
    async with talking(_FLOW) as talk:
        assert (await talk("I want to take leave")).text == "Leave needs: days."
        assert (await talk("3 days")).text == "From which day?"
        assert (await talk("Monday")).text.splitlines() == ["From Monday?", "days: 3"]
        assert (await talk("yes")).text == "Hello!\n\nSubmitted: 3"
