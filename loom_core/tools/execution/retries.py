"""Retries of tool calls: the policy, and the host that records and waits between two attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from loom_core.errors import InvalidInputError
from loom_core.net.retry import Backoff
from loom_core.tools.patterns import matcher
from loom_core.tools.toolbox import is_allowed

if TYPE_CHECKING:
    from loom_core.tools.calls import CallStatus, PlannedCall
    from loom_core.tools.interface import Tool, ToolFailure

__all__ = ["CallRetry", "RetryHost", "ToolRetries"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRetries(Backoff):
    """Retry policy for tool calls: how often a call is repeated that failed for a reason that passes.

    These are timeouts, failed connections, rate limits (429) and services that are unavailable (502 to 504).
    A read-only or idempotent tool is retried after each of them; any other tool only if it is certain that
    the call had no effect (`ToolFailure.nothing_done`), so no effect happens twice. A delay that a service
    asks for is added to that of the backoff.

    Attributes:
        retries: maximum number of retries of a call; and how often in a row a tool may ask the model for
            other arguments (`ToolRetry`) before it is not called any more. Tools may have another number
            (`Tool.retries`).
        longest_wait: seconds; a call is not retried if a service asks for a longer wait.
        tools: number of retries by name pattern, as in `github:*`; the first match counts, before the tool's
            own number.

    Raises:
        InvalidInputError: a number is negative.
        ConfigError: a pattern is invalid.
    """

    retries: int = 2
    cap: float = 8.0
    longest_wait: float = 60.0
    tools: Mapping[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        """Check the numbers and the patterns."""
        for pattern in self.tools:
            matcher(pattern)
        if min(self.retries, self.base, self.cap, self.longest_wait, *self.tools.values()) < 0:
            raise InvalidInputError(
                "Numbers of retries and seconds cannot be negative.", advice="Give 0 for no retries."
            )

    def limit_of(self, tool: Tool) -> int:
        """Return the maximum number of retries of a tool's call."""
        for pattern, retries in self.tools.items():
            if is_allowed(tool, (pattern,)):
                return retries
        return self.retries if tool.retries is None else tool.retries

    def wait_after(self, failure: ToolFailure | None, tool: Tool, *, made: int) -> float | None:
        """Return the seconds until the next attempt; None if there is none.

        Args:
            failure: failure of the last attempt; None if it passes by no retry.
            tool: the tool.
            made: attempts so far.
        """
        if failure is None or not failure.is_transient:
            return None
        if not (failure.nothing_done or tool.annotations.repeatable) or made > self.limit_of(tool):
            return None
        asked = max(failure.retry_after or 0.0, 0.0)
        return asked + self.pause(made) if asked <= self.longest_wait else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRetry:
    """A retry that is about to come, after a failed attempt.

    Attributes:
        status: status of the failed attempt.
        problem: why it failed.
        attempt: number of the next attempt, from 2.
        attempts: maximum number of attempts.
        wait: seconds until then.
    """

    status: CallStatus
    problem: str
    attempt: int
    attempts: int
    wait: float


class RetryHost(Protocol):
    """Host of the retries of a run's calls."""

    @property
    def retries(self) -> ToolRetries:
        """The policy."""
        ...

    @property
    def seconds_left(self) -> float:
        """Seconds that the run has left; infinite for no limit. A retry that comes later is not made."""
        ...

    def failed_attempts(self, planned: PlannedCall) -> int:
        """Return how many attempts of the call had failed before this execution, such as before a crash."""
        ...

    async def wait_for_retry(self, planned: PlannedCall, retry: CallRetry) -> None:
        """Record the failed attempt, and return when the next one may start.

        The call holds no slot meanwhile, and its tool is not running.
        """
        ...
