"""Refusal of an HTTP request before the protocol sees it: status, reason and challenge."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from loom_core.errors import LoomError

if TYPE_CHECKING:
    from loom_core.server.auth.caller import Caller

__all__ = ["Refusal", "RefusalReason", "RefusedError"]

RefusalReason: TypeAlias = Literal[
    "host",
    "origin",
    "no_token",
    "bad_token",
    "expired_token",
    "scope",
    "rate",
    "running",
    "streams",
    "sessions",
    "no_session",
    "node",
    "body_size",
    "body_time",
    "head_time",
    "issuer",
    "ending",
]
"""Why a request was refused before the protocol saw it; `expired_token` and `ending` also end what runs."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason of a refusal, and the HTTP answer.

    Attributes:
        status: HTTP status.
        reason: reason, for the metrics.
        text: message for the client; it reveals nothing about other callers.
        code: error code for programs; the reason if empty.
        challenge: the header `WWW-Authenticate`, or empty.
        retry_after: seconds after which a retry may succeed; 0 if unknown.
        caller: the caller, if known; for the log.
    """

    status: int
    reason: RefusalReason
    text: str
    code: str = ""
    challenge: str = ""
    retry_after: int = 0
    caller: Caller | None = None

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers of the answer."""
        told = {"content-type": "application/json", "content-length": str(len(self.body()))}
        if self.challenge:
            told["www-authenticate"] = self.challenge
        if self.retry_after:
            told["retry-after"] = str(self.retry_after)
        return [(name.encode(), value.encode()) for name, value in told.items()]

    def body(self) -> bytes:
        """Return the answer's body, in the form of OAuth's errors."""
        return json.dumps({"error": self.code or self.reason, "error_description": self.text}).encode()


class RefusedError(LoomError):
    """A request is refused.

    Attributes:
        refusal: the reason, and the HTTP answer.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal
