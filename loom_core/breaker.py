"""Circuit breaker: stop calling a model or host for a while after repeated failures."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from loom_core.errors import LoomError, capitalise
from loom_core.observability.families import BREAKER_STATE
from loom_core.observability.metrics import process_metrics
from loom_core.observability.weak_registry import WeakRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from loom_core.observability.registry import Sample

__all__ = ["Breaker"]

_log = logging.getLogger(__name__)
_STATES = {"closed": 0.0, "trial": 1.0, "open": 2.0}
_breakers: WeakRegistry[Breaker] = WeakRegistry()


class Breaker(ABC):
    """Circuit breaker for one model or host.

    After `failures` passing failures in a row it is open: nothing is let through for `first_pause` seconds.
    Then one request is, as a trial. If that fails, too, the next pause is twice as long, `longest_pause` at
    most; if there is an answer, all is well again. A failure that does not pass (a wrong key, a request that
    is not taken) is an answer here: the service is up. A request that was cancelled says nothing.

    Which errors are such failures is for who derives from this class to say.
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
        self._title = ""  # of whom it was last asked about
        _breakers.add(self)

    @property
    def title(self) -> str:
        """Whom it was last asked about, as people know them; empty before."""
        return self._title

    @property
    def state(self) -> Literal["closed", "open", "trial"]:
        """Whether requests are let through: all; none; or one, to see whether there is an answer again."""
        if not self._pause:
            return "closed"
        return "open" if self._trial or self._now() < self._until else "trial"

    @contextmanager
    def guard(self, title: str, *, refuse: Callable[[str, float], LoomError]) -> Generator[None]:
        """Guard one request, and count its failure.

        Args:
            title: whom people know the other as, for messages.
            refuse: makes the error that says that nothing is let through, of a message that says so and the
                seconds until something is: 0 where that is being tried now.

        Raises:
            LoomError: that one, when it is entered while nothing is let through.
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
        """Return whether an error is a transient failure; None if it says nothing about the model or host."""

    def record_success(self) -> None:
        """Note that an answer has begun: a trial that is going on has succeeded by that."""
        if self._trial is not None:
            self._close()

    def _enter(self, title: str, refuse: Callable[[str, float], LoomError]) -> object | None:
        """Let a request through; what it is known by if it is the trial, else None."""
        state = self.state
        if state == "open":
            left = max(0.0, self._until - self._now())
            when = "is being tried now" if self._trial else f"is asked again in {left:.0f} s"
            raise refuse(
                f"{capitalise(title)} is left alone after {self._failures} failures in a row, and {when}. "
                f"The last one: {self._reason}",
                left,
            )
        self._trial = object() if state == "trial" else None
        return self._trial

    def _leave(self, error: BaseException | None, *, mine: object | None, title: str) -> None:
        if mine is not None and self._trial is mine:
            self._trial = None
        elif self._pause:
            return  # it was on its way when the breaker opened: only the trial counts now
        passes = self.is_transient(error) if isinstance(error, LoomError) else None
        if isinstance(error, LoomError) and passes:
            self._record_failure(error, title=title)
        elif error is None or passes is False or isinstance(error, GeneratorExit):
            # GeneratorExit: a stream that was left early, after its beginning had come.
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
            "%s failed %d times in a row (%s); it is left alone for %.0f s",
            capitalise(title),
            self._failures,
            getattr(error, "failure", type(error).__name__),
            self._pause,
        )


def _states() -> list[Sample]:
    return [((each.title,), _STATES[each.state]) for each in _breakers.all() if each.title]


process_metrics.watch(BREAKER_STATE, _states)
