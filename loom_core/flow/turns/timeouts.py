"""How long models and sources are waited for while one message is taken."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, MutableMapping
from typing import Literal, TypeVar

import anyio

from loom_core.errors import LLMError
from loom_core.redaction import without_assigned

__all__ = ["Patience"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_MOST_SECONDS = 44.0  # all together: clients give up a call after sixty


class Patience:
    """That of one message, from the moment in which it came.

    Args:
        since: that moment, as `time.perf_counter`.
        timings: seconds that each part has taken; what is waited for adds to them.
    """

    def __init__(self, *, since: float, timings: MutableMapping[str, float]) -> None:
        self._until = since + _MOST_SECONDS
        self._timings = timings

    def left(self, seconds: float) -> float:
        """How much of some seconds the message has left."""
        return max(min(seconds, self._until - time.perf_counter()), 0.0)

    async def by_model(
        self, what: Literal["decision", "answer"], asked: Awaitable[_T], *, seconds: float
    ) -> tuple[_T | None, str]:
        """What a model says; None where it fails or takes too long, and why.

        Args:
            what: what it is asked for.
            asked: waits for it.
            seconds: how long that may take.
        """
        began, found, problem = time.perf_counter(), None, ""
        limit = self.left(seconds)
        with anyio.move_on_after(limit) as waiting:
            try:
                found = await asked
            except LLMError as error:
                problem = without_assigned(error.message)
        if waiting.cancelled_caught:
            problem = f"The model took longer than {limit:.3g} s."
        if problem:
            _log.warning("no %s by the model: %s", what, problem)
        self._timings[what] = time.perf_counter() - began
        return found, problem
