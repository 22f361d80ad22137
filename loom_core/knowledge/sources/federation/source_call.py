"""One source among several that are asked at once: it has a time limit, and its failure is its own."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import anyio

from loom_core.errors import InvalidInputError, LoomError, SourceStartingError, unwrapped
from loom_core.knowledge.sources.federation.answer import SourceReport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom_core.knowledge.interface import KnowledgeBaseProvider
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.sources.federation.answer import SourceState

__all__ = ["START_SECONDS", "Asking", "late"]

START_SECONDS = 9.0
"""So long a question waits at the most for a source that is being started; its own time begins after that."""

_log = logging.getLogger(__name__)


class Asking:
    """A question to one source.

    Args:
        source: what is asked.
        seconds: how long it has for its answer. If it has to be started first, that is waited for as long,
            but not longer than `START_SECONDS`.

    Attributes:
        items: what it found, best first.
        report: what became of it; of a failure until `run` has ended.
        error: why it failed, where it said so.
    """

    def __init__(self, source: KnowledgeBaseProvider, seconds: float) -> None:
        self._source = source
        self._seconds = seconds
        self.items: list[KnowledgeItem] = []
        self.report = SourceReport(source.name, "failed", 0.0)
        self.error: LoomError | None = None
        self._until = 0.0  # by the clock of the event loop: when its time is over

    async def run(
        self,
        query: str,
        limit: int,
        filters: dict[str, Any],
        told: Callable[[SourceReport], Awaitable[None]] | None,
    ) -> None:
        """Ask, wait, and note what came of it; raises nothing but cancellation.

        Args:
            query: see `KnowledgeBaseProvider.query`, as for the next two.
            limit: how many passages at the most.
            filters: may be empty.
            told: called with the report.
        """
        began = time.monotonic()
        state: SourceState = "late"
        problem = ""
        with anyio.CancelScope() as answering:
            try:
                await self._source.start(min(self._seconds, START_SECONDS))
                self._until = answering.deadline = anyio.current_time() + self._seconds
                found = await self._source.query(query, limit=limit, filters=dict(filters) or None)
                self.items = found[:limit]
                state = "answered"
            except Exception as raised:  # noqa: BLE001 - the outermost handler of what may be anybody's code
                state = "starting" if isinstance(raised, SourceStartingError) else "failed"
                error = unwrapped(raised)
                if isinstance(error, LoomError):
                    problem, self.error = str(error), error
                else:
                    _log.exception("the source %r failed", self._source.name)
                    problem = f"It failed by an error of its own ({type(error).__name__}). The log says more."
        if state == "late":
            problem = f"{late(self._seconds)} Ask again, or allow it more time."
        self.report = SourceReport(
            self._source.name,
            state,
            seconds=time.monotonic() - began,
            count=len(self.items),
            problem=problem,
            is_refusal=isinstance(self.error, InvalidInputError),
        )
        if told is not None:
            await told(self.report)

    async def again(self, query: str, limit: int, filters: dict[str, Any]) -> list[KnowledgeItem]:
        """Ask another question in what is left of the time.

        Returns:
            What the source finds, best first; nothing where it did not answer the first question, or fails
            now: what it gave before counts all the same, so `report` stays as it is.
        """
        if self.report.state != "answered":
            return []
        with anyio.CancelScope(deadline=self._until):
            try:
                return (await self._source.query(query, limit=limit, filters=dict(filters) or None))[:limit]
            except Exception as raised:  # noqa: BLE001 - as in `run`
                _log.info(
                    "the source %r could not be asked once more: %s", self._source.name, unwrapped(raised)
                )
        return []


def late(seconds: float) -> str:
    """That a source gave no answer in time, as a sentence."""
    return f"It did not answer within {seconds:g} s."
