"""Repair of JSON with characters that no text can hold.

A program in JavaScript that cuts a text in the middle of an emoji sends half of a surrogate pair: JSON can
escape it, and UTF-8 cannot encode it. Strict parsers refuse all of the JSON for it; others return a text that
cannot be sent or stored.
"""

from __future__ import annotations

import re

__all__ = ["repair", "replace_lone_surrogates"]

# Each escape as a whole, so that a backslash that is escaped itself begins none.
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)


def repair(message: bytes) -> bytes:
    """Replace bytes that are not UTF-8, and lone surrogates, in a message in JSON."""
    return replace_lone_surrogates(message.decode("utf-8", "replace").encode())


def replace_lone_surrogates(json_text: bytes) -> bytes:
    """Replace escapes of half a surrogate pair by that of U+FFFD."""
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], json_text)
