"""Exponential backoff with jitter, the retry policy for requests to models, and the `Retry-After` header."""

from __future__ import annotations

import logging
import random
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, TypeVar

import anyio

from loom_core.errors import LLMError, ModelError, capitalise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

__all__ = ["Backoff", "RetryPolicy", "retry_after"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential backoff with jitter.

    The n-th wait is between half and all of `base * 2**(n-1)` seconds, `cap` at most. The random half keeps
    clients that failed together from coming back together. The fixed half is there because attempts are few:
    they must not be used up in the short time in which a service is at capacity.

    Attributes:
        base: seconds; the longest first wait.
        cap: seconds; the longest wait of our own choice.
        random: a number in [0, 1).
    """

    base: float = 0.5
    cap: float = 30.0
    random: Callable[[], float] = field(default=random.random, repr=False, compare=False)

    def pause(self, number: int) -> float:
        """Return the seconds to wait after the `number`-th attempt in a row has failed."""
        ceiling = min(self.cap, self.base * 2 ** min(number - 1, 30))
        return ceiling * (0.5 + 0.5 * self.random())


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy(Backoff):
    """Retry policy: attempts, backoff and deadline of a request.

    A delay that the vendor asks for is added to that of the backoff.

    Attributes:
        attempts: maximum number of attempts.
        longest_wait: seconds; if the vendor asks for a longer wait, the error is raised at once.
        deadline: seconds for everything together: attempts, waits, and what an attempt waits for.
        sleep: how to wait.
    """

    attempts: int = 4
    longest_wait: float = 60.0
    deadline: float = 300.0
    sleep: Callable[[float], Awaitable[None]] = field(default=anyio.sleep, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ValueError: there is no attempt, or a time is negative.
        """
        if self.attempts < 1:
            raise ValueError(f"attempts has to be at least 1, not {self.attempts}")
        if min(self.base, self.cap, self.longest_wait, self.deadline) < 0:
            raise ValueError("base, cap, longest_wait and deadline are seconds, and not negative")

    async def run(
        self,
        attempt: Callable[[], Awaitable[_T]],
        *,
        title: str,
        provider: str = "",
        kind: type[ModelError] = LLMError,
    ) -> _T:
        """Return the result of an attempt, with retries and backoff.

        Args:
            attempt: makes the request once. It is called again for each attempt.
            title: display name of the vendor, for messages.
            provider: `ModelError.provider` of the error for a passed deadline.
            kind: class of that error.

        Raises:
            ModelError: the error of the last attempt, if it is not transient, no attempts are left, or there
                is no time for another; otherwise one with failure `timeout`. Other exceptions pass through.
        """
        ends = anyio.current_time() + self.deadline
        number, last = 0, None
        with anyio.move_on_after(self.deadline):
            while True:
                number += 1
                try:
                    return await attempt()
                except ModelError as error:
                    wait = self._wait_after(error, number=number, left=ends - anyio.current_time())
                    last = error
                _log.info("%s: %s; attempt %d follows in %.1f s", title, last.failure, number + 1, wait)
                await self.sleep(wait)
        why = f" The last attempt failed: {last.message}" if last else ""
        raise kind(
            capitalise(f"{title} gave no answer within {self.deadline:g} s.{why}"),
            advice="Ask for less at once, or allow a longer `deadline`: waits for your limits count, too.",
            failure="timeout",
            provider=provider,
        ) from last

    def _wait_after(self, error: ModelError, *, number: int, left: float) -> float:
        """Return the seconds to wait after the `number`-th attempt, with `left` to go; or raise the error."""
        if not error.is_transient:
            raise error
        if number == self.attempts:
            raise error if number == 1 else error.reword(f"{error.message} It was tried {number} times.")
        asked = error.retry_after or 0.0
        if not asked <= self.longest_wait:
            raise error.reword(
                f"{error.message} The vendor asks to wait {asked:.0f} s, which is too long.",
                advice=f"Ask again in {asked:.0f} s, or use another model.",
            )
        wait = max(asked, 0.0) + self.pause(number)
        if wait >= left:
            raise error.reword(
                f"{error.message} It was tried {number} of {self.attempts} times; there is no time for more."
            )
        return wait


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the delay in seconds that a `Retry-After` header asks for; None if there is none.

    Args:
        headers: of the response; names in lower case, or a mapping that ignores case.
    """
    if (seconds := _seconds(headers.get("retry-after-ms", ""))) is not None:
        return seconds / 1000
    given = headers.get("retry-after", "")
    if (seconds := _seconds(given)) is not None:
        return seconds
    if (then := _time(given)) is not None:
        now = _time(headers.get("date", "")) or datetime.now(UTC)
        return max(0.0, (then - now).total_seconds())
    return None


def _seconds(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\s*\d{1,9}(?:\.\d{1,9})?\s*", text, re.ASCII) else None


def _time(text: str) -> datetime | None:
    try:
        time = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # the latter for numbers of many digits
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
