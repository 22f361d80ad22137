"""Leaving a model alone for a while after it has failed again and again."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from loom_core.breaker import Breaker
from loom_core.errors import LLMError, LoomError, ModelError

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["CircuitBreaker"]


class CircuitBreaker(Breaker):
    """Lets requests to one model through, or not; see `Breaker`.

    A provider has its own. Providers of the same model at the same address may share one.
    """

    @contextmanager
    def request(self, *, title: str, provider: str = "") -> Generator[None]:
        """Around one request, whose errors it sees.

        Args:
            title: whom people know the vendor as, for messages.
            provider: `LLMError.provider`.

        Raises:
            LLMError: of failure `unavailable`, when it is entered while nothing is let through.
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
        """Whether an error of a model is passing; others say nothing of it."""
        return error.is_transient if isinstance(error, ModelError) else None
