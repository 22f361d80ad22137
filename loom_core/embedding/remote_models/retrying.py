"""Patience with a server that embeds: how long it is asked, and when it is left alone."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import anyio

from loom_core.errors import EmbeddingError, capitalised, unwrapped
from loom_core.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from loom_core.embedding.interface import EmbeddingKind
    from loom_core.embedding.remote_models.settings import RemoteSettings

__all__ = ["Patience"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_POLICIES: Mapping[EmbeddingKind, RetryPolicy] = {
    "query": RetryPolicy(attempts=2, base=0.2, longest_wait=2.0, deadline=10.0),
    "passage": RetryPolicy(attempts=4, base=0.5, longest_wait=60.0, deadline=60.0),
}
"""Somebody waits for a question, and words and graph can answer it; passages are tried again later."""

_SLOW_ADVICE = (
    "The server may still be loading the model: try again in a moment, or allow it more time (timeout)."
)
_WAITING_SECONDS = 3.0
"""After which it is told that the first answer is waited for."""


class Patience:
    """Tries requests again, and leaves the server alone for a while when it cannot be reached."""

    def __init__(self, settings: RemoteSettings) -> None:
        """Begin with a server that is asked."""
        self._settings = settings
        self._title = capitalised(settings.vendor.title)
        self._rests_until = 0.0
        self._last_failure = ""

    def policy(self, kind: EmbeddingKind) -> RetryPolicy:
        """How often and for how long a request is tried."""
        if self._settings.retry is not None:
            return self._settings.retry
        policy = _POLICIES[kind]
        if kind == "query":
            return policy
        return replace(policy, deadline=max(policy.deadline, 2 * self._settings.timeout))

    def first(self) -> RetryPolicy:
        """The same for the first request, for which the server may have to load the model."""
        return self._settings.retry or replace(_POLICIES["query"], deadline=2 * self._settings.timeout)

    def check(self) -> None:
        """See whether the server is to be asked now.

        Raises:
            EmbeddingError: of failure `unavailable`: it is not.
        """
        left = self._rests_until - time.monotonic()
        if left > 0:
            raise EmbeddingError(
                f"{self._title} is left alone for {left:.0f} s: {self._last_failure}",
                advice="Check that the server runs, and the network.",
                failure="unavailable",
                provider=self._settings.vendor.name,
            )

    async def run(self, attempt: Callable[[], Awaitable[_T]], *, policy: RetryPolicy) -> _T:
        """What a request returns, at last; see `RetryPolicy.run`.

        Raises:
            EmbeddingError: the last attempt failed, or the time is over.
        """
        vendor = self._settings.vendor
        try:
            return await policy.run(attempt, title=vendor.title, provider=vendor.name, kind=EmbeddingError)
        except EmbeddingError as error:
            if error.failure in {"connection", "timeout"}:
                self._rests_until = time.monotonic() + self._settings.rest
                self._last_failure = error.message
            if error.failure == "timeout":
                raise error.retold(error.message, advice=_SLOW_ADVICE) from None
            raise

    async def tell_while(self, doing: Awaitable[object]) -> None:
        """Wait for the first answer, and tell what is waited for, if it takes long."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._tell)
                await doing
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            raise unwrapped(group) from None

    async def _tell(self) -> None:
        await anyio.sleep(_WAITING_SECONDS)
        _log.warning(
            "%s has not answered with %s yet, and may be loading it: that is waited for, %g s at the most.",
            self._title,
            self._settings.model,
            self._settings.timeout,
        )
