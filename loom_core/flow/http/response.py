"""Responses of endpoints: parsing, and evaluation of their success criteria."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from math import isfinite
from typing import TYPE_CHECKING, cast

from loom_core.flow.expressions import IncomparableError, criterion_holds, evaluate, fill, text_of
from loom_core.json_repair import well_formed

if TYPE_CHECKING:
    from loom_core.flow.config.models_endpoint import Criterion, EndpointConfig
    from loom_core.flow.expressions import ExpressionValues
    from loom_core.net import HttpResponse
    from loom_core.tools.interface import JsonValue

__all__ = [
    "EndpointResult",
    "InterpretedResponse",
    "failure_message",
    "interpret_response",
    "parse_body",
    "status_text",
]


_JSON_BEGINS = (b"{", b"[")
_MARK = b"\xef\xbb\xbf"
_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class EndpointResult:
    """Response of an endpoint, without secrets.

    Attributes:
        status: HTTP status.
        headers: by name in lower case.
        body: JSON as data, else text; None if it is empty or binary.
        attempts: number of attempts.
        seconds: total duration.
        url: its address, without the query.
        key: the `Idempotency-Key` that was sent, or empty.
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
        """Whether the status is 2xx."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


def parse_body(response: HttpResponse) -> JsonValue:
    """Parse the body of a response.

    A body that begins like JSON is parsed as JSON even if its type is text, as many servers send it.
    """
    content = response.body.removeprefix(_MARK).strip()
    kind = response.media_type
    is_json = kind == "application/json" or kind.endswith("+json")
    if content and (is_json or content.startswith(_JSON_BEGINS)):
        try:
            value = json.loads(content, parse_constant=_finite, parse_float=_finite)
        except (ValueError, RecursionError):
            pass
        else:
            if _is_shallow(value):
                return well_formed(value)  # others cannot be stored
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


def _finite(number: str) -> float:
    value = float(number)
    if not isfinite(value):  # NaN, and 1e999, which no journal and no client can read
        raise ValueError(f"{number} is no JSON")
    return value


def _is_shallow(value: object) -> bool:
    """Return whether a value is no deeper than journals and expressions allow."""
    level = [value]
    for _ in range(_MAX_DEPTH):
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


def status_text(status: int) -> str:
    """Return a status with its reason, such as `404 Not Found`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


_REASONS = (
    "message", "msg", "error_description", "detail", "error", "errmsg", "errorMessage", "title", "reason",
)  # fmt: skip
_MAX_LENGTH = 300
_MAX_PART_DEPTH = 3


@dataclass(frozen=True, slots=True)
class InterpretedResponse:
    """Interpreted response of an endpoint.

    Attributes:
        is_success: whether the criteria hold.
        result: the `result` of the response; None if it failed.
        problem: why it failed, in a sentence; empty if it did not.
        told: the endpoint's `failure` text, for users; empty if there is none.
        plain: why it failed, for models: without the address, and without texts of a failing server.
    """

    is_success: bool
    result: JsonValue = None
    problem: str = ""
    told: str = ""
    plain: str = ""


def interpret_response(
    endpoint: EndpointConfig, answer: EndpointResult, values: ExpressionValues
) -> InterpretedResponse:
    """Interpret a response by its endpoint's `success_criteria`, `result` and `failure`.

    Raises:
        ConfigError: one of its expressions is invalid.
        IncomparableError: a successful response lacks a value that its criteria compare.
    """
    values = replace(values, response=answer)
    criteria = endpoint.success_criteria
    if _all_hold(criteria, values, answer) if criteria else answer.is_success:
        return InterpretedResponse(True, evaluate(endpoint.result, values))
    told = failure_message(endpoint, values)
    reason, status = _reason(answer.body, 0), f"answered with {status_text(answer.status)}"
    problem = f"{answer.url} {status}{f': {reason}' if reason else '.'}"
    says_why = reason and answer.status < HTTPStatus.INTERNAL_SERVER_ERROR
    plain = f"The system {status}{f': {reason}' if says_why else '.'}"
    return InterpretedResponse(False, problem=told or problem, told=told, plain=told or plain)


def failure_message(endpoint: EndpointConfig, values: ExpressionValues) -> str:
    """Return the endpoint's `failure` text for a response; empty if it has none."""
    return text_of(fill(endpoint.failure, values)).strip() if endpoint.failure else ""


def _all_hold(criteria: Sequence[Criterion], values: ExpressionValues, answer: EndpointResult) -> bool:
    try:
        return all(criterion_holds(each, values) for each in criteria)
    except IncomparableError:
        if answer.is_success:
            raise
        return False


def _reason(body: JsonValue, depth: int) -> str:
    """Return an API's error message, by the usual names."""
    if isinstance(body, str):
        line = body.strip().partition("\n")[0]
        return "" if line.startswith("<") else line[:_MAX_LENGTH]
    if not isinstance(body, Mapping) or depth > _MAX_PART_DEPTH:
        return ""
    said = cast("Mapping[str, JsonValue]", body)
    for name in _REASONS:
        if reason := _reason(said.get(name), depth + 1):
            return reason
    return ""
