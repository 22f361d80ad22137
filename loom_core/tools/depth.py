"""Call depth: the number of Loom programs above the current task, each called by the one before.

A server gets the depth with each call, and passes it on with its own calls: this detects cycles of servers,
also of servers that did not start each other.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["DEPTH_META_KEY", "current_depth", "inherit_depth"]

DEPTH_META_KEY = "loom/depth"
"""Key of the call depth in `_meta` of a call's parameters."""

_MOST = 1000

_depth: ContextVar[int] = ContextVar("depth", default=0)


def current_depth() -> int:
    """Return the call depth of this task; 0 if none was set."""
    return _depth.get()


@contextmanager
def inherit_depth(meta: Mapping[str, object] | None) -> Generator[None]:
    """Set the call depth from a call's `_meta` within the block; an invalid value counts as 0."""
    said = (meta or {}).get(DEPTH_META_KEY)
    token = _depth.set(min(max(said, 0), _MOST) if type(said) is int else 0)
    try:
        yield
    finally:
        _depth.reset(token)
