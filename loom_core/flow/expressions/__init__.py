"""Expressions, templates and conditions over the values of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.flow.expressions.condition import (
        Condition,
        IncomparableError,
        all_hold,
        check_criterion,
        criterion_holds,
    )
    from loom_core.flow.expressions.expression import (
        MISSING,
        Expression,
        ExpressionValues,
        Missing,
        check_expression,
        evaluate,
        read_output,
    )
    from loom_core.flow.expressions.json_query import query
    from loom_core.flow.expressions.template import (
        check_url,
        expressions_in,
        fill,
        fill_header,
        fill_url,
        text_of,
    )

__all__ = [
    "MISSING",
    "Condition",
    "Expression",
    "ExpressionValues",
    "IncomparableError",
    "Missing",
    "all_hold",
    "check_criterion",
    "check_expression",
    "check_url",
    "criterion_holds",
    "evaluate",
    "expressions_in",
    "fill",
    "fill_header",
    "fill_url",
    "query",
    "read_output",
    "text_of",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
