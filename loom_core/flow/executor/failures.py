"""Failures of flows and requests: their kind for operators, and messages for users.

Addresses, step ids and responses of servers are for operators (`Run.problem`); users, and models that read
the user's messages, get a sentence of `FlowMessages`, or a text of the flow file.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

from loom_core.errors import LoomError, NetFailure
from loom_core.flow.executor.definition import FlowChangedError
from loom_core.flow.executor.rewind import CorrectionError
from loom_core.flow.http.request import is_lost

if TYPE_CHECKING:
    from loom_core.flow.executor.messages import FlowMessages

__all__ = [
    "FlowTimeoutError",
    "StepFailedError",
    "classify_failure",
    "request_failure_message",
    "user_message",
]


class StepFailedError(LoomError):
    """A step has failed, and no action handles the failure.

    Attributes:
        step: its path, such as `pay` or `outer/0/inner`.
        said: the message for users.
    """

    def __init__(self, message: str, *, step: str, said: str, advice: str = "") -> None:
        super().__init__(message, advice=advice)
        self.step = step
        self.said = said


class FlowTimeoutError(LoomError):
    """A flow has exceeded its timeout."""


def classify_failure(error: LoomError) -> str:
    """Return the kind of an error that ends a run, for its journal."""
    match error:
        case StepFailedError():
            return "step"
        case FlowTimeoutError():
            return "budget"
        case FlowChangedError():
            return "changed"
        case CorrectionError():
            return "correction"
        case _:
            return "other"


def user_message(error: LoomError, wording: FlowMessages) -> str:
    """Return the user's message for an error that ends a run."""
    match error:
        case StepFailedError():
            return error.said
        case FlowTimeoutError():
            return wording.too_long
        case FlowChangedError():
            return wording.changed
        case CorrectionError():
            return error.message
        case _:
            return wording.broken


def request_failure_message(outcome: NetFailure | int, wording: FlowMessages, *, unsure: bool) -> str:
    """Return the user's message for a failed request.

    Args:
        outcome: the error, or the HTTP status of the response.
        wording: messages in the user's language.
        unsure: whether something may have been changed nevertheless.
    """
    said = (
        _status_message(outcome, wording)
        if isinstance(outcome, int)
        else _no_response_message(outcome, wording)
    )
    return f"{said}{wording.space}{wording.unsure}" if unsure else said


def _no_response_message(failure: NetFailure, wording: FlowMessages) -> str:
    known: Mapping[NetFailure, str] = {
        "connection": wording.unreachable,
        "interrupted": wording.late,
        "timeout": wording.late,
        "unavailable": wording.busy,
        "unusable": wording.unusable,
    }
    return known.get(failure, wording.broken)


def _status_message(status: int, wording: FlowMessages) -> str:
    if is_lost(status):
        return wording.late
    if status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        return wording.busy
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED}:
        return wording.broken  # our credentials are rejected
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return wording.faulty
    return (
        wording.broken if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST else wording.refused
    )
