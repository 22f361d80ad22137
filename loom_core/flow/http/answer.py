"""The answer to a request, as a flow reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, NoReturn, cast

if TYPE_CHECKING:
    from loom_core.net import HttpResponse
    from loom_core.tools.interface import JsonValue

__all__ = ["EndpointResult", "body_of", "status_text"]

_JSON_BEGINS = (b"{", b"[")
_MARK = b"\xef\xbb\xbf"
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class EndpointResult:
    """What an endpoint answered, without secrets.

    Attributes:
        status: HTTP status, whatever it is.
        headers: by name in lower case.
        body: JSON as data, else the text; None where there is none or it is binary.
        attempts: how often it was asked.
        seconds: how long all of it took.
        url: where it came from, without the query.
        key: the `Idempotency-Key` it was asked with, or empty.
        maybe_done: whether this attempt or one before may have been carried out, though this is no success.
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: JsonValue = field(repr=False)
    attempts: int = 1
    seconds: float = 0.0
    url: str = ""
    key: str = ""
    maybe_done: bool = False

    @property
    def is_success(self) -> bool:
        """Whether the status is one of success, 2xx."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


def body_of(response: HttpResponse) -> JsonValue:
    """The body of an answer.

    What begins as JSON is read as JSON although it may be called a text, as many servers do.
    """
    content = response.body.removeprefix(_MARK).strip()
    kind = response.media_type
    is_json = kind == "application/json" or kind.endswith("+json")
    if content and (is_json or content.startswith(_JSON_BEGINS)):
        try:
            value = json.loads(content, parse_constant=_no_number)
        except (ValueError, RecursionError):
            pass
        else:
            if _is_shallow(value):
                return _clean(value)
    if not content or kind.startswith(("image/", "audio/", "video/", "font/")):
        return None
    return _text(content, response.charset)


def _text(content: bytes, charset: str) -> str | None:
    for encoding in (charset or "utf-8", "gb18030"):
        try:
            text = content.decode(encoding)
        except (LookupError, UnicodeError):
            continue
        return None if "\0" in text else text
    return None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _is_shallow(value: object) -> bool:
    """Whether a value is nested no deeper than journals and expressions take it."""
    level = [value]
    for _ in range(_DEEPEST):
        inside: list[object] = []
        for each in level:
            if isinstance(each, Mapping):
                inside += cast("Mapping[str, object]", each).values()
            elif isinstance(each, list):
                inside += cast("list[object]", each)
        if not inside:
            return True
        level = inside
    return False


def _clean(value: JsonValue) -> JsonValue:
    """A value without halves of characters, which cannot be stored."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        members = cast("Mapping[str, JsonValue]", value).items()
        return {name.encode("utf-8", "replace").decode(): _clean(each) for name, each in members}
    if isinstance(value, list):
        return [_clean(each) for each in value]
    return value


def status_text(status: int) -> str:
    """`404 Not Found`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
