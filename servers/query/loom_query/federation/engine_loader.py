"""Loading what answers from knowledge bases of our own, once, at the first question that needs it."""

from __future__ import annotations

from importlib import import_module

import anyio
from anyio import to_thread

__all__ = ["EngineLoader"]

_MODULES = ("loom_core.knowledge.rag.knowledge_base", "loom_core.knowledge.retrieval.patterns")


class EngineLoader:
    """The modules behind knowledge bases and generation, which take a second to import.

    Sources are asked side by side, each in threads of its own. One thread imports everything before: that
    counts for no deadline, and nobody knows of all libraries behind them whether two threads may import them
    for the first time at once.

    Attributes:
        turn: held while they are imported; hold it for whatever else may import for the first time.
    """

    def __init__(self) -> None:
        self.turn = anyio.Lock()
        self._loaded = False

    async def load(self) -> None:
        """Import them, or wait until they are."""
        async with self.turn:
            if not self._loaded:
                await to_thread.run_sync(_import_all)
                self._loaded = True


def _import_all() -> None:
    for module in _MODULES:
        import_module(module)
