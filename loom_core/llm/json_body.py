"""Encoding of request bodies as valid JSON and UTF-8."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, cast

from loom_core.errors import InvalidInputError

__all__ = ["encode_body", "json_body"]

_DEEPEST = 128
_LONGEST_NUMBER = 14_000  # bits, about 4 200 digits: Python cannot write much longer ones

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encode_body(fields: Mapping[str, Any]) -> bytes:
    """Encode the body of a request in UTF-8; `json_body` repairs it if needed.

    Raises:
        InvalidInputError: as by `json_body`.
    """
    try:
        content = _encoder.encode(fields).encode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError):
        content = b""
    if content and content.count(b"{") + content.count(b"[") <= _DEEPEST:  # so it is not nested too deeply
        return content
    return _encoder.encode(json_body(fields)).encode("utf-8", "replace")


def json_body(fields: Mapping[str, Any], *, deepest: int = _DEEPEST) -> dict[str, Any]:
    """Return the fields of a request as valid JSON.

    A lone surrogate becomes a question mark, and a non-finite number a text: models write both into tool
    arguments.

    Args:
        fields: the fields by name.
        deepest: maximum nesting depth of a field.

    Raises:
        InvalidInputError: a field has values outside of JSON, or is nested too deeply.
    """
    body: dict[str, Any] = {}
    for name, value in fields.items():
        try:
            if isinstance(value, list):  # messages and tools: nearly all of them are valid
                each = cast("list[object]", value)
                body[str(name)] = [
                    one if _is_encodable(one, deepest) else _json(one, deepest - 1) for one in each
                ]
            else:
                body[str(name)] = _json(value, deepest)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"The field {name!r} of the request cannot be sent: {error}.",
                advice="Give it as JSON has it: texts, numbers, true, false, null, lists and objects.",
            ) from None
    return body


def _is_encodable(value: object, deepest: int) -> bool:
    """Return whether a value is encodable as it is, and not nested deeply: a fast check."""
    try:
        text = _encoder.encode(value)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return text.count("{") + text.count("[") < deepest


def _json(value: object, deepest: int) -> object:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if value is None:
        return value
    if isinstance(value, int):
        if value.bit_length() > _LONGEST_NUMBER:
            raise ValueError("a number has too many digits")
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if not isinstance(value, dict | list | tuple | Mapping):  # `Mapping` last, as it is slow to check
        raise TypeError(f"JSON has no {type(value).__name__}")
    if deepest == 0:
        raise TypeError("it is nested too deeply")
    if isinstance(value, list | tuple):
        return [_json(each, deepest - 1) for each in cast("Sequence[object]", value)]
    inner = cast("Mapping[object, object]", value)
    return {_json(str(name), 0): _json(each, deepest - 1) for name, each in inner.items()}
