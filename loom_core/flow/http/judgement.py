"""Whether an endpoint did what it was asked to, what its result is, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

from loom_core.flow.expressions import IncomparableError, criterion_holds, evaluate, fill, text_of
from loom_core.flow.http.answer import status_text

if TYPE_CHECKING:
    from loom_core.flow.config.models_endpoint import Criterion, EndpointConfig
    from loom_core.flow.expressions import Values
    from loom_core.flow.http.answer import EndpointResult
    from loom_core.tools.interface import JsonValue

__all__ = ["Judgement", "failure_told", "judged"]

_REASONS = (
    "message", "msg", "error_description", "detail", "error", "errmsg", "errorMessage", "title", "reason",
)  # fmt: skip
_LONGEST = 300
_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an answer means.

    Attributes:
        is_success: whether the endpoint did it.
        result: the part of the answer that counts; None where it failed.
        problem: why it failed, in a sentence; empty where it did not.
        told: what the endpoint's `failure` says of that, for users; empty where it says nothing.
        plain: why it failed, for models: without the address, and without the words of a server that broke.
    """

    is_success: bool
    result: JsonValue = None
    problem: str = ""
    told: str = ""
    plain: str = ""


def judged(endpoint: EndpointConfig, answer: EndpointResult, values: Values) -> Judgement:
    """Judge an answer by what its endpoint says of success, result and failure.

    Raises:
        ConfigError: what it says cannot be read.
        IncomparableError: an answer of success lacks what its criteria compare.
    """
    values = replace(values, response=answer)
    criteria = endpoint.success_criteria
    if _all_hold(criteria, values, answer) if criteria else answer.is_success:
        return Judgement(True, evaluate(endpoint.result, values))
    told = failure_told(endpoint, values)
    reason, status = _reason(answer.body, 0), f"answered with {status_text(answer.status)}"
    problem = f"{answer.url} {status}{f': {reason}' if reason else '.'}"
    says_why = reason and answer.status < HTTPStatus.INTERNAL_SERVER_ERROR
    plain = f"The system {status}{f': {reason}' if says_why else '.'}"
    return Judgement(False, problem=told or problem, told=told, plain=told or plain)


def failure_told(endpoint: EndpointConfig, values: Values) -> str:
    """What the `failure` of an endpoint says of an answer; empty where it says nothing."""
    return text_of(fill(endpoint.failure, values)).strip() if endpoint.failure else ""


def _all_hold(criteria: Sequence[Criterion], values: Values, answer: EndpointResult) -> bool:
    try:
        return all(criterion_holds(each, values) for each in criteria)
    except IncomparableError:
        if answer.is_success:
            raise
        return False


def _reason(body: JsonValue, depth: int) -> str:
    """What an API says of an error, by the usual names."""
    if isinstance(body, str):
        line = body.strip().partition("\n")[0]
        return "" if line.startswith("<") else line[:_LONGEST]
    if not isinstance(body, Mapping) or depth > _DEEPEST:
        return ""
    said = cast("Mapping[str, JsonValue]", body)
    for name in _REASONS:
        if reason := _reason(said.get(name), depth + 1):
            return reason
    return ""
