r"""Templates: texts and JSON with placeholders such as `{$inputs.days}`.

A value that is a single placeholder, or a single expression (as in Arazzo), keeps the type of its value.
`\{$` is a literal brace and dollar. Values in addresses and headers are escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

from loom_core.errors import InvalidInputError, UnreadableTextError
from loom_core.flow.expressions.expression import (
    MISSING,
    Expression,
    ExpressionValues,
    Missing,
    parse_expression,
)

if TYPE_CHECKING:
    from loom_core.tools.interface import JsonValue

__all__ = [
    "Piece",
    "check_url",
    "expressions_in",
    "fill",
    "fill_header",
    "fill_url",
    "pieces_of",
    "text_of",
]


Piece: TypeAlias = str | Expression
"""Plain text or a placeholder."""

_MAX_LENGTH = 100_000
_MAX_DEPTH = 100
_BARE = re.compile(
    r"\$(?:(?:inputs|outputs|steps|response|context|item)(?:[.\[#]\S*)?|statusCode|message|index)"
)


def fill(template: JsonValue, values: ExpressionValues) -> JsonValue:
    """Fill the placeholders of a template.

    In a text, a missing value is empty, and values other than texts are written as JSON. A member of an
    object is left out if its value is a single placeholder of a missing value; elsewhere it is null.

    Raises:
        UnreadableTextError: a placeholder is invalid.
    """
    value = _fill(template, values, 0)
    return None if value is MISSING else value


def _fill(template: JsonValue, values: ExpressionValues, depth: int) -> JsonValue | Missing:
    if depth > _MAX_DEPTH:
        raise UnreadableTextError("it is nested too deeply", line=1, column=1)
    if isinstance(template, str):
        pieces = pieces_of(template)
        if len(pieces) == 1 and isinstance(pieces[0], Expression):
            return pieces[0].value(values)
        return "".join(each if isinstance(each, str) else text_of(each.value(values)) for each in pieces)
    if isinstance(template, Mapping):
        filled = ((name, _fill(each, values, depth + 1)) for name, each in template.items())
        return {name: each for name, each in filled if each is not MISSING}
    if isinstance(template, Sequence):
        items = (_fill(each, values, depth + 1) for each in template)
        return [None if each is MISSING else each for each in items]
    return template


def text_of(value: JsonValue | Missing) -> str:
    """Return a value as text: a text unchanged, null and missing values empty, others as JSON."""
    if value is MISSING or value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def expressions_in(template: JsonValue) -> Iterator[Expression]:
    """Yield the expressions in a template, in order.

    Raises:
        UnreadableTextError: a placeholder is invalid.
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
    """Split a text into plain text and placeholders.

    Raises:
        UnreadableTextError: a placeholder is invalid or unterminated.
    """
    if len(text) > _MAX_LENGTH:
        raise UnreadableTextError.at(text, _MAX_LENGTH, f"it has more than {_MAX_LENGTH:,} characters")
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
        expression, end = parse_expression(text, begun + 1)
        if not text.startswith("}", end):
            raise UnreadableTextError.at(
                text, end, f"{expression.source} should be followed by a closing brace"
            )
        pieces += [plain, expression] if plain else [expression]
        plain, at = "", end + 1
    plain += text[at:]
    if plain or not pieces:
        pieces.append(plain)
    return tuple(pieces)


_BEGINNING = re.compile(r"https?://[^/?#\\\s{}$@]+(?=[/?#]|\Z)|/(?![/\\])|\?|\Z", re.IGNORECASE)
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")
_NOT_IN_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[\ud800-\udfff]")
_HALF = re.compile("[\ud800-\udfff]")
_PATH_END = re.compile("[?#]")
_DOTS = {".", ".."}


def check_url(template: str) -> None:
    """Check an address template: https:// or http://, or a path to append to another address.

    Raises:
        UnreadableTextError: a placeholder is invalid or before the path, where it would choose the host; or
            this is not an address.
    """
    _pieces(template)


def fill_url(template: str, values: ExpressionValues) -> str:
    """Fill an address template; values are percent-encoded.

    Raises:
        UnreadableTextError: the template is invalid.
        InvalidInputError: a value is missing, empty, no text, number or boolean, or a path traversal.
    """
    pieces = _pieces(template)
    url = "".join(piece if isinstance(piece, str) else _quote(piece, values) for piece in pieces)
    if _leads_elsewhere(url):
        raise InvalidInputError(
            "The address would traverse to another folder: a placeholder in it is dots only.",
            advice="Give a value that names something.",
        )
    return url


def fill_header(template: str, values: ExpressionValues) -> str | None:
    """Fill a header template; return None if it is a single placeholder of a missing value.

    Raises:
        UnreadableTextError: the template is invalid.
        InvalidInputError: the value contains a line break or another control character.
    """
    pieces = pieces_of(template)
    found = [piece if isinstance(piece, str) else piece.value(values) for piece in pieces]
    if len(found) == 1 and (found[0] is MISSING or found[0] is None):
        return None
    value = "".join(map(text_of, found))
    if _NOT_IN_HEADER.search(value):
        raise InvalidInputError(
            "A header would contain a line break or another control character.",
            advice="Send such a text in the body.",
        )
    return value.strip()


def _pieces(template: str) -> tuple[Piece, ...]:
    pieces = pieces_of(template)
    beginning = pieces[0]
    if not isinstance(beginning, str) or not _BEGINNING.match(beginning):
        raise UnreadableTextError.at(
            template,
            0,
            "an address begins with https:// or http:// and a host, or with a single slash; "
            "placeholders come after it",
        )
    at = 0
    for piece in pieces:
        if isinstance(piece, Expression):
            at += len(piece.source) + 2
        elif unsafe := _UNSAFE.search(piece):
            raise UnreadableTextError.at(
                template, at + unsafe.start(), "an address contains no blanks and no backslashes"
            )
        else:
            at += len(piece)
    if len(pieces) == 1 and not pieces[0]:
        return pieces
    host = _BEGINNING.match(beginning)
    if len(pieces) > 1 and host and host.end() == len(beginning) and "://" in beginning:
        raise UnreadableTextError.at(template, host.end(), "a placeholder may not choose the host")
    if _leads_elsewhere("".join(piece if isinstance(piece, str) else "x" for piece in pieces)):
        raise UnreadableTextError.at(template, 0, "an address contains no . and .. as folders")
    return pieces


def _leads_elsewhere(url: str) -> bool:
    path = _PATH_END.split(url, maxsplit=1)[0].split("://", 1)[-1]
    return any(part.lower().replace("%2e", ".") in _DOTS for part in path.split("/")[1:])


def _quote(expression: Expression, values: ExpressionValues) -> str:
    value = expression.value(values)
    if value is MISSING or value is None or value == "":
        raise InvalidInputError(
            f"The address needs {expression.source}, which has no value.",
            advice="Give it one; optional values belong under `query`.",
        )
    if isinstance(value, bool | int | float | str) and not (isinstance(value, str) and _HALF.search(value)):
        return quote(text_of(value), safe="")
    raise InvalidInputError(
        f"The address needs {expression.source}, which is neither text nor a number.",
        advice="Name a part of it, or send it under `query` or in the body.",
    )
