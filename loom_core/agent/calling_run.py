"""The calling run: context for tools that start child runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from loom_core.agent.spending import remaining_budget

if TYPE_CHECKING:
    from loom_core.llm.messages import Message
    from loom_core.runs.commands import HumanInputPolicy
    from loom_core.runs.executor import RunRecorder
    from loom_core.runs.journal import Journal
    from loom_core.runs.run import Budget, Run

__all__ = ["USAGE_KEY", "CallingRun", "calling_from", "calling_run"]

USAGE_KEY = "loom/spent"
"""Key of `ToolOutput.metadata` with a `RunUsage`: resources used by the call. They count for the calling run,
except turns and seconds, which each run counts for itself."""

_calling: ContextVar[CallingRun | None] = ContextVar("_calling", default=None)


class CallingRun:
    """The run that makes a call, as a tool sees it."""

    def __init__(self, record: RunRecorder[Any], asking: HumanInputPolicy) -> None:
        self._record = record
        self._asking = asking
        self._inner: list[Callable[[], Coroutine[Any, Any, None]]] = []

    @property
    def run(self) -> Run:
        """The run in its current state."""
        return self._record.run

    @property
    def journal(self) -> Journal:
        """The journal of the run."""
        return self._record.journal

    @property
    def conversation(self) -> Sequence[Message]:
        """The conversation of an agent's run, with the answer that makes the call."""
        return self._record.state.conversation()

    @property
    def remaining_budget(self) -> Budget:
        """The remaining budget."""
        record = self._record
        return remaining_budget(self.run.request.budget, record.spent, granted_from=record.granted_from)

    @property
    def child_policy(self) -> HumanInputPolicy:
        """The human input policy for child runs: their requests go through the calling run."""
        return replace(self._asking, approve=None, accepts_commands=True, seconds=None)

    @property
    def can_ask(self) -> bool:
        """Whether there is a person to ask."""
        return self._asking.has_approver

    @contextmanager
    def attach_child(self, leave: Callable[[], Coroutine[Any, Any, None]]) -> Generator[None]:
        """Attach a child run that is executed in the block: it is detached together with this run."""
        self._inner.append(leave)
        try:
            yield
        finally:
            self._inner.remove(leave)

    async def detach(self) -> None:
        """Detach the child runs; see `RunExecutor.detach`."""
        async with anyio.create_task_group() as group:
            for leave in self._inner:
                group.start_soon(leave)


def calling_run() -> CallingRun | None:
    """Return the run that the current task makes a call for; None outside a call."""
    return _calling.get()


@contextmanager
def calling_from(run: CallingRun) -> Generator[None]:
    """Set the calling run for the calls in the block."""
    token = _calling.set(run)
    try:
        yield
    finally:
        _calling.reset(token)
