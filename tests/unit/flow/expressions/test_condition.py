from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import ConfigError, UnreadableTextError
from loom_core.flow.expressions import Condition, ExpressionValues, IncomparableError

_VALUES = ExpressionValues(
    inputs={
        "days": 3,
        "zero": 0,
        "原因": "感冒",
        "no": False,
        "none": None,
        "list": [1],
        "empty": {},
        "big": 10**40,
    },
    response=SimpleNamespace(
        status=200, headers={"X-Count": "12", "X-Id": "007"}, body={"code": 0, "id": "AB"}
    ),
    message="hi",
)


@pytest.mark.parametrize(
    "condition",
    [
        "$statusCode == 200",
        "$statusCode==200&&$response.body#/code==0",
        "$response.body#/code != 1 && $inputs.days >= 3",
        "$inputs.原因 == '感冒'",
        "'感冒' == $inputs.原因",
        "$response.body#/id == 'ab'",  # Arazzo: whatever their case
        "$response.header.x-count > 2",
        "$response.header.x-count == 12.0",
        "$response.header.x-id != 7",
        "$inputs.nothing == null",
        "$inputs.none == null",
        "!$inputs.nothing",
        "!$inputs.zero && !$inputs.no && !$inputs.empty",
        "$inputs.list",
        "!!$inputs.days",
        "!!!$inputs.no",
        "1 < 2 && 2 <= 2 && 3 > 2.5 && 2 >= 2",
        "-1 < 0 && 1e3 == 1000",
        "'2026-01-02' < '2026-01-10'",
        "false || true && true",
        "(false || true) && true",
        "true || false && false",
        "!(1 == 2)",
        "!false == true",
        "'It''s' == \"it's\"",
        '"a\\"b" == \'a"b\'',
        "'' == ''",
        "$inputs.big > 1e39",
        "$inputs.list == $inputs.list",
        "$inputs.list != $inputs.empty",
        "$message == 'HI'",
        " \n $statusCode\t== 200 ",
    ],
)
def test_a_condition_holds(condition: str) -> None:
    assert Condition.of(condition).holds(_VALUES)


@pytest.mark.parametrize(
    "condition",
    [
        "$statusCode == 404",
        "$inputs.no == 0",
        "$inputs.zero == false",
        "true == 1",
        "true == 'true'",
        "null == 0",
        "null == false",
        "$inputs.list == 1",
        "$inputs.empty == $inputs.list",
        "$inputs.原因 == '感'",
        "''",
        "0",
        "null",
        "false",
        "$inputs.none",
        "$inputs.nothing != null && $inputs.nothing < 1",
    ],
)
def test_a_condition_does_not_hold(condition: str) -> None:
    assert not Condition.of(condition).holds(_VALUES)


@pytest.mark.parametrize(
    "condition", ["$inputs.nothing < 1", "1 >= $inputs.none", "'a' < 1", "$inputs.list < 2", "!(null < 3)"]
)
def test_nobody_says_of_what_is_not_there_that_it_is_before_something(condition: str) -> None:
    with pytest.raises(IncomparableError, match="cannot be compared"):
        Condition.of(condition).holds(_VALUES)


@pytest.mark.parametrize(
    ("condition", "column"),
    [
        ("", 1),
        ("   ", 4),
        ("$statusCode =", 13),
        ("$statusCode = 200", 13),
        ("$statusCode == ", 16),
        ("== 200", 1),
        ("(1 == 1", 8),
        ("1 == 1)", 7),
        ("1 == 1 == 1", 8),
        ("1 && ", 6),
        ("1 & 1", 3),
        ("'abc", 1),
        ('"\\x"', 1),
        ("ok == 1", 1),
        ("trueish", 1),
        ("__import__('os')", 1),
        ("$inputs.a.__class__()", 20),
        ("01", 1),
        ("1.", 1),
        ("$steps.a", 9),
        ("(" * 51 + "1" + ")" * 51, 51),
        ("1" + " && 1" * 1000, 4001),
    ],
)
def test_what_is_no_condition_is_refused_with_the_column(condition: str, column: int) -> None:
    with pytest.raises(UnreadableTextError) as caught:
        Condition.of(condition)
    assert caught.value.column == column


def test_a_condition_knows_what_it_names() -> None:
    condition = Condition.of("$inputs.a == 1 && !($steps.s.outputs.o || $message == 'x')")
    assert [each.source for each in condition.expressions] == ["$inputs.a", "$steps.s.outputs.o", "$message"]


def test_texts_that_are_alike_within_lists_and_objects_are_alike() -> None:
    values = ExpressionValues(
        inputs={"a": {"x": ["Y", 1, None]}, "b": {"x": ["y", 1.0, None]}, "c": {"x": ["y", True, None]}}
    )
    assert Condition.of("$inputs.a == $inputs.b").holds(values)
    assert Condition.of("$inputs.a != $inputs.c").holds(values)
    assert Condition.of("$inputs.a.x != $inputs.a").holds(values)


_PIECES = [
    *(
        "$inputs.x",
        "$inputs.none",
        "$statusCode",
        "$message",
        "1",
        "-2.5",
        "'a'",
        '"b"',
        "true",
        "null",
        "天",
    ),
    *("==", "!=", "<", "<=", ">", ">=", "&&", "||", "!", "(", ")", " ", "'", "$", "1e9"),
]


@pytest.mark.hostile("expressions and configurations")
@given(
    st.lists(st.sampled_from(_PIECES), max_size=15).map("".join) | st.text(max_size=30),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()),
)
def test_any_text_is_a_condition_or_a_config_error_and_any_value_can_be_judged(
    text: str, value: object
) -> None:
    try:
        condition = Condition.of(text)
    except ConfigError:
        return
    try:
        held = condition.holds(ExpressionValues(inputs={"x": value}))  # type: ignore[dict-item]
    except IncomparableError:
        return
    assert held in {True, False}


@pytest.mark.hostile("expressions and configurations")
def test_deep_nesting_by_negation_ends() -> None:
    assert Condition.of("!" * 3000 + "true").holds(ExpressionValues())
