"""Circuit breaker of a model: stop requests for a while after repeated failures."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from loom_core.errors import LLMError, LoomError, ModelError
from loom_core.net.breaker import Breaker

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["CircuitBreaker"]


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
