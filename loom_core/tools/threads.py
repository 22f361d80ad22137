"""Threads for tools that block: their own, so that a tool that hangs keeps none from anything else."""

from __future__ import annotations

import anyio
from anyio.lowlevel import RunVar

__all__ = ["tool_threads"]

_MOST = 40

_limiter = RunVar[anyio.CapacityLimiter]("tool_threads")


def tool_threads() -> anyio.CapacityLimiter:
    """The limiter of this event loop to run tools in threads with."""
    try:
        return _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_MOST)
        _limiter.set(limiter)
        return limiter
