"""Where documents are prepared: few of Loom's own formats here, many and risky ones in children."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from loom_core.knowledge.loaders import LoadLimits
from loom_core.knowledge.preparing.children import Children
from loom_core.knowledge.preparing.keeper import ChildLimits, Order
from loom_core.knowledge.preparing.making import made
from loom_core.knowledge.preparing.material import is_foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom_core.knowledge.pipeline import Pipeline
    from loom_core.knowledge.preparing.making import Made
    from loom_core.knowledge.preparing.material import Material

__all__ = ["Preparation", "Preparer"]

_MANY = 64  # documents, and
_MUCH = 192 << 10  # bytes of text that take about as long to prepare here as a child takes to start
_LOOK_SECONDS = 0.25  # how often children are looked after while somebody waits for them
_MOST_CHILDREN = 4


class Preparation:
    """Some materials on their way.

    Attributes:
        made: what became of each, in order; None while that is not known.
    """

    def __init__(self, count: int) -> None:
        self.made: list[Made | None] = [None] * count
        self._left = count
        self._lock = threading.Lock()
        self._done = threading.Event()
        if not count:
            self._done.set()

    @property
    def done(self) -> bool:
        """Whether it is known what became of all of them."""
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until all are done, or some time has passed. Blocks.

        Returns:
            Whether all are done.
        """
        return self._done.wait(seconds)

    def deliver(self, place: int, result: Made) -> None:
        """Take in what became of the material at a place."""
        with self._lock:
            self.made[place] = result
            self._left -= 1
            if not self._left:
                self._done.set()


class Preparer:
    """Prepares documents, here or in children.

    Children are used where there is much to do or a foreign library parses a file: they use the other
    processors, leave this process' interpreter to questions, and may crash, hang or run out of memory
    without harm. A note is prepared here, so that it need not wait for a process to start.

    Args:
        pipeline: prepares; without a recipe everything is prepared here.
        limits: what a file may be at the most.
        children: how many processes at the most; None for one to four, as there are processors. With 0
            everything is prepared here.
        child_limits: what a child may take.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        limits: LoadLimits | None = None,
        children: int | None = None,
        child_limits: ChildLimits | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._files = limits or LoadLimits()
        count = min(_MOST_CHILDREN, os.cpu_count() or 1) if children is None else children
        self._children: Children | None = None
        if count and pipeline.recipe is not None:
            self._children = Children(
                pipeline, files=self._files, limits=child_limits or ChildLimits(), count=count
            )
        self._orders: list[Order] = []

    def begin(self, materials: Sequence[Material]) -> Preparation:
        """Begin to prepare materials. Those that are prepared here are so by `work`."""
        preparation = Preparation(len(materials))
        orders = [Order(material, _deliverer(preparation, place)) for place, material in enumerate(materials)]
        children = self._children
        if children is None:
            self._orders += orders
        elif self._is_much(children, materials):
            children.order(orders)
        else:
            foreign = [is_foreign(material) for material in materials]
            children.order(order for order, is_risky in zip(orders, foreign, strict=True) if is_risky)
            self._orders += [order for order, is_risky in zip(orders, foreign, strict=True) if not is_risky]
        return preparation

    def work(self, preparation: Preparation) -> bool:
        """Prepare what is to be prepared here, or wait for the children, for a moment. Blocks.

        Returns:
            Whether all of a preparation is done.
        """
        until = time.monotonic() + _LOOK_SECONDS
        while self._orders and not preparation.done:
            order = self._orders.pop(0)
            order.deliver(made(order.material, pipeline=self._pipeline, limits=self._files))
            if time.monotonic() > until:
                return preparation.done
        if self._children is not None:
            self._children.end_overdue()
        return preparation.wait(max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """Stop all that is under way and end the children; `begin` starts them again."""
        self._orders.clear()
        if self._children is not None:
            self._children.close()

    @staticmethod
    def _is_much(children: Children, materials: Sequence[Material]) -> bool:
        if children.running or len(materials) >= _MANY:
            return bool(materials)
        return sum(material.size for material in materials) >= _MUCH


def _deliverer(preparation: Preparation, place: int) -> Callable[[Made], None]:
    return lambda result: preparation.deliver(place, result)
