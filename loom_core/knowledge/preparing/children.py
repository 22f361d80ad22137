"""The child processes that prepare documents."""

from __future__ import annotations

import queue
import threading
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.knowledge.preparing.keeper import Keeper
from loom_core.knowledge.preparing.making import made
from loom_core.knowledge.preparing.wire import json_frame

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom_core.knowledge.loaders import LoadLimits
    from loom_core.knowledge.pipeline import Pipeline
    from loom_core.knowledge.preparing.child import Settings
    from loom_core.knowledge.preparing.keeper import ChildLimits, Order

__all__ = ["Children"]


class Children:
    """Prepares documents in up to `count` child processes, which are started when there is work.

    Args:
        pipeline: what the children are to do the same as; it must have a recipe.
        files: what a file may be at the most.
        limits: what a child may take.
        count: how many there are at the most.

    Raises:
        ConfigError: the pipeline has no recipe.
    """

    def __init__(self, pipeline: Pipeline, *, files: LoadLimits, limits: ChildLimits, count: int) -> None:
        self._settings = json_frame(_settings(pipeline, files, limits))
        self._limits = limits
        self._count = count
        self._substitute = partial(made, pipeline=pipeline, limits=files)
        self._orders: queue.Queue[Order | None] = queue.Queue()
        self._lock = threading.Lock()
        self._keepers: set[Keeper] = set()

    @property
    def running(self) -> bool:
        """Whether there is any child now."""
        return bool(self._keepers)

    def order(self, orders: Iterable[Order]) -> None:
        """Have materials prepared; the children take them in this order."""
        with self._lock:
            for order in orders:
                self._orders.put(order)
            while len(self._keepers) < min(self._count, self._orders.qsize()):
                self._keepers.add(
                    Keeper(
                        self._settings,
                        self._limits,
                        self._orders,
                        retire=self._retire,
                        substitute=self._substitute,
                    )
                )

    def end_overdue(self) -> None:
        """Kill the children that have been at one document for too long; whoever waits calls this."""
        for keeper in list(self._keepers):
            keeper.end_overdue()

    def close(self) -> None:
        """End all children now; what they are at is not delivered."""
        with self._lock:
            keepers, self._keepers = self._keepers, set()
            while not self._orders.empty():
                self._orders.get_nowait()
            for keeper in keepers:
                keeper.end()

    def _retire(self, keeper: Keeper) -> bool:
        """Let a keeper go that found nothing to do; False if there is something after all."""
        with self._lock:
            if not self._orders.empty():
                return False
            self._keepers.discard(keeper)
            return True


def _settings(pipeline: Pipeline, files: LoadLimits, limits: ChildLimits) -> Settings:
    recipe = pipeline.recipe
    if recipe is None:
        raise ConfigError(
            "Another process cannot make this pipeline.", advice="Make it of a recipe: Pipeline.of."
        )
    return {
        "id": pipeline.id,
        "chunker": recipe.chunker,
        "options": recipe.options,
        "rules": None if recipe.rules is None else asdict(recipe.rules),
        "limits": asdict(files),
        "memory": limits.memory,
        "deadline": limits.deadline,
    }
