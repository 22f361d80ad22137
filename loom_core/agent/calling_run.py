"""The run that makes a call, for tools that start runs of their own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from loom_core.agent.spending import remaining_budget

if TYPE_CHECKING:
    from loom_core.runs.executor import RunRecorder
    from loom_core.runs.human_broker import HumanInputPolicy
    from loom_core.runs.journal import Journal
    from loom_core.runs.run import Budget, Run

__all__ = ["USAGE_KEY", "CallingRun", "calling_from", "calling_run"]

USAGE_KEY = "loom/spent"
"""Where the output of a tool (`ToolOutput.metadata`) has a `Spent`: what was taken for the call, and counts
for the run that made it. Turns and seconds do not: a run counts its own."""

_calling: ContextVar[CallingRun | None] = ContextVar("_calling", default=None)


class CallingRun:
    """The run that makes a call."""

    def __init__(self, record: RunRecorder[Any], asking: HumanInputPolicy) -> None:
        self._record = record
        self._asking = asking
        self._inner: list[Callable[[], Coroutine[Any, Any, None]]] = []

    @property
    def run(self) -> Run:
        """As it stands."""
        return self._record.run

    @property
    def journal(self) -> Journal:
        """Where it is."""
        return self._record.journal

    @property
    def remaining_budget(self) -> Budget:
        """What it may still take."""
        record = self._record
        return remaining_budget(self.run.request.budget, record.spent, granted_from=record.granted_from)

    @property
    def child_policy(self) -> HumanInputPolicy:
        """Whom a run for one of its calls asks: its own people, who are asked by the call."""
        return replace(self._asking, approve=None, orders=True, seconds=None)

    @property
    def can_ask(self) -> bool:
        """Whether it has anybody to ask."""
        return self._asking.has_approver

    @contextmanager
    def attach_child(self, leave: Callable[[], Coroutine[Any, Any, None]]) -> Generator[None]:
        """A run for a call of this one is driven in the block: it is left when this one is."""
        self._inner.append(leave)
        try:
            yield
        finally:
            self._inner.remove(leave)

    async def detach(self) -> None:
        """Leave the runs that are driven for its calls; see `Driving.leave`."""
        async with anyio.create_task_group() as group:
            for leave in self._inner:
                group.start_soon(leave)


def calling_run() -> CallingRun | None:
    """The run for which this task makes a call; None where it makes none."""
    return _calling.get()


@contextmanager
def calling_from(run: CallingRun) -> Generator[None]:
    """Let what is called in the block be calls of a run."""
    token = _calling.set(run)
    try:
        yield
    finally:
        _calling.reset(token)
