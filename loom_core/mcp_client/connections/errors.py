"""Faults of a connection, before they are reported to the caller."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    from loom_core.errors import ServerFailure

__all__ = ["ANSWER_BYTES", "Fault", "FaultError", "Faults", "leaf"]

ANSWER_BYTES = 32 << 20
"""Maximum size of an answer; a larger one is skipped."""

_KEY = "loom/fault"


@dataclass(frozen=True, slots=True)
class Fault:
    """Description of a failure, in words that complete “the server …”.

    Attributes:
        failure: which kind.
        what: such as `answers 401 Unauthorized`.
        advice: what the reader can do; may be empty.
        status: the HTTP status, or None.
        code: the code of the server's JSON-RPC error, or None.
        ran: whether the server may have executed the request.
        lost: whether the connection or session is gone, so that a new one is needed.
        passing: whether a later retry may succeed.
        retry_after: seconds that the server asks to wait; None if it does not ask.
    """

    failure: ServerFailure
    what: str
    advice: str = ""
    status: int | None = None
    code: int | None = None
    ran: Literal["no", "unknown"] = "unknown"
    lost: bool = False
    passing: bool = False
    retry_after: float | None = None


class FaultError(Exception):
    """Error of a transport that passes through the SDK to the task whose request could not be sent."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.what)
        self.fault = fault


class Faults:
    """Carrier of faults through the SDK, as the `data` of JSON-RPC errors.

    A server cannot forge the data: it holds a random key.
    """

    def __init__(self) -> None:
        self._key = secrets.token_hex(8)
        self._numbers = itertools.count()
        self._noted: dict[str, Fault] = {}

    def note(self, fault: Fault) -> dict[str, str]:
        """Store a fault, and return the data of its JSON-RPC error."""
        token = f"{self._key}-{next(self._numbers)}"
        self._noted[token] = fault
        if len(self._noted) > 1000:  # the caller of the oldest one is gone
            del self._noted[next(iter(self._noted))]
        return {_KEY: token}

    def take(self, data: object) -> Fault | None:
        """Return and forget the fault of an error's data; None if it is a server's own error."""
        if not isinstance(data, Mapping):
            return None
        token = cast("Mapping[str, object]", data).get(_KEY)
        return self._noted.pop(token, None) if isinstance(token, str) else None


def leaf(error: BaseException) -> BaseException:
    """Return the first error inside exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
