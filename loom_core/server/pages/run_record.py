"""A run as its page shows it: all that the journal has of it, and the runs that it had others do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.runs.run import PARENT_CALL, PARENT_RUN

if TYPE_CHECKING:
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.journal import Journal
    from loom_core.runs.run import Run

__all__ = ["Bounds", "RunRecord", "read_records"]

_AT_ONCE = 500
_TAIL = 4  # of what is read of a long run, one part in so many is its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much a page holds.

    Attributes:
        run_events: events of one run; of more, the first and the last.
        events: events of all runs together; runs behind that have their totals only.
        children: runs that one run had others do.
        depth: of these below each other.
        text: characters of one text.
        texts: characters of all texts together; behind that each has `short` only.
        short: characters of one text, once there were so many.
    """

    run_events: int = 20_000
    events: int = 60_000
    children: int = 50
    depth: int = 5
    text: int = 8_000
    texts: int = 16_000_000
    short: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run.

    Attributes:
        run: as it stands.
        events: what happened, oldest first; without the middle where there were too many.
        children: runs that it had others do, oldest first.
        children_left_out: how many more there are, at least.
    """

    run: Run
    events: Sequence[StreamEvent] = ()
    children: Sequence[RunRecord] = ()
    children_left_out: int = 0

    @property
    def parent(self) -> str:
        """The run that it was made for; empty if there is none."""
        return str(self.run.request.metadata.get(PARENT_RUN, ""))

    @property
    def call(self) -> str:
        """The call of that run."""
        return str(self.run.request.metadata.get(PARENT_CALL, ""))


async def read_records(journal: Journal, runs: Sequence[Run], *, bounds: Bounds) -> list[RunRecord]:
    """Runs with their events and with the runs that they had others do.

    A run among them that another one of them had made stands below that one only.

    Args:
        journal: where they are.
        runs: which.
        bounds: how much is read.

    Raises:
        NotFoundError: one was forgotten meanwhile.
        RecordError: the journal cannot be read.
    """
    reading = _Reading(journal, bounds)
    records = [await reading.record(run, depth=0) for run in runs]
    below = {child.run.id for record in records for child in _below(record)}
    return [record for record in records if record.run.id not in below]


class _Reading:
    """What is left of what may be read."""

    def __init__(self, journal: Journal, bounds: Bounds) -> None:
        self._journal = journal
        self._bounds = bounds
        self._left = bounds.events

    async def record(self, run: Run, *, depth: int) -> RunRecord:
        events = await self._events(run)
        children: list[RunRecord] = []
        left_out = 0
        for call in _calls(events):
            child = await self._journal.with_key(f"{run.id}/{call}", caller=run.request.caller)
            if child is None:
                continue
            if depth >= self._bounds.depth or len(children) >= self._bounds.children:
                left_out += 1
            else:
                children.append(await self.record(child, depth=depth + 1))
        return RunRecord(run=run, events=events, children=children, children_left_out=left_out)

    async def _events(self, run: Run) -> list[StreamEvent]:
        most = min(self._bounds.run_events, self._left)
        if run.last_seq <= most:
            found = await self._between(run.id, 0, run.last_seq)
        else:
            tail = most // _TAIL
            found = await self._between(run.id, 0, most - tail)
            found += await self._between(run.id, run.last_seq - tail, run.last_seq)
        self._left -= len(found)
        return found

    async def _between(self, run_id: str, after: int, last: int) -> list[StreamEvent]:
        found: list[StreamEvent] = []
        while after < last:
            some = await self._journal.events(run_id, after=after, limit=min(_AT_ONCE, last - after))
            if not some:
                break
            found += some
            after = some[-1].seq
        return found


def _calls(events: Sequence[StreamEvent]) -> list[str]:
    """What may have a run of its own: calls of an agent, steps of a flow. Each once, in their order."""
    began = {"tool_start": "call_id", "step_start": "key"}
    found = [str(event.payload.get(began[event.type], "")) for event in events if event.type in began]
    return [call for call in dict.fromkeys(found) if call]


def _below(record: RunRecord) -> list[RunRecord]:
    return [each for child in record.children for each in (child, *_below(child))]
