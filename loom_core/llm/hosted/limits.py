"""Limits of requests to a model: the vendor's rate limits, and a circuit breaker."""

from __future__ import annotations

import time
from collections import deque
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from loom_core.errors import ConfigError, LLMError, LoomError, ModelError
from loom_core.net.breaker import Breaker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

__all__ = ["CircuitBreaker", "RateLimits", "RequestPermit"]

_MINUTE = 60.0


@dataclass(slots=True, eq=False)
class RequestPermit:
    """Permit of one request in the sliding window.

    Attributes:
        tokens: estimated before the request, set to the reported number afterwards.
        since: when the permit was granted.
    """

    tokens: int
    since: float = 0.0


class RateLimits:
    """Sliding-window rate limiter; it grants permits in order of arrival.

    A minute is any 60 seconds, not a minute of the clock: this satisfies a vendor that counts either way. A
    request with more tokens than the limit gets its permit when it is the only one in its window.

    Each provider has one. Providers with the same key at the same vendor may share it.
    """

    def __init__(
        self,
        *,
        rpm: int | None = None,
        tpm: int | None = None,
        concurrency: int | None = None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        """Set the limits; None is no limit.

        Args:
            rpm: requests per minute.
            tpm: tokens per minute, responses included.
            concurrency: requests in progress.
            now: a monotonic clock, in seconds.
            sleep: how to wait.

        Raises:
            ConfigError: a limit is below 1.
        """
        for name, limit in (("rpm", rpm), ("tpm", tpm), ("concurrency", concurrency)):
            if limit is not None and limit < 1:
                raise ConfigError(
                    f"The rate limit {name} is {limit}: it lets nothing through.",
                    advice="Give a number above 0, or leave the limit out.",
                )
        self._rpm = rpm
        self._tpm = tpm
        self._slots = None if concurrency is None else anyio.Semaphore(concurrency)
        self._turn = anyio.Lock()
        self._minute: deque[RequestPermit] = deque()
        self._now = now
        self._sleep = sleep

    @property
    def tpm(self) -> int | None:
        """Tokens per minute, or None for no limit."""
        return self._tpm

    @asynccontextmanager
    async def acquire(self, tokens: int = 0) -> AsyncGenerator[RequestPermit]:
        """Wait for a permit, and hold it during one request. A waiter may be cancelled.

        Args:
            tokens: estimated tokens of the request and its response.
        """
        if self._slots is None:
            yield await self._admit(tokens)
            return
        async with self._slots:
            yield await self._admit(tokens)

    def release(self, place: RequestPermit) -> None:
        """Release the permit of a request that was not sent."""
        if place in self._minute:
            self._minute.remove(place)

    async def _admit(self, tokens: int) -> RequestPermit:
        place = RequestPermit(tokens)
        if self._rpm is None and self._tpm is None:
            return place
        # Both the semaphore and the lock are fair: first come, first served.
        async with self._turn:
            while wait := self._wait_for(tokens):
                await self._sleep(wait)
            place.since = self._now()
            self._minute.append(place)
        return place

    def _wait_for(self, tokens: int) -> float:
        """Return the seconds until the next permit may become free; 0 if there is one now."""
        now = self._now()
        while self._minute and self._minute[0].since + _MINUTE <= now:
            self._minute.popleft()
        if not self._minute or not (self._exceeds_requests() or self._exceeds_tokens(tokens)):
            return 0.0
        return self._minute[0].since + _MINUTE - now

    def _exceeds_requests(self) -> bool:
        return self._rpm is not None and len(self._minute) >= self._rpm

    def _exceeds_tokens(self, tokens: int) -> bool:
        if self._tpm is None:
            return False
        taken = sum(place.tokens for place in self._minute)
        return taken > 0 and taken + tokens > self._tpm


class CircuitBreaker(Breaker):
    """Circuit breaker for requests to one model; see `Breaker`.

    Each provider has one. Providers of the same model at the same address may share it.
    """

    @contextmanager
    def request(self, *, title: str, provider: str = "") -> Generator[None]:
        """Guard one request, and record its outcome.

        Args:
            title: display name of the vendor, for messages.
            provider: `LLMError.provider`.

        Raises:
            LLMError: with failure `unavailable`: the circuit is open.
        """

        def refuse(message: str, left: float) -> LLMError:
            return LLMError(
                message,
                advice="Wait, or use another model.",
                failure="unavailable",
                provider=provider,
                retry_after=left or None,
            )

        with self.guard(title, refuse=refuse):
            yield

    def is_transient(self, error: LoomError) -> bool | None:
        """Return whether a model error is transient; None for other errors."""
        return error.is_transient if isinstance(error, ModelError) else None
