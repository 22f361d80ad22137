"""Asking the knowledge sources about the goal while the model is asked, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import TaskGroup

    from loom_core.agent.record import RunRecord
    from loom_core.knowledge.context import ContextRetriever
    from loom_core.llm.messages import Message

__all__ = ["PreQuery"]

_PATIENCE = 0.3


class PreQuery:
    """Looks for passages for the goal, beside everything else.

    The first turn waits 0.3 s for it. Passages that come later are put before the next turn. Where the first
    answer is the final one, nobody waits any longer: it is kept, unless passages came while it was written;
    then the model is asked once more.
    """

    def __init__(self, retriever: ContextRetriever, record: RunRecord, *, late: str) -> None:
        """Say whom to ask.

        Args:
            retriever: finds the passages, within its own limit of time.
            record: is told of them.
            late: what is put behind passages that come when the model has begun.
        """
        self._retriever = retriever
        self._record = record
        self._late = late
        self._done = anyio.Event()
        self._scope = anyio.CancelScope()

    def start(self, group: TaskGroup, goal: str, conversation: Sequence[Message]) -> None:
        """Begin to look."""
        group.start_soon(self._look, goal, [message.text for message in conversation])

    async def patiently(self) -> None:
        """Wait for the passages, but not for long."""
        with anyio.move_on_after(_PATIENCE):
            await self._done.wait()

    def stop(self) -> None:
        """Nobody needs them any more."""
        self._scope.cancel()

    async def _look(self, goal: str, conversation: Sequence[str]) -> None:
        try:
            with self._scope:
                found = await self._retriever.context_for(goal, conversation=conversation)
                self._record.knowledge(found, late=self._late)
        finally:
            self._done.set()
