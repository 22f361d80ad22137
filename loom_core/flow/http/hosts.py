"""How much is asked of each host: so many requests at once and in a minute, and none where nobody is."""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from loom_core.breaker import Breaker
from loom_core.errors import LoomError, NetError
from loom_core.llm.limits import RateLimits

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

__all__ = ["HostBreaker", "Hosts"]

_MOST = 1000
_GATEWAY_FAILURES = frozenset({502, 503, 504})


class HostFailureError(NetError):
    """A gateway or an overloaded server has answered; only for a breaker to see."""


class HostBreaker(Breaker):
    """Lets requests to one host through, or not; see `Breaker`.

    What counts as a failure: nobody is reached, the connection breaks, no answer in time, and 502, 503, 504.
    Any other status is an answer: a 500 is often one request's own, and must not keep others from the host.
    """

    def passes(self, error: LoomError) -> bool | None:
        """Whether an error of a request speaks against its host."""
        if not isinstance(error, NetError) or error.failure == "refused":
            return None
        return isinstance(error, HostFailureError) or error.failure in {
            "connection",
            "interrupted",
            "timeout",
        }


@dataclass(frozen=True, slots=True)
class _Host:
    breaker: HostBreaker
    limits: RateLimits


class Hosts:
    """Stands before every request.

    Args:
        concurrency: requests under way together, to whomever.
        per_minute: requests to one host in a minute; None for no limit.
        failures: how many in a row until a host is left alone.
        pause: seconds that it is left alone at first.
        now: seconds of a clock that never goes back.
    """

    def __init__(
        self,
        *,
        concurrency: int,
        per_minute: int | None = None,
        failures: int = 5,
        pause: float = 15.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = anyio.Semaphore(concurrency)
        self._per_minute = per_minute
        self._failures = failures
        self._pause = pause
        self._now = now
        self._hosts: OrderedDict[str, _Host] = OrderedDict()

    @asynccontextmanager
    async def turn(self, place: str) -> AsyncGenerator[Callable[[int], None]]:
        """Around one request: waits until it may be made, and sees how it ends.

        What it gives is told the status of the answer.

        Args:
            place: host and port.

        Raises:
            NetError: of failure `unavailable`, if the host is left alone.
        """
        host = self._host(place)
        status = 0

        def note(answered: int) -> None:
            nonlocal status
            status = answered

        # The host's own limit first: who waits for it keeps nobody from other hosts.
        async with host.limits.place(), self._slots:
            try:
                with host.breaker.around(place, refuse=_refused):
                    yield note
                    if status in _GATEWAY_FAILURES:
                        raise HostFailureError(f"{place} answered with status {status}.")
            except HostFailureError:
                return  # the answer is there all the same

    def _host(self, place: str) -> _Host:
        if place not in self._hosts:
            breaker = HostBreaker(failures=self._failures, first_pause=self._pause, now=self._now)
            self._hosts[place] = _Host(breaker, RateLimits(rpm=self._per_minute))
            if len(self._hosts) > _MOST:
                self._hosts.popitem(last=False)
        self._hosts.move_to_end(place)
        return self._hosts[place]


def _refused(message: str, left: float) -> NetError:
    when = f"Try again in {left:.0f} seconds." if left else "Try again later."
    return NetError(message, advice=when, failure="unavailable")
