"""When a request is sent again, and what servers know by when it is the same one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

import anyio

from loom_core.errors import NetError

if TYPE_CHECKING:
    from loom_core.flow.config.models_endpoint import EndpointConfig

__all__ = ["Attempts", "is_lost", "may_be_done", "may_be_sent_again", "request_key", "status_passes"]

_PASSING = frozenset({408, 425, 429})
_LASTING = frozenset({501, 505, 506, 507, 508, 510, 511})
_LONGEST_KEY = 200
_MAYBE_DONE = frozenset({"interrupted", "timeout"})
_GATEWAY = frozenset({408, 502, 504})


def status_passes(status: int) -> bool:
    """Whether the same request may succeed a little later."""
    return status in _PASSING or (500 <= status < 600 and status not in _LASTING)


def is_lost(outcome: NetError | int) -> bool:
    """Whether nobody knows if a request was carried out: the answer is not there, or only a gateway's."""
    return outcome.failure in _MAYBE_DONE if isinstance(outcome, NetError) else outcome in _GATEWAY


def may_be_done(outcome: NetError | int) -> bool:
    """Whether a request may have been carried out: it is lost, or the server failed in the middle of it."""
    if isinstance(outcome, NetError):
        return is_lost(outcome)
    return outcome == HTTPStatus.REQUEST_TIMEOUT or 500 <= outcome < 600


def may_be_sent_again(outcome: NetError | int, *, repeatable: bool) -> bool:
    """Whether a request may be sent again after an error or a status.

    A request that never went out may be, whatever it is. One that may have arrived, only if it is
    repeatable.
    """
    if isinstance(outcome, NetError):
        if outcome.failure == "connection":
            return True
        return repeatable and outcome.failure in _MAYBE_DONE
    return repeatable and status_passes(outcome)


def request_key(run_id: str, step_id: str) -> str:
    """The `Idempotency-Key` of a request: `{run}:{step}`, the same however often it is sent.

    Ids in other scripts are percent-encoded, as a header is ASCII; what is too long ends in a digest.
    """
    key = f"{quote(run_id, safe='')}:{quote(step_id, safe='/#', errors='replace')}"
    if len(key) <= _LONGEST_KEY:
        return key
    digest = hashlib.sha256(f"{run_id}:{step_id}".encode("utf-8", "replace")).hexdigest()
    return f"{key[: _LONGEST_KEY - len(digest) - 1]}~{digest}"


@dataclass(slots=True)
class Attempts:
    """How often a request was sent.

    Attributes:
        endpoint: whose.
        until: when there is no more time, as `anyio.current_time`.
        made: attempts that have begun.
        maybe_done: whether one of them may have been carried out although none has succeeded.
    """

    endpoint: EndpointConfig
    until: float
    made: int = 0
    maybe_done: bool = False

    @property
    def left(self) -> float:
        """Seconds that there still are; may be below 0."""
        return self.until - anyio.current_time()

    def note(self, outcome: NetError | int) -> None:
        """See what came of one of them: why there was no answer, or its status."""
        self.maybe_done = self.maybe_done or may_be_done(outcome)

    def told(self, last: NetError) -> NetError:
        """The last error, with what is to be known of those before."""
        times = f" It was tried {self.made} times." if self.made > 1 else ""
        failure = "interrupted" if self.maybe_done and last.failure != "timeout" else last.failure
        return NetError(f"{last.message}{times}", advice=last.advice, failure=failure)
