"""What a step gives by name: expressions, of which those that end in `?` may lead nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import LoomError
from loom_core.flow.expressions.expression import Expression
from loom_core.flow.expressions.values import MISSING

if TYPE_CHECKING:
    from loom_core.flow.expressions.values import Values
    from loom_core.tools.interface import JsonValue

__all__ = ["NoOutputError", "output_expression", "read_output"]

_MAY_LACK = "?"


class NoOutputError(LoomError):
    """A step has succeeded, and does not give what others build on."""


def output_expression(written: str) -> Expression:
    """The expression of an output, without its mark.

    Raises:
        UnreadableTextError: it is none.
    """
    return Expression.of(written.removesuffix(_MAY_LACK))


def read_output(name: str, written: str, values: Values, *, succeeded: bool) -> JsonValue:
    """The value of an output; None where it may lack and does.

    Args:
        name: of the output.
        written: its expression; with `?` at the end it may lead nowhere.
        values: what it speaks of.
        succeeded: whether the step did: what has failed need not give anything.

    Raises:
        NoOutputError: it leads nowhere, and the step has succeeded.
        UnreadableTextError: it is no expression.
    """
    value = output_expression(written).value(values)
    if value is not MISSING:
        return value
    if succeeded and not written.endswith(_MAY_LACK):
        raise NoOutputError(
            f"Its output {name!r} is not there: {written} leads nowhere in what it was answered.",
            advice=f"Correct the expression, or write {written}? where it may lack.",
        )
    return None
