"""Preparer: few documents of safe formats in this process, many and risky ones in child processes."""

from __future__ import annotations

import os
import queue
import threading
import time
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.knowledge.ingest.loaders import LoadLimits
from loom_core.knowledge.ingest.workers.preparation import is_foreign, prepare
from loom_core.knowledge.ingest.workers.wire import json_frame
from loom_core.knowledge.ingest.workers.worker import IngestWorker, WorkerLimits, WorkItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from loom_core.knowledge.ingest.pipeline import Pipeline
    from loom_core.knowledge.ingest.workers.child import WorkerSettings
    from loom_core.knowledge.store.prepared_documents import JobItem, Prepared

__all__ = ["Preparation", "Preparer", "WorkerPool"]

_MANY = 64  # documents, or
_MUCH = 192 << 10  # bytes of text, that take about as long to prepare here as a child takes to start
_LOOK_SECONDS = 0.25  # interval of checking children while a caller waits for them
_MOST_CHILDREN = 4


class Preparation:
    """Some items in preparation.

    Attributes:
        made: the outcome of each, in order; None while it is not known.
    """

    def __init__(self, count: int) -> None:
        self.made: list[Prepared | None] = [None] * count
        self._left = count
        self._lock = threading.Lock()
        self._done = threading.Event()
        if not count:
            self._done.set()

    @property
    def done(self) -> bool:
        """Whether the outcome of all of them is known."""
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until all are done, or some time has passed. Blocks.

        Returns:
            Whether all are done.
        """
        return self._done.wait(seconds)

    def deliver(self, place: int, result: Prepared) -> None:
        """Set the outcome of the item at a place."""
        with self._lock:
            self.made[place] = result
            self._left -= 1
            if not self._left:
                self._done.set()


class Preparer:
    """Prepares documents, in this process or in child processes.

    Child processes are used if there is much to do or a third-party library parses a file: they use the other
    processors, keep this process free for questions, and may crash, hang or run out of memory
    without harm. A note is prepared in this process, without waiting for a child to start.

    Args:
        pipeline: the pipeline; without a `recipe` everything is prepared in this process.
        limits: limits of a file.
        children: maximum number of processes; None for one per processor, at most four. With 0 everything is
            prepared in this process.
        child_limits: limits of a child.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        limits: LoadLimits | None = None,
        children: int | None = None,
        child_limits: WorkerLimits | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._files = limits or LoadLimits()
        count = min(_MOST_CHILDREN, os.cpu_count() or 1) if children is None else children
        self._children: WorkerPool | None = None
        if count and pipeline.recipe is not None:
            self._children = WorkerPool(
                pipeline, files=self._files, limits=child_limits or WorkerLimits(), count=count
            )
        self._orders: list[WorkItem] = []

    def begin(self, items: Sequence[JobItem]) -> Preparation:
        """Begin to prepare items. `work` prepares those that stay in this process."""
        preparation = Preparation(len(items))
        orders = [WorkItem(item, _deliverer(preparation, place)) for place, item in enumerate(items)]
        children = self._children
        if children is None:
            self._orders += orders
        elif self._is_much(children, items):
            children.submit(orders)
        else:
            foreign = [is_foreign(item) for item in items]
            children.submit(order for order, is_risky in zip(orders, foreign, strict=True) if is_risky)
            self._orders += [order for order, is_risky in zip(orders, foreign, strict=True) if not is_risky]
        return preparation

    def work(self, preparation: Preparation) -> bool:
        """Prepare items in this process, or wait for the children, for a moment. Blocks.

        Returns:
            Whether all of a preparation is done.
        """
        until = time.monotonic() + _LOOK_SECONDS
        while self._orders and not preparation.done:
            order = self._orders.pop(0)
            order.deliver(prepare(order.item, pipeline=self._pipeline, limits=self._files))
            if time.monotonic() > until:
                return preparation.done
        if self._children is not None:
            self._children.end_overdue()
        return preparation.wait(max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """Stop all preparation and end the children; `begin` starts them again."""
        self._orders.clear()
        if self._children is not None:
            self._children.close()

    @staticmethod
    def _is_much(children: WorkerPool, items: Sequence[JobItem]) -> bool:
        if children.running or len(items) >= _MANY:
            return bool(items)
        return sum(item.size for item in items) >= _MUCH


def _deliverer(preparation: Preparation, place: int) -> Callable[[Prepared], None]:
    return lambda result: preparation.deliver(place, result)


class WorkerPool:
    """Pool of up to `count` child processes that prepare documents, started on demand.

    Args:
        pipeline: the pipeline that the children recreate; it must have a configuration.
        files: limits of a file.
        limits: limits of a child.
        count: maximum number of children.

    Raises:
        ConfigError: the pipeline has no configuration.
    """

    def __init__(self, pipeline: Pipeline, *, files: LoadLimits, limits: WorkerLimits, count: int) -> None:
        self._settings = json_frame(_settings(pipeline, files, limits))
        self._limits = limits
        self._count = count
        self._substitute = partial(prepare, pipeline=pipeline, limits=files)
        self._orders: queue.Queue[WorkItem | None] = queue.Queue()
        self._lock = threading.Lock()
        self._keepers: set[IngestWorker] = set()

    @property
    def running(self) -> bool:
        """Whether there is any child now."""
        return bool(self._keepers)

    def submit(self, orders: Iterable[WorkItem]) -> None:
        """Submit items; the children take them in this order."""
        with self._lock:
            for order in orders:
                self._orders.put(order)
            while len(self._keepers) < min(self._count, self._orders.qsize()):
                self._keepers.add(
                    IngestWorker(
                        self._settings,
                        self._limits,
                        self._orders,
                        retire=self._retire,
                        substitute=self._substitute,
                    )
                )

    def end_overdue(self) -> None:
        """Kill the children that exceed the time limit of a document; the waiting thread calls this."""
        for keeper in list(self._keepers):
            keeper.end_overdue()

    def close(self) -> None:
        """End all children now; their current items are not delivered."""
        with self._lock:
            keepers, self._keepers = self._keepers, set()
            while not self._orders.empty():
                self._orders.get_nowait()
            for keeper in keepers:
                keeper.end()

    def _retire(self, keeper: IngestWorker) -> bool:
        """Retire an idle worker; return False if there is work again."""
        with self._lock:
            if not self._orders.empty():
                return False
            self._keepers.discard(keeper)
            return True


def _settings(pipeline: Pipeline, files: LoadLimits, limits: WorkerLimits) -> WorkerSettings:
    recipe = pipeline.recipe
    if recipe is None:
        raise ConfigError(
            "Another process cannot create this pipeline.", advice="Create it from a recipe: Pipeline.of."
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
