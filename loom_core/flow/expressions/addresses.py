"""Addresses and headers as templates: what a placeholder brings stays what it is put in as."""

from __future__ import annotations

import re
from urllib.parse import quote

from loom_core.errors import InvalidInputError, UnreadableTextError
from loom_core.flow.expressions.expression import Expression
from loom_core.flow.expressions.template import Piece, pieces_of, text_of
from loom_core.flow.expressions.values import MISSING, Values

__all__ = ["check_url", "fill_header", "fill_url"]

_BEGINNING = re.compile(r"https?://[^/?#\\\s{}$@]+(?=[/?#]|\Z)|/(?![/\\])|\?|\Z", re.IGNORECASE)
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")
_NOT_IN_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[\ud800-\udfff]")
_HALF = re.compile("[\ud800-\udfff]")
_PATH_END = re.compile("[?#]")
_DOTS = {".", ".."}


def check_url(template: str) -> None:
    """Checks the template of an address: https:// or http://, or a path to put behind another address.

    Raises:
        UnreadableTextError: a placeholder is none or stands in front of the path, where it would choose the
            host; or this is no address.
    """
    _pieces(template)


def fill_url(template: str, values: Values) -> str:
    """An address with its placeholders filled, percent-encoded.

    Raises:
        UnreadableTextError: the template is none.
        InvalidInputError: what a placeholder names is not there, is empty, no text, number or truth value, or
            would lead to another folder.
    """
    pieces = _pieces(template)
    url = "".join(piece if isinstance(piece, str) else _quoted(piece, values) for piece in pieces)
    if _leads_elsewhere(url):
        raise InvalidInputError(
            "The address would lead to another folder: a placeholder in it holds dots only.",
            advice="Give a value that names something.",
        )
    return url


def fill_header(template: str, values: Values) -> str | None:
    """The value of a header with its placeholders filled; None if it is one for what is not there.

    Raises:
        UnreadableTextError: the template is none.
        InvalidInputError: the value would hold a line break or another control character.
    """
    pieces = pieces_of(template)
    found = [piece if isinstance(piece, str) else piece.value(values) for piece in pieces]
    if len(found) == 1 and (found[0] is MISSING or found[0] is None):
        return None
    value = "".join(map(text_of, found))
    if _NOT_IN_HEADER.search(value):
        raise InvalidInputError(
            "A header would hold a line break or another control character.",
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
            "placeholders stand behind that",
        )
    at = 0
    for piece in pieces:
        if isinstance(piece, Expression):
            at += len(piece.source) + 2
        elif unsafe := _UNSAFE.search(piece):
            raise UnreadableTextError.at(
                template, at + unsafe.start(), "an address holds no blanks and no backslashes"
            )
        else:
            at += len(piece)
    if len(pieces) == 1 and not pieces[0]:
        return pieces
    host = _BEGINNING.match(beginning)
    if len(pieces) > 1 and host and host.end() == len(beginning) and "://" in beginning:
        raise UnreadableTextError.at(template, host.end(), "a placeholder may not choose the host")
    if _leads_elsewhere("".join(piece if isinstance(piece, str) else "x" for piece in pieces)):
        raise UnreadableTextError.at(template, 0, "an address holds no . and .. as folders")
    return pieces


def _leads_elsewhere(url: str) -> bool:
    path = _PATH_END.split(url, maxsplit=1)[0].split("://", 1)[-1]
    return any(part.lower().replace("%2e", ".") in _DOTS for part in path.split("/")[1:])


def _quoted(expression: Expression, values: Values) -> str:
    value = expression.value(values)
    if value is MISSING or value is None or value == "":
        raise InvalidInputError(
            f"The address wants {expression.source}, which has no value.",
            advice="Give it one; what may be left out belongs under `query`.",
        )
    if isinstance(value, bool | int | float | str) and not (isinstance(value, str) and _HALF.search(value)):
        return quote(text_of(value), safe="")
    raise InvalidInputError(
        f"The address wants {expression.source}, which is no text and no number.",
        advice="Name a part of it, or send it under `query` or in the body.",
    )
