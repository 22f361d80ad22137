"""Criteria as Arazzo has them: a condition, a regular expression or a query."""

from __future__ import annotations

from typing import Literal, Protocol

from loom_core.errors import UnreadableTextError
from loom_core.flow.expressions.condition import Condition
from loom_core.flow.expressions.expression import Expression, check_expression
from loom_core.flow.expressions.json_query import check_query, query
from loom_core.flow.expressions.template import text_of
from loom_core.flow.expressions.values import MISSING, Values
from loom_core.tools.patterns import linear_search

__all__ = ["CriterionLike", "check_criterion", "criterion_holds"]


class CriterionLike(Protocol):
    """Something that has to hold."""

    @property
    def condition(self) -> str:
        """What."""
        ...

    @property
    def type(self) -> Literal["simple", "regex", "jsonpath"]:
        """How that is meant."""
        ...

    @property
    def context(self) -> str:
        """An expression: what `regex` and `jsonpath` look at."""
        ...


def criterion_holds(criterion: CriterionLike, values: Values) -> bool:
    """Whether a criterion holds.

    `regex` searches a text, or the JSON of what is none; `jsonpath` holds if it finds anything. Neither holds
    of what is not there.

    Raises:
        UnreadableTextError: it cannot be read.
        InvalidInputError: a query cannot be asked of an answer that is nested too deeply.
    """
    if criterion.type == "simple":
        return Condition.of(criterion.condition).holds(values)
    value = Expression.of(criterion.context).value(values)
    if value is MISSING:
        return False
    if criterion.type == "jsonpath":
        return bool(query(criterion.condition, value, limit=1))
    search = linear_search(criterion.condition)
    if search is None:
        raise _no_pattern(criterion.condition)
    return search(text_of(value))


def check_criterion(criterion: CriterionLike) -> None:
    """Checks that a criterion can be read.

    Raises:
        UnreadableTextError: it cannot; a `ConfigError` with line and column in its condition or context.
    """
    if criterion.type == "simple":
        Condition.of(criterion.condition)
        return
    check_expression(criterion.context)
    if criterion.type == "jsonpath":
        check_query(criterion.condition)
    elif linear_search(criterion.condition) is None:
        raise _no_pattern(criterion.condition)


def _no_pattern(pattern: str) -> UnreadableTextError:
    return UnreadableTextError.at(
        pattern,
        0,
        "it is no regular expression that can be used: look-around and back references are not known",
    )
