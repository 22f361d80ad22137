from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import ConfigError, UnreadableTextError
from loom_core.flow.expressions import (
    MISSING,
    ExpressionValues,
    expressions_in,
    fill,
    text_of,
)

_VALUES = ExpressionValues(
    inputs={
        "days": 3,
        "half": 0.5,
        "urgent": True,
        "原因": "感冒",
        "none": None,
        "list": [1, "二"],
        "o": {"a": 1},
    },
    message="我要请假",
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("{$inputs.days}", 3),
        ("$inputs.days", 3),
        ("{$inputs.urgent}", True),
        ("{$inputs.list}", [1, "二"]),
        ("{$inputs.none}", None),
        ("{$inputs.nothing}", None),
        ("请{$inputs.days}天假", "请3天假"),
        ("{$inputs.days}{$inputs.days}", "33"),
        ("{$inputs.urgent}/{$inputs.half}/{$inputs.none}/{$inputs.nothing}", "true/0.5//"),
        ("{$inputs.list} {$inputs.o}", '[1, "二"] {"a": 1}'),
        ("{$message}", "我要请假"),
        ("$message", "我要请假"),
        ("$message!", "$message!"),
        ("$inputs are fine", "$inputs are fine"),
        ("costs $5", "costs $5"),
        ("", ""),
        (r"\{$inputs.days} is {$inputs.days}", "{$inputs.days} is 3"),
        ("{ $inputs.days }", "{ $inputs.days }"),
        (5, 5),
        (None, None),
        ({"a": {"b": ["$inputs.days", "x{$inputs.原因}"]}}, {"a": {"b": [3, "x感冒"]}}),
    ],
)
def test_a_template_is_filled_and_a_lone_placeholder_keeps_its_type(template: object, filled: object) -> None:
    found = fill(template, _VALUES)  # type: ignore[arg-type]
    assert found == filled
    assert type(found) is type(filled)


def test_members_without_a_value_are_left_out_and_null_stays() -> None:
    template = {"reason": "{$inputs.nothing}", "none": "{$inputs.none}", "list": ["{$inputs.nothing}", 1]}
    assert fill(template, _VALUES) == {"none": None, "list": [None, 1]}


@pytest.mark.parametrize(
    ("template", "column"),
    [
        ("请{$inputs.days", 15),
        ("请{$inputs.days }", 15),
        ("{$input.days}", 2),
        ("{$}", 2),
        ("$steps.a", 9),
        ("x" * 100_001, 100_001),
    ],
)
def test_a_wrong_placeholder_is_refused_with_its_column(template: str, column: int) -> None:
    with pytest.raises(UnreadableTextError) as caught:
        [*expressions_in({"body": [template]})]
    assert caught.value.column == column


def test_every_expression_of_a_template_is_known() -> None:
    template = {"b": ["{$inputs.a} and {$steps.s.outputs.o}", {"c": "$context.t"}], "n": 1, "m": "{$message}"}
    assert [each.source for each in expressions_in(template)] == [
        "$inputs.a",
        "$steps.s.outputs.o",
        "$context.t",
        "$message",
    ]


@pytest.mark.hostile("expressions and configurations")
def test_what_is_nested_without_end_is_refused() -> None:
    template: object = "x"
    for _ in range(200):
        template = [template]
    with pytest.raises(ConfigError, match="nested"):
        fill(template, _VALUES)  # type: ignore[arg-type]


def test_values_in_texts_are_written_as_json_and_nothing_for_none() -> None:
    assert [text_of(each) for each in (None, MISSING, "文", 1, 1.5, False, ["文"])] == [
        "", "", "文", "1", "1.5", "false", '["文"]',
    ]  # fmt: skip


@given(_JSON)
def test_a_lone_placeholder_gives_any_value_back_as_it_is(value: object) -> None:
    values = ExpressionValues(inputs={"x": value})  # type: ignore[dict-item]
    for template in ("{$inputs.x}", "$inputs.x"):
        found = fill(template, values)
        assert found == value
        assert type(found) is type(value)
    assert fill({"y": ["{$inputs.x}"]}, values) == {"y": [value]}
    assert fill("a{$inputs.x}", values) == f"a{text_of(value)}"  # type: ignore[arg-type]
    if value is not None and not isinstance(value, str):
        assert json.loads(text_of(value)) == value  # type: ignore[arg-type]


@pytest.mark.hostile("expressions and configurations")
@given(
    st.lists(st.sampled_from(["{$", "$", "{", "}", "inputs.x", "$inputs.x", "\\", "天", " "])).map("".join)
    | st.text()
)
def test_any_text_is_filled_or_a_config_error(text: str) -> None:
    try:
        [*expressions_in(text)]
    except ConfigError:
        return
    filled = fill(text, ExpressionValues(inputs={"x": "v"}))
    if "$" not in text:
        assert filled == text
