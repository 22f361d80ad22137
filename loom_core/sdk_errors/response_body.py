"""The vendor's error response: status, body, message and retry delay from an SDK's error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import cast

from loom_core.net.retry import retry_after

__all__ = ["body_of", "fields_of", "retry_after_of", "status_of", "words_of"]

_DEEPEST_BODY = 6
_MOST_OF_A_PAGE = 8000
_MOST_WORDS = 2000
_STATUS = re.compile(r"[45]\d\d", re.ASCII)
_STATUS_FIELDS = frozenset({"code", "status_code", "status"})
_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")


def status_of(error: Exception, body: object) -> int | None:
    """Return the HTTP status of an error.

    An error inside a stream comes with the status of the stream, which says nothing. Gateways and vLLM put
    the actual status into the error's code, as a number or a text.
    """
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and status >= 400:
        return status
    codes = (str(value) for name, value in fields_of(body) if name in _STATUS_FIELDS)
    return next((int(code) for code in codes if _STATUS.fullmatch(code)), None)


def body_of(error: Exception) -> object:
    """Return the vendor's body, parsed as JSON where it is JSON."""
    body: object = getattr(error, "body", None)
    if isinstance(body, str):
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return body
    return body


def fields_of(body: object, depth: int = 0) -> Iterator[tuple[str, object]]:
    """Iterate over all fields of a body, outer before inner."""
    if depth > _DEEPEST_BODY:
        return
    if isinstance(body, Mapping):
        fields = cast("Mapping[object, object]", body)
        for name, value in fields.items():
            yield str(name), value
        for value in fields.values():
            yield from fields_of(value, depth + 1)
    elif isinstance(body, list):
        for value in cast("list[object]", body):
            yield from fields_of(value, depth + 1)


def words_of(error: Exception, body: object) -> str:
    """Return the message for people: the vendor's, else the error's; the beginning of it, if it is long."""
    return (_vendors_words(body) or _own_words(error))[:_MOST_WORDS]


def _vendors_words(body: object) -> str:
    if isinstance(body, str):
        return re.sub(r"<style.*?</style>|<[^<>]*>", " ", body[:_MOST_OF_A_PAGE], flags=re.DOTALL)
    said = {
        name: value for name, value in reversed(list(fields_of(body))) if isinstance(value, str) and value
    }
    for name in ("message", "status_msg", "msg", "detail", "error_description", "error"):
        if name in said:
            return said[name]
    return ""


def _own_words(error: Exception) -> str:
    """Return the error's own message; errors of connections tell the reason in their cause only."""
    cause = error.__cause__
    own = str(error).strip() or type(error).__name__
    reason = str(cause).strip() if isinstance(cause, Exception) else ""
    return own if reason in own else f"{own} {reason}"


def retry_after_of(error: Exception, body: object) -> float | None:
    """Return the retry delay in seconds, from a header or the body; None if there is none."""
    headers = cast("Mapping[str, str]", getattr(getattr(error, "response", None), "headers", {}))
    if (seconds := retry_after(headers)) is not None:
        return seconds
    for name, value in fields_of(body):
        if name == "retryDelay" and (delay := _DELAY.fullmatch(str(value))):  # Gemini: google.rpc.RetryInfo
            return float(delay[1])
    return None
