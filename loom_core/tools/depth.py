"""How many of Loom's programs stand above what a task does, each called by the one before.

A server is told with each call, and says it with the calls that it makes for it: so servers that lead back to
each other are found out, also those that were not started by one another.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["DEPTH_META_KEY", "current_depth", "inherit_depth"]

DEPTH_META_KEY = "loom/depth"
"""Where a call says how many stand above it, as `_meta` of its parameters."""

_MOST = 1000

_depth: ContextVar[int] = ContextVar("depth", default=0)


def current_depth() -> int:
    """How many stand above what this task does; 0 where nobody has said it."""
    return _depth.get()


@contextmanager
def inherit_depth(meta: Mapping[str, object] | None) -> Generator[None]:
    """Let the block be what a call with this `_meta` has asked for; nonsense in it counts as nothing."""
    said = (meta or {}).get(DEPTH_META_KEY)
    token = _depth.set(min(max(said, 0), _MOST) if type(said) is int else 0)
    try:
        yield
    finally:
        _depth.reset(token)
