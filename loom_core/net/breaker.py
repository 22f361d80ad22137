"""Circuit breaker: stop calling a model or host for a while after repeated failures."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from loom_core.errors import LoomError
from loom_core.observability.families import BREAKER_STATE
from loom_core.observability.metrics import process_metrics
from loom_core.observability.registry import WeakRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Self

    from loom_core.observability.registry import Sample

__all__ = ["Breaker"]

_log = logging.getLogger(__name__)
_STATES = {"closed": 0.0, "half_open": 1.0, "open": 2.0}
_breakers: WeakRegistry[Breaker] = WeakRegistry()


class Breaker(ABC):
    """Circuit breaker for one model or host.

    After `failures` consecutive transient failures it is open: it rejects every request for `first_pause`
    seconds. Then it is half-open: it lets one trial request through. If the trial fails, the next pause is
    twice as long, at most `longest_pause`; if it succeeds, the breaker closes. A permanent error (a wrong
    key, an invalid request) counts as a success: the service is up. A cancelled request does not count.

    Subclasses define which errors are transient.
    """

    def __init__(
        self,
        *,
        failures: int = 5,
        first_pause: float = 30.0,
        longest_pause: float = 300.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a closed breaker.

        Args:
            failures: number of consecutive transient failures that open it.
            first_pause: seconds before the first trial request.
            longest_pause: maximum of the pause, in seconds.
            now: monotonic clock, in seconds.
        """
        self._limit = failures
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._now = now
        self._failures = 0
        self._pause = 0.0
        self._until = 0.0
        self._trial: object | None = None  # token of the trial request under way
        self._reason = ""
        self._title = ""  # of the latest request
        _breakers.add(self)

    @property
    def title(self) -> str:
        """Display name of the model or host in the latest request; empty before the first."""
        return self._title

    @property
    def state(self) -> Literal["closed", "open", "half_open"]:
        """State: closed lets all requests through, open none, half-open one trial request."""
        if not self._pause:
            return "closed"
        return "open" if self._trial or self._now() < self._until else "half_open"

    @contextmanager
    def guard(self, title: str, *, refuse: Callable[[str, float], LoomError]) -> Generator[None]:
        """Guard one request, and record its outcome.

        Args:
            title: display name of the model or host, for messages.
            refuse: creates the error for a rejected request, from a message and the seconds until the next
                trial request (0 while one is under way).

        Raises:
            LoomError: the error that `refuse` creates, if the circuit is open.
        """
        self._title = title
        mine = self._enter(title, refuse)
        seen: BaseException | None = None
        try:
            yield
        except BaseException as error:
            seen = error
            raise
        finally:
            self._leave(seen, mine=mine, title=title)

    @abstractmethod
    def is_transient(self, error: LoomError) -> bool | None:
        """Return whether an error is transient; None if it does not count for this model or host."""

    def renew(self) -> Self:
        """Return a closed breaker with the same settings, for another model or host."""
        return type(self)(
            failures=self._limit,
            first_pause=self._first_pause,
            longest_pause=self._longest_pause,
            now=self._now,
        )

    def record_success(self) -> None:
        """Close the circuit if a trial request is in progress: its response has begun."""
        if self._trial is not None:
            self._close()

    def _enter(self, title: str, refuse: Callable[[str, float], LoomError]) -> object | None:
        """Admit a request; return its token if it is the trial request, else None."""
        state = self.state
        if state == "open":
            left = max(0.0, self._until - self._now())
            when = "a trial request is in progress" if self._trial else f"retrying in {left:.0f} s"
            raise refuse(
                f"Circuit open for {title} after {self._failures} consecutive failures; {when}. "
                f"Last failure: {self._reason}",
                left,
            )
        self._trial = object() if state == "half_open" else None
        return self._trial

    def _leave(self, error: BaseException | None, *, mine: object | None, title: str) -> None:
        if mine is not None and self._trial is mine:
            self._trial = None
        elif self._pause:
            return  # it began before the circuit opened: only the trial counts now
        passes = self.is_transient(error) if isinstance(error, LoomError) else None
        if isinstance(error, LoomError) and passes:
            self._record_failure(error, title=title)
        elif error is None or passes is False or isinstance(error, GeneratorExit):
            # GeneratorExit: the caller closed a stream early, after its response had begun.
            self._close()

    def _close(self) -> None:
        self._failures, self._pause, self._trial = 0, 0.0, None

    def _record_failure(self, error: LoomError, *, title: str) -> None:
        self._failures += 1
        self._reason = error.message
        if self._failures < self._limit:
            return
        self._pause = min(2 * self._pause, self._longest_pause) if self._pause else self._first_pause
        self._until = self._now() + self._pause
        _log.warning(
            "Circuit open for %s after %d consecutive failures (%s); retrying in %.0f s",
            title,
            self._failures,
            getattr(error, "failure", type(error).__name__),
            self._pause,
        )


def _states() -> list[Sample]:
    return [((each.title,), _STATES[each.state]) for each in _breakers.all() if each.title]


process_metrics.watch(BREAKER_STATE, _states)
