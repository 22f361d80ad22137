"""Repair of JSON with characters that no text can hold.

A program in JavaScript that cuts a text in the middle of an emoji sends half of a surrogate pair: JSON can
escape it, and UTF-8 cannot encode it. Strict parsers refuse all of the JSON for it; others return a text that
cannot be sent or stored.
"""

from __future__ import annotations

import re
from typing import TypeVar, cast

__all__ = ["repair", "replace_lone_surrogates", "well_formed"]

T = TypeVar("T")

# Each escape as a whole, so that a backslash that is escaped itself begins none.
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)


def repair(message: bytes) -> bytes:
    """Replace bytes that are not UTF-8, and lone surrogates, in a message in JSON."""
    return replace_lone_surrogates(message.decode("utf-8", "replace").encode())


def replace_lone_surrogates(json_text: bytes) -> bytes:
    """Replace escapes of half a surrogate pair by that of U+FFFD."""
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], json_text)


def well_formed(value: T) -> T:
    """Replace lone surrogates in a JSON value by `?`.

    They come from file names that are not valid in the system's encoding, from half-read escapes and from
    language models. A single one would stop the transport's writer.
    """
    return cast("T", _replace_surrogates(value))


def _replace_surrogates(value: object) -> object:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {cast("str", _replace_surrogates(key)): _replace_surrogates(item) for key, item in items}
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in cast("list[object]", value)]
    return value
