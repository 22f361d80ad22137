"""The body of a request as JSON and UTF-8 can hold it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, cast

from loom_core.errors import InvalidInputError

__all__ = ["encode_body", "json_body"]

_DEEPEST = 128
_LONGEST_NUMBER = 14_000  # bits, about 4 200 digits: Python writes none that is much longer

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encode_body(fields: Mapping[str, Any]) -> bytes:
    """The body of a request in UTF-8, put right by `json_body` where that is needed.

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
    """The fields of a request, so that they can be sent.

    Half a surrogate pair becomes a question mark, and a number that is none, such as infinity, a text: models
    write both into the arguments of tools.

    Args:
        fields: by name.
        deepest: how many lists and objects may be inside each other in a field.

    Raises:
        InvalidInputError: a field holds what JSON cannot, or is nested too deeply.
    """
    body: dict[str, Any] = {}
    for name, value in fields.items():
        try:
            if isinstance(value, list):  # messages and tools: nearly all of them are sound
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
    """Whether a value can be sent as it is, and is not nested deeply: what takes no time to find out."""
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
    if not isinstance(value, dict | list | tuple | Mapping):  # `Mapping` last, as it takes long to find out
        raise TypeError(f"JSON has no {type(value).__name__}")
    if deepest == 0:
        raise TypeError("it is nested too deeply")
    if isinstance(value, list | tuple):
        return [_json(each, deepest - 1) for each in cast("Sequence[object]", value)]
    inner = cast("Mapping[object, object]", value)
    return {_json(str(name), 0): _json(each, deepest - 1) for name, each in inner.items()}
