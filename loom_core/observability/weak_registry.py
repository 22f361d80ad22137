"""Weak registry of live instances, for gauges that read them."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar
from weakref import WeakSet

__all__ = ["WeakRegistry"]

_T = TypeVar("_T")


class WeakRegistry(Generic[_T]):
    """Weak registry of instances: it keeps no object alive. Thread-safe."""

    def __init__(self) -> None:
        self._objects: WeakSet[_T] = WeakSet()
        self._lock = threading.Lock()

    def add(self, one: _T) -> None:
        """Add an instance."""
        with self._lock:
            self._objects.add(one)

    def all(self) -> list[_T]:
        """Return all live instances."""
        with self._lock:
            return list(self._objects)
