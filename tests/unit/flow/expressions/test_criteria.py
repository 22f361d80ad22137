from __future__ import annotations

from types import SimpleNamespace

import pytest

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.flow.config.models_endpoint import Criterion
from loom_core.flow.expressions import ExpressionValues, check_criterion, criterion_holds

_VALUES = ExpressionValues(
    response=SimpleNamespace(
        status=200,
        headers={"Content-Type": "application/json"},
        body={"数据": [{"名": "请假"}], "text": "[1]"},
    )
)


@pytest.mark.parametrize(
    ("criterion", "holds"),
    [
        (Criterion(condition="$statusCode == 200"), True),
        (Criterion(condition="$statusCode == 404"), False),
        (
            Criterion(
                condition="^application/(json|xml)", type="regex", context="$response.header.content-type"
            ),
            True,
        ),
        (Criterion(condition="^2\\d\\d$", type="regex", context="$statusCode"), True),
        (Criterion(condition="请假", type="regex", context="$response.body"), True),
        (Criterion(condition=".*", type="regex", context="$response.body#/nothing"), False),
        (Criterion(condition="$.数据[?@.名 == '请假']", type="jsonpath", context="$response.body"), True),
        (Criterion(condition="$.数据[?@.名 == '出差']", type="jsonpath", context="$response.body"), False),
        (Criterion(condition="$[?count(@) > 0]", type="jsonpath", context="$response.body#/数据"), True),
        (Criterion(condition="$[0]", type="jsonpath", context="$response.body#/text"), False),
        (Criterion(condition="$", type="jsonpath", context="$response.body#/nothing"), False),
    ],
)
def test_a_criterion_of_each_kind_holds_or_not(criterion: Criterion, holds: bool) -> None:
    check_criterion(criterion)
    assert criterion_holds(criterion, _VALUES) is holds


@pytest.mark.parametrize(
    "criterion",
    [
        Criterion(condition="$statusCode =="),
        Criterion(condition="(", type="regex", context="$message"),
        Criterion(condition="(?=a)", type="regex", context="$message"),
        Criterion(condition="a", type="regex"),
        Criterion(condition="a", type="regex", context="message"),
        Criterion(condition="$[", type="jsonpath", context="$message"),
        Criterion(condition="$", type="jsonpath"),
    ],
)
def test_a_criterion_that_cannot_be_read_is_refused(criterion: Criterion) -> None:
    with pytest.raises(ConfigError):
        check_criterion(criterion)
    with pytest.raises(ConfigError):
        criterion_holds(criterion, ExpressionValues(message="x"))


@pytest.mark.hostile("HTTP answers")
def test_an_answer_nested_too_deeply_for_a_query_is_said_so() -> None:
    body: object = "x"
    for _ in range(500):
        body = {"a": body}
    values = ExpressionValues(response=SimpleNamespace(status=200, headers={}, body=body))
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        criterion_holds(Criterion(condition="$..b", type="jsonpath", context="$response.body"), values)
