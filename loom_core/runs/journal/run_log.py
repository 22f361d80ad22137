"""The one writer of a run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

from anyio import CancelScope

from loom_core.errors import RecordError
from loom_core.observability.metrics import process_metrics
from loom_core.redaction import Redaction
from loom_core.runs.events import EventType, StreamEvent
from loom_core.runs.journal.json_column import to_column
from loom_core.runs.journal.run_rows import CHANGING, standing_column
from loom_core.runs.journal.schema import SEQ_BITS
from loom_core.runs.run_meter import RunMeter

if TYPE_CHECKING:
    from types import TracebackType

    from loom_core.runs.journal.inbox import Inbox
    from loom_core.runs.journal.journal import Journal
    from loom_core.runs.journal.outbox import Outbox
    from loom_core.runs.journal.watching import Switchboard
    from loom_core.runs.orders import Order
    from loom_core.runs.run import Run

__all__ = ["Observer", "RunLog", "Step"]

_log = logging.getLogger(__name__)

# Events that quote what others have said of a failure, SDKs and servers among them.
_FOREIGN_WORDS: frozenset[EventType] = frozenset({"error", "model_retry"})


class Observer(Protocol):
    """Looks on while a run is driven. It must neither wait nor change anything."""

    def on_event(self, event: StreamEvent, run: Run) -> None:
        """Something has happened; the run as it stands with that."""
        ...

    def on_left(self, run: Run) -> None:
        """The run is not driven here any more: it has ended, waits for somebody, or was left."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """An event with what only the loop reads: `state` is JSON (messages whole, with what is opaque)."""

    event: StreamEvent
    state: Any


class RunLog:
    """The one writer of a run, as long as it is held: `async with log:`. It is used in one event loop.

    `add` is synchronous and cheap: it gives the event its number and queues the row. Rows are written by one
    thread for all runs, everything queued in one transaction, and only then do followers see them: so nobody
    ever sees an event that a crash takes back. `commit` waits until all added so far is in the file; with
    `durable` also that a power cut cannot take it (fsync): needed right before a call that must not happen
    twice. A process that is killed loses nothing committed either way.

    Events that follow `orders` are held back until the next `commit`, and written with the orders' being
    obeyed in one transaction: each order is obeyed once, whenever the process is killed. What is left at
    the end of the block is written, but if it ends with an exception, only what is not held back.

    Args:
        run: as it stands.
        journal: where it is.
        key: of its row.
        steps: what was journalled with a state.
        blobs: how many blobs it has.
        outbox: where what is added goes.
        inbox: where orders come from.
        switchboard: told while orders are waited for.
        release: called at the end: the run may be claimed again.

    Attributes:
        journal: where it is.
    """

    def __init__(
        self,
        run: Run,
        *,
        journal: Journal,
        key: int,
        steps: Sequence[Step],
        blobs: int,
        outbox: Outbox,
        inbox: Inbox,
        switchboard: Switchboard,
        release: Callable[[], object],
    ) -> None:
        self.journal = journal
        self._run = run
        self._seq = run.last_seq
        self._at = run.updated
        self._key = key << SEQ_BITS
        self._steps = steps
        self._blobs = blobs
        self._outbox = outbox
        self._inbox = inbox
        self._switchboard = switchboard
        self._release = release
        self._obeyed: list[int] = []
        self._ended = False
        self._observers: list[Observer] = []
        if process_metrics.enabled:
            is_flow = any(step.event.type == "flow_start" for step in steps[:2])
            self._observers.append(RunMeter(process_metrics, kind="flow" if is_flow else "agent"))

    @property
    def run(self) -> Run:
        """As it stands, with what was added."""
        if self._run.last_seq != self._seq:
            self._run = replace(self._run, last_seq=self._seq, updated=self._at)
        return self._run

    @property
    def steps(self) -> Sequence[Step]:
        """What was journalled with a state before this, oldest first: what the loop goes on from."""
        return self._steps

    def observe(self, observer: Observer) -> None:
        """Have somebody told of each event as it is added, before it is in the file, and of the end.

        What an observer raises is logged, and the run goes on.
        """
        self._observers.append(observer)

    def add(
        self,
        type: EventType,  # noqa: A002 - what the event calls it
        payload: dict[str, Any],
        *,
        state: object = None,
        **changes: object,
    ) -> StreamEvent:
        """Something has happened.

        Args:
            type: what.
            payload: the keys that belong to that type; it must not change any more.
            state: what the loop goes on from after a crash; JSON, None for nothing.
            changes: fields of `Run` that change with it, in the same transaction: `status`, `output`,
                `structured`, `problem`, `pending`, `spent`.

        Raises:
            RecordError: something that was added before could not be written, or the block has ended.
            InvalidInputError: JSON cannot hold the payload or the state.
        """
        self._check()
        run = self._run
        if type in _FOREIGN_WORDS:
            hidden = Redaction.now(assigned=True)
            payload = {name: hidden.value(value) for name, value in payload.items()}
            if "problem" in changes:
                changes["problem"] = hidden.value(changes["problem"])
        if changes:
            if not changes.keys() <= CHANGING:
                raise TypeError(f"an event changes none of {sorted(changes.keys() - CHANGING)} of a run")
            run = replace(run, **changes)  # pyright: ignore[reportArgumentType] - by name
        seq = self._seq + 1
        at = max(time.time(), self._at)  # a clock that is set back does not turn events round
        event = StreamEvent(type, payload, run_id=run.id, seq=seq, at=at)
        row = (
            self._key + seq,
            at,
            type,
            to_column(payload),
            None if state is None else to_column(state),
        )
        standing = standing_column(run) if changes else None
        self._outbox.add_event(event, row, status=run.status, standing=standing, hold=bool(self._obeyed))
        self._run, self._seq, self._at = run, seq, at
        for observer in self._observers:
            try:
                observer.on_event(event, run)
            except Exception:  # noqa: BLE001 - who looks on does no harm to what they look at
                _log.exception("%r could not take in the event %s of the run %s", observer, type, run.id)
        return event

    async def commit(self, *, durable: bool = False) -> None:
        """Wait until all that was added is in the file.

        Args:
            durable: and flushed to the disk, so that a power cut cannot take it.

        Raises:
            RecordError: the disk is full or the file is gone. The loop must stop then: nothing that was not
                committed may have effects, and this log takes nothing more.
        """
        self._check()
        obeyed, self._obeyed = self._obeyed, []
        await self._outbox.send(obeyed=obeyed, durable=durable)
        self._outbox.check()

    async def save_blob(self, content: bytes, media_type: str) -> int:
        """Keep what is too long for an event; it is committed with the next `commit`.

        Args:
            content: all of it.
            media_type: what it is, such as `text/plain`.

        Returns:
            Its number in the run, from 1.
        """
        self._check()
        self._blobs += 1
        self._outbox.add_blob(self._blobs, media_type, content)
        return self._blobs

    def orders(self) -> list[Order]:
        """Orders that have come since, oldest first; they count as obeyed with the next `commit`.

        Whoever takes them adds what follows from them before anything else is awaited, as another task of the
        run may commit then.
        """
        taken = self._inbox.take()
        self._obeyed += [each.key for each in taken]
        return [each.order for each in taken]

    async def next_order(self) -> None:
        """Wait until there is one; those given in other processes are seen within half a second."""
        with self._switchboard.waiting_for_orders():
            await self._inbox.filled()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._obeyed:
            self._outbox.discard()
            self._obeyed.clear()
        self._ended = True
        try:
            with CancelScope(shield=True):
                await self._outbox.send(obeyed=self._obeyed, release=True)
            self._outbox.check()
        except RecordError:
            if error is None:
                raise
        finally:
            self._release()
            for observer in self._observers:
                try:
                    observer.on_left(self._run)
                except Exception:  # noqa: BLE001 - as above
                    _log.exception("%r could not take in that the run %s was left", observer, self._run.id)

    def _check(self) -> None:
        self._outbox.check()
        if self._ended:
            raise RecordError(f"Run {self._run.id} is not driven here any more.", advice="Claim it again.")
