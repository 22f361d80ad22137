r"""Templates: texts and JSON with placeholders such as `{$inputs.days}`.

A value that is one placeholder, or one expression by itself (as in Arazzo), keeps the type of what it names.
`\{$` is a brace and a dollar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from loom_core.errors import UnreadableTextError
from loom_core.flow.expressions.expression import Expression, read_expression
from loom_core.flow.expressions.values import MISSING, Missing, Values

if TYPE_CHECKING:
    from loom_core.tools.interface import JsonValue

__all__ = ["Piece", "check_template", "expressions_in", "fill", "pieces_of", "text_of"]

Piece: TypeAlias = str | Expression
"""A stretch of plain text, or a placeholder."""

_LONGEST = 100_000
_DEEPEST = 100
_BARE = re.compile(r"\$(?:(?:inputs|outputs|steps|response|context)(?:[.\[#]\S*)?|statusCode|message)")


def fill(template: JsonValue, values: Values) -> JsonValue:
    """A template with its placeholders filled.

    In a text, what is not there leaves nothing, and what is no text is written as JSON. A member of an object
    whose value is a placeholder for what is not there is left out; elsewhere it is null.

    Raises:
        UnreadableTextError: a placeholder is none.
    """
    value = _filled(template, values, 0)
    return None if value is MISSING else value


def _filled(template: JsonValue, values: Values, depth: int) -> JsonValue | Missing:
    if depth > _DEEPEST:
        raise UnreadableTextError("it is nested too deeply", line=1, column=1)
    if isinstance(template, str):
        pieces = pieces_of(template)
        if len(pieces) == 1 and isinstance(pieces[0], Expression):
            return pieces[0].value(values)
        return "".join(each if isinstance(each, str) else text_of(each.value(values)) for each in pieces)
    if isinstance(template, Mapping):
        filled = ((name, _filled(each, values, depth + 1)) for name, each in template.items())
        return {name: each for name, each in filled if each is not MISSING}
    if isinstance(template, Sequence):
        items = (_filled(each, values, depth + 1) for each in template)
        return [None if each is MISSING else each for each in items]
    return template


def text_of(value: JsonValue | Missing) -> str:
    """A value as it stands in a text: texts as they are, nothing for null and what is missing, else JSON."""
    if value is MISSING or value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def check_template(template: JsonValue) -> None:
    """Checks every placeholder of a template.

    Raises:
        UnreadableTextError: one is none; a `ConfigError` with line and column in its text.
    """
    for _ in expressions_in(template):
        pass


def expressions_in(template: JsonValue) -> Iterator[Expression]:
    """The expressions in a template, in order.

    Raises:
        UnreadableTextError: a placeholder is none.
    """
    waiting: list[JsonValue] = [template]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield from (piece for piece in pieces_of(part) if isinstance(piece, Expression))
        elif isinstance(part, Mapping):
            waiting += reversed(list(part.values()))
        elif isinstance(part, Sequence):
            waiting += reversed(part)


@lru_cache(maxsize=2048)
def pieces_of(text: str) -> tuple[Piece, ...]:
    """A text cut into plain stretches and placeholders.

    Raises:
        UnreadableTextError: a placeholder is none, or does not end.
    """
    if len(text) > _LONGEST:
        raise UnreadableTextError.at(text, _LONGEST, f"it has more than {_LONGEST:,} characters")
    if _BARE.fullmatch(text):
        return (Expression.of(text),)
    pieces: list[Piece] = []
    plain, at = "", 0
    while (begun := text.find("{$", at)) >= 0:
        if begun > at and text[begun - 1] == "\\":
            plain += text[at : begun - 1] + "{$"
            at = begun + 2
            continue
        plain += text[at:begun]
        expression, end = read_expression(text, begun + 1)
        if not text.startswith("}", end):
            raise UnreadableTextError.at(text, end, f"behind {expression.source} should be a closing brace")
        pieces += [plain, expression] if plain else [expression]
        plain, at = "", end + 1
    plain += text[at:]
    if plain or not pieces:
        pieces.append(plain)
    return tuple(pieces)
