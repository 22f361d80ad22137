from __future__ import annotations

from typing import Any

import pytest

from loom_core.flow.responses.phrases import Phrases
from loom_core.flow.understanding.reply_parser import (
    find_corrections,
    find_refused_correction,
    find_restated_inputs,
    is_retraction,
    parse_reply,
)
from loom_core.runs.run import Pending

INPUTS: dict[str, Any] = {
    "days": {"type": "integer", "title": "天数", "minimum": 1, "maximum": 30},
    "reason": {"type": "string", "title": "事由"},
}
KNOWN = {"days": 3, "reason": "感冒"}
APPROVAL = Pending(id="x", kind="approval", tool="f", arguments=KNOWN)


@pytest.mark.parametrize(
    "message",
    [
        "改为两天",
        "改為兩天",
        "換成兩天",
        "天數應該是兩天",
        "天數改成兩天",
        "改两天",
        "改兩天",
        "是的，但是改成两天",
        "好的，不过先改成兩天",
        "不对，是两天",
        "不對，應該是兩天",
        "不是三天，是兩天",
        "ok, but make it 2",
    ],
)
def test_a_correction_is_understood_in_both_scripts_and_behind_a_yes_or_no(message: str) -> None:
    said = parse_reply(message, APPROVAL, inputs={"properties": INPUTS})
    assert (said.kind, dict(said.values)) == ("correct", {"days": 2})


def test_a_text_keeps_its_own_characters() -> None:
    assert find_corrections("事由改成發燒", INPUTS, known=KNOWN, asked={}) == {"reason": "發燒"}


@pytest.mark.parametrize("message", ["不对", "是的", "好的，但是改一下", "天数改一些"])
def test_what_names_no_value_corrects_nothing(message: str) -> None:
    assert find_corrections(message, INPUTS, known=KNOWN, asked={}) == {}


def test_a_value_that_will_not_do_is_told_from_none() -> None:
    refused = find_refused_correction("改成五十天", INPUTS, known=KNOWN)
    assert refused is not None
    assert (refused.name, refused.value, refused.low, refused.high) == ("days", 50, 1, 30)
    assert find_refused_correction("改成五天", INPUTS, known=KNOWN) is None
    assert parse_reply("改成五十天", APPROVAL, inputs={"properties": INPUTS}).refused == refused


LEAVE: dict[str, Any] = {
    "days": {"type": "integer", "title": "天数", "minimum": 1, "maximum": 30},
    "start": {"type": "string", "title": "从哪天开始"},
    "kind": {"type": "string", "title": "假别", "enum": ["年假", "病假"]},
}
TAKEN = {"days": 3, "start": "明天", "kind": "年假"}


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("change it to December 5", {"start": "December 5"}),
        ("make it the 4th", {"start": "the 4th"}),
        ("make it Monday", {"start": "Monday"}),
        ("换成3号", {"start": "3号"}),
        ("no, make it 2 days", {"days": 2}),
        ("不是三天是两天", {"days": 2}),
        ("我是说病假", {"kind": "病假"}),
        ("我說的是病假", {"kind": "病假"}),
        ("actually never mind", {}),
        ("改成什么好呢", {}),
    ],
)
def test_a_correction_changes_the_input_that_is_meant(message: str, values: dict[str, Any]) -> None:
    assert find_corrections(message, LEAVE, known=TAKEN, asked={}) == values


@pytest.mark.parametrize("message", ["actually never mind", "不，我是说算了", "make it stop"])
def test_what_begins_like_a_correction_may_end_it(message: str) -> None:
    assert is_retraction(message)
    approval = Pending(id="x", kind="approval", tool="f", arguments=TAKEN)
    assert parse_reply(message, approval, inputs={"properties": LEAVE}).kind == "cancel"


def test_what_is_asked_for_is_corrected_before_what_is_known() -> None:
    inputs: dict[str, Any] = {
        "date": {"type": "string", "title": "日期"},
        "time": {"type": "string", "title": "时间", "pattern": "^(?:下午)?[0-9]{1,2}点$"},
    }
    asked = {"time": inputs["time"]}
    assert find_corrections("换成下午3点", inputs, known={"date": "周六"}, asked=asked) == {"time": "下午3点"}


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("病假", {"kind": "病假"}),
        ("两天", {"days": 2}),
        ("不，两天", {"days": 2}),
        ("不，2", {"days": 2}),
        ("no, two days", {"days": 2}),
        ("好的，兩天", {"days": 2}),
        ("三天", {"days": 3}),
        ("2", {}),
        ("下周一", {}),
        ("昨天请了两天假", {}),
        ("你先帮我看看两天的", {}),
    ],
)
def test_a_value_by_itself_corrects_what_has_that_form(message: str, values: dict[str, Any]) -> None:
    assert find_restated_inputs(message, LEAVE, known=TAKEN) == values


def test_a_value_with_a_pattern_by_itself_is_a_correction() -> None:
    inputs: dict[str, Any] = {**LEAVE, "start": {"type": "string", "pattern": "^(?:明天|下周[一二三])$"}}
    approval = Pending(id="x", kind="approval", tool="f", arguments=TAKEN)
    for message in ("下周一", "下週一開始", "不，从下周一吧"):
        said = parse_reply(message, approval, inputs={"properties": inputs})
        assert (said.kind, [*said.values]) == ("correct", ["start"])


def test_an_input_that_is_called_otherwise_is_known_by_its_form() -> None:
    inputs: dict[str, Any] = {
        "phone": {"type": "string", "title": "手机号", "pattern": "^1[0-9]{10}$"},
        "note": {"type": "string", "title": "备注"},
    }
    known = {"phone": "13900139000", "note": "无"}
    assert find_corrections("电话改成13800000000", inputs, known=known, asked={}) == {"phone": "13800000000"}
    assert find_corrections("地址改成人民路", inputs, known=known, asked={}) == {}


def test_it_is_asked_which_input_is_meant() -> None:
    two = {
        "properties": {"a": {"type": "integer", "title": "成人"}, "b": {"type": "integer", "title": "儿童"}}
    }
    pending = Pending(id="x", kind="approval", tool="f", arguments={"a": 1, "b": 2})
    said = parse_reply("改成三", pending, inputs=two)
    assert (said.kind, dict(said.either)) == ("unclear", {"a": 3, "b": 3})
    assert Phrases("zh").ask_which_input(said.either, two) == (
        "您要改的是哪一项：成人、儿童？请说“把……改成3”。"
    )
