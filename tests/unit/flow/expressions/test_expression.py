from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import ConfigError, UnreadableTextError
from loom_core.flow.expressions import MISSING, Expression, ExpressionValues, check_expression, evaluate


@dataclass(frozen=True)
class _Response:
    status: int = 201
    headers: dict[str, str] = field(default_factory=lambda: {"X-Count": "5", "Location": "/o/1"})
    body: object = field(
        default_factory=lambda: {"数据": [{"id": 1}, None], "a/b": {"~": "t", "": "e"}, "01": 1}
    )


_VALUES = ExpressionValues(
    inputs={"days": 3, "原因": "感冒", "order": {"lines": [1, {"b-c": "x"}]}, "any.name": True, "none": None},
    steps={"提交": {"id": 7}, "a-b": {"r": {"n": [10]}}},
    outputs={"id": "L1"},
    response=_Response(),  # type: ignore[arg-type]
    context={"tenantId": "t1"},
    message="我要请假",
)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("$inputs.days", 3),
        ("$inputs.原因", "感冒"),
        ("$inputs.order.lines[1].b-c", "x"),
        ("$inputs.order#/lines/1/b-c", "x"),
        ('$inputs["any.name"]', True),
        ("$inputs['any.name']", True),
        ("$inputs.none", None),
        ("$steps.提交.outputs.id", 7),
        ("$steps.a-b.outputs.r.n[0]", 10),
        ("$steps.a-b.outputs.r#/n/0", 10),
        ("$steps.a-b.outputs", {"r": {"n": [10]}}),
        ("$outputs.id", "L1"),
        ("$response.body#/数据/0/id", 1),
        ("$response.body.数据[0].id", 1),
        ("$response.body#/a~1b/~0", "t"),
        ("$response.body#/a~1b/", "e"),
        ("$response.body#", _Response().body),
        ("$response.header.x-count", "5"),
        ("$response.header.LOCATION", "/o/1"),
        ("$statusCode", 201),
        ("$context.tenantId", "t1"),
        ("$context", {"tenantId": "t1"}),
        ("$message", "我要请假"),
    ],
)
def test_an_expression_names_a_value_by_keys_in_any_script(expression: str, value: object) -> None:
    assert evaluate(expression, _VALUES) == value
    assert Expression.of(expression).value(_VALUES) == value


@pytest.mark.parametrize(
    "expression",
    [
        "$inputs.nothing",
        "$inputs.days.more",
        "$inputs.原因[0]",
        "$inputs.order.lines[2]",
        "$inputs.order.lines.b",
        "$inputs.order.lines#/01",
        "$inputs.order.lines#/-1",
        "$inputs.order.lines#/１",
        "$inputs.order.lines[99999999999999999999]",
        "$steps.unknown.outputs.id",
        "$response.header.nothing",
        "$response.body#/数据/2",
    ],
)
def test_what_leads_nowhere_is_missing_which_is_not_null(expression: str) -> None:
    assert Expression.of(expression).value(_VALUES) is MISSING
    assert evaluate(expression, _VALUES) is None


def test_without_a_response_all_of_it_is_missing() -> None:
    for expression in ("$statusCode", "$response.body", "$response.header.x"):
        assert Expression.of(expression).value(ExpressionValues()) is MISSING


@pytest.mark.parametrize(
    ("expression", "column"),
    [
        ("", 1),
        ("days", 1),
        ("$input.days", 1),
        ("$inputsdays", 1),
        ("$inputs.days ", 13),
        ("$inputs.", 8),
        ("$inputs.a b", 10),
        ("$inputs[x]", 8),
        ("$inputs[-1]", 8),
        ('$inputs["a\\q"]', 9),
        ("$inputs#x", 9),
        ("$inputs#/~2", 9),
        ("$steps.a", 9),
        ("$steps.a.output.b", 18),
        ("$response", 10),
        ("$response.bodies", 10),
        ("$response.header", 17),
        ("$message.x", 9),
        ("$inputs" + ".a" * 60, 1),
        ("$inputs." + "a" * 1001, 1),
    ],
)
def test_what_is_no_expression_is_refused_with_the_column(expression: str, column: int) -> None:
    with pytest.raises(UnreadableTextError) as caught:
        check_expression(expression)
    assert caught.value.column == column


_PIECES = [
    "$",
    "inputs",
    "steps",
    "outputs",
    "response",
    "body",
    "header",
    ".",
    "[",
    "]",
    "0",
    '"',
    "'",
    "#",
    "/",
    "~",
]


@pytest.mark.hostile("expressions and configurations")
@given(
    st.lists(st.sampled_from([*_PIECES, "$inputs", "$steps.a", "天", " ", "\\"]), max_size=10).map("".join)
    | st.text()
)
def test_any_text_is_an_expression_or_a_config_error(text: str) -> None:
    try:
        expression = Expression.of(text)
    except ConfigError:
        return
    assert expression.source == text
    expression.value(_VALUES)
