"""Leaving a model alone for a while after it has failed again and again."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from loom_core.errors import LLMError, ModelError, capitalised

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["CircuitBreaker"]

_log = logging.getLogger(__name__)


class CircuitBreaker:
    """Lets requests to one model through, or not.

    After `failures` passing failures in a row it is open: nothing is let through for `first_pause` seconds.
    Then one request is, as a trial. If that fails, too, the next pause is twice as long, `longest_pause` at
    most; if the vendor answers, all is well again. A failure that does not pass (a wrong key, a request that
    it does not take) is an answer here: the vendor is there. A request that was cancelled says nothing.

    A provider has its own. Providers of the same model at the same address may share one.
    """

    def __init__(
        self,
        *,
        failures: int = 5,
        first_pause: float = 30.0,
        longest_pause: float = 300.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Close it.

        Args:
            failures: how many passing failures in a row open it.
            first_pause: seconds.
            longest_pause: seconds.
            now: seconds of a clock that never goes back.
        """
        self._limit = failures
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._now = now
        self._failures = 0
        self._pause = 0.0
        self._until = 0.0
        self._trial: object | None = None  # the request that is the trial now
        self._reason = ""

    @property
    def state(self) -> Literal["closed", "open", "trial"]:
        """Whether requests are let through: all; none; or one, to see whether the vendor answers again."""
        if not self._pause:
            return "closed"
        return "open" if self._trial or self._now() < self._until else "trial"

    @contextmanager
    def request(self, *, title: str, provider: str = "") -> Generator[None]:
        """Around one request, whose errors it sees.

        Args:
            title: whom people know the vendor as, for messages.
            provider: `LLMError.provider`.

        Raises:
            LLMError: of failure `unavailable`, when it is entered while nothing is let through.
        """
        mine = self._enter(title=title, provider=provider)
        seen: BaseException | None = None
        try:
            yield
        except BaseException as error:
            seen = error
            raise
        finally:
            self._leave(seen, mine=mine, title=title)

    def note_answer(self) -> None:
        """Note that the vendor has begun to answer: a trial that is going on has succeeded by that."""
        if self._trial is not None:
            self._close()

    def _enter(self, *, title: str, provider: str) -> object | None:
        """Let a request through; what it is known by if it is the trial, else None."""
        state = self.state
        if state == "open":
            left = max(0.0, self._until - self._now())
            when = "is being tried now" if self._trial else f"is asked again in {left:.0f} s"
            raise LLMError(
                f"{capitalised(title)} is left alone after {self._failures} failures in a row, and {when}. "
                f"The last one: {self._reason}",
                advice="Wait, or use another model.",
                failure="unavailable",
                provider=provider,
                retry_after=left or None,
            )
        self._trial = object() if state == "trial" else None
        return self._trial

    def _leave(self, error: BaseException | None, *, mine: object | None, title: str) -> None:
        if mine is not None and self._trial is mine:
            self._trial = None
        elif self._pause:
            return  # it was on its way when the breaker opened: only the trial counts now
        if isinstance(error, ModelError) and error.passing:
            self._failed(error, title=title)
        elif error is None or isinstance(error, ModelError | GeneratorExit):
            # GeneratorExit: a stream that was left early, after its beginning had come.
            self._close()

    def _close(self) -> None:
        self._failures, self._pause, self._trial = 0, 0.0, None

    def _failed(self, error: ModelError, *, title: str) -> None:
        self._failures += 1
        self._reason = error.message
        if self._failures < self._limit:
            return
        self._pause = min(2 * self._pause, self._longest_pause) if self._pause else self._first_pause
        self._until = self._now() + self._pause
        _log.warning(
            "%s failed %d times in a row (%s); it is left alone for %.0f s",
            capitalised(title),
            self._failures,
            error.failure,
            self._pause,
        )
