"""Rate limits, concurrency limits and session counts per caller, within this process.

The SDK manages the sessions of the handshake era: it refuses those of another caller, limits their total and
ends idle ones. But it does not count them per caller: `SessionCount` does, from requests and answers.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from loom_core.server.auth.refusal import Refusal, RefusedError

if TYPE_CHECKING:
    from loom_core.server.auth.caller import Caller

__all__ = ["CallerLimits", "Kind", "Limits", "SessionCount", "Slot"]

Kind = Literal["call", "stream", "upload"]
"""A stream stays open for notifications; a call ends with its answer; an upload is a body that arrives."""

_BURST_SECONDS = 10.0  # capacity of the token bucket, in seconds of the rate
_RETRY_RUNNING = 1
_KEPT = 10_000  # callers that are remembered


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of each authenticated caller; callers without authentication are local, and have no limits.

    Attributes:
        per_minute: requests per minute, with bursts of up to ten seconds' worth.
        calls: concurrent calls, and concurrent uploads.
        streams: concurrent notification streams.
        sessions: sessions of the handshake era.
    """

    per_minute: int = 600
    calls: int = 16
    streams: int = 16
    sessions: int = 100


@dataclass(slots=True)
class _Share:
    """The usage of one caller."""

    credit: float
    at: float
    running: dict[Kind, int] = field(default_factory=lambda: {"call": 0, "stream": 0, "upload": 0})


@dataclass(slots=True)
class Slot:
    """Slot of a running request: a context manager that may be entered several times, and is then shared.

    The HTTP request holds it, and the call in it, which goes on in the handshake era if the client leaves.
    """

    _running: dict[Kind, int]
    _kind: Kind
    _holders: int = 0

    def __enter__(self) -> None:
        if not self._holders:
            self._running[self._kind] += 1
        self._holders += 1

    def __exit__(self, *_error: object) -> None:
        self._holders -= 1
        if not self._holders:
            self._running[self._kind] -= 1


class CallerLimits:
    """Rate limiter: token bucket and concurrency limits per caller.

    Args:
        limits: limits of each caller.
        clock: monotonic seconds.
    """

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._shares: dict[str, _Share] = {}

    def running(self, kind: Kind) -> int:
        """Return the number of running requests of all callers."""
        return sum(share.running[kind] for share in self._shares.values())

    def count(self, caller: Caller) -> None:
        """Count a request that begins.

        Raises:
            RefusedError: it exceeds the rate.
        """
        share = self._share(caller)
        now = self._clock()
        share.credit = min(self._burst, share.credit + (now - share.at) * self._limits.per_minute / 60)
        share.at = now
        if share.credit < 1:
            wait = math.ceil((1 - share.credit) * 60 / self._limits.per_minute)
            text = f"This token may send {self._limits.per_minute} requests a minute."
            raise RefusedError(Refusal(429, "rate", text, retry_after=max(1, wait), caller=caller))
        share.credit -= 1

    def slot(self, caller: Caller, kind: Kind) -> Slot:
        """Return a slot for a request of a caller; it counts as running while it is held.

        Raises:
            RefusedError: all of the caller's slots are held.
        """
        running = self._share(caller).running
        most = self._limits.streams if kind == "stream" else self._limits.calls
        if running[kind] >= most:
            text = f"{most} {kind}s of this token are open already."
            reason = "streams" if kind == "stream" else "running"
            raise RefusedError(Refusal(429, reason, text, retry_after=_RETRY_RUNNING, caller=caller))
        return Slot(running, kind)

    @property
    def _burst(self) -> float:
        return max(1.0, self._limits.per_minute * _BURST_SECONDS / 60)

    def _share(self, caller: Caller) -> _Share:
        share = self._shares.get(caller.id)
        if share is None:
            if len(self._shares) >= _KEPT:
                self._forget()
            share = self._shares[caller.id] = _Share(self._burst, self._clock())
        return share

    def _forget(self) -> None:
        """Forget callers without running requests whose token bucket is full again."""
        full = self._clock() - _BURST_SECONDS
        self._shares = {
            id_: share
            for id_, share in self._shares.items()
            if any(share.running.values()) or share.at > full
        }


@dataclass(slots=True)
class _Session:
    owner: str
    seen: float
    running: int = 0


class SessionCount:
    """Count of open sessions per caller.

    Args:
        idle_seconds: idle timeout of a session, as in the SDK.
        clock: monotonic seconds.
    """

    def __init__(self, idle_seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._idle = idle_seconds
        self._clock = clock
        self._sessions: dict[str, _Session] = {}
        self._opening = Counter[str]()

    def __len__(self) -> int:
        self._drop_idle()
        return len(self._sessions)

    def of(self, owner: str) -> int:
        """Return the number of a caller's sessions."""
        self._drop_idle()
        open_now = sum(session.owner == owner for session in self._sessions.values())
        return open_now + self._opening[owner]

    def has(self, owner: str, id_: str) -> bool:
        """Return whether a session is open and belongs to the caller."""
        self._drop_idle()
        session = self._sessions.get(id_)
        return session is not None and session.owner == owner

    @contextmanager
    def opening(self, owner: str) -> Generator[Callable[[str], None]]:
        """Reserve a session for a caller in the block; the reservation counts as one.

        Yields:
            A function to call with the session's id once it has begun; it replaces the reservation.
        """
        self._opening[owner] += 1
        waiting = [owner]

        def begin(id_: str) -> None:
            self._opening[waiting.pop()] -= 1
            self._sessions[id_] = _Session(owner, self._clock())

        try:
            yield begin
        finally:
            for each in waiting:
                self._opening[each] -= 1
            self._opening += Counter()  # drops what is zero

    def begin_request(self, id_: str) -> None:
        """Note that a request of a session has begun."""
        if session := self._sessions.get(id_):
            session.running += 1

    def end_request(self, id_: str) -> None:
        """Note that a request of a session has ended."""
        if session := self._sessions.get(id_):
            session.running -= 1
            session.seen = self._clock()

    def remove(self, id_: str) -> None:
        """Remove a session that has ended."""
        self._sessions.pop(id_, None)

    def _drop_idle(self) -> None:
        last = self._clock() - self._idle
        self._sessions = {
            id_: session for id_, session in self._sessions.items() if session.running or session.seen > last
        }
