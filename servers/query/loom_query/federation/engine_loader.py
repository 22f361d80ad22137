"""Lazy import of the modules for local knowledge bases and generation, at the first question."""

from __future__ import annotations

from importlib import import_module

import anyio
from anyio import to_thread

__all__ = ["EngineLoader"]

_MODULES = ("loom_core.knowledge.rag.knowledge_base", "loom_core.knowledge.retrieval.patterns")


class EngineLoader:
    """Loader of the modules for knowledge bases and generation, which take a second to import.

    Sources are asked concurrently, each in its own threads. One thread imports everything first: no deadline
    includes that time, and some libraries may not be safe when two threads import them for the first time at
    once.

    Attributes:
        turn: lock held during the import; hold it for other first imports.
    """

    def __init__(self) -> None:
        self.turn = anyio.Lock()
        self._loaded = False

    async def load(self) -> None:
        """Import the modules, or wait until another task has."""
        async with self.turn:
            if not self._loaded:
                await to_thread.run_sync(_import_all)
                self._loaded = True


def _import_all() -> None:
    for module in _MODULES:
        import_module(module)
