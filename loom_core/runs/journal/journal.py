"""All runs of one file."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import anyio
from anyio import CancelScope

from loom_core.errors import InvalidInputError, RecordError
from loom_core.observability.log_fields import current_fields
from loom_core.observability.metrics import process_metrics
from loom_core.observability.propagation import inject_context
from loom_core.redaction import Redaction
from loom_core.runs.commands import Resume, Retry
from loom_core.runs.events import EventType, StreamEvent
from loom_core.runs.journal.creation import create_run, id_for, new_id
from loom_core.runs.journal.drivers import claim_run, find_unclaimed_runs
from loom_core.runs.journal.notifier import Inbox
from loom_core.runs.journal.rows.commands import (
    QueuedCommand,
    check_command,
    check_is_latest,
    command_column,
    load_commands,
)
from loom_core.runs.journal.rows.events import Step, blob_of, events_of, steps_of
from loom_core.runs.journal.rows.json_column import to_column
from loom_core.runs.journal.rows.runs import (
    CHANGING,
    StoredRun,
    condition,
    event_keys,
    find_run,
    select_runs,
    standing_column,
)
from loom_core.runs.journal.rows.schema import SEQ_BITS
from loom_core.runs.journal.rows.sessions import SessionState, begin_session, save_state, session_state
from loom_core.runs.journal.search import RUN_INDEX, index_runs, search_runs
from loom_core.runs.journal.store import JournalStore
from loom_core.runs.journal.waits import EVENTS_AT_ONCE, follow_events, wait_until_applied, wait_until_idle
from loom_core.runs.journal.writer import Outbox
from loom_core.runs.run import CALLER_NAME, TRACE
from loom_core.runs.run_meter import RunMeter

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncGenerator, Mapping
    from types import TracebackType

    from loom_core.runs.commands import Command
    from loom_core.runs.journal.drivers import Claim, DriverRegistry
    from loom_core.runs.journal.notifier import Notifier, WakeBatch
    from loom_core.runs.run import Run, RunRequest, RunStatus

__all__ = ["Journal", "Observer", "RunLog", "purge_batch", "purge_run"]


class Journal:
    """All runs of one file, or of this process only where `path` is None. Nothing is opened before first use.

    Several processes share one file. Each holds an OS lock on a file of its own as long as it lives, and a
    run names its driver's lock: so a run whose driver was killed is free at once, and one whose driver
    merely hangs or sleeps never is driven twice.

    Every method raises RecordError where the file cannot be read or written.

    Args:
        path: the file, made if absent, and its folder with it; None keeps all in memory.
    """

    def __init__(self, path: Path | str | None = None) -> None:
        self.store = JournalStore(None if path is None else Path(path))
        self._driven: set[str] = set()

    async def create(self, request: RunRequest, *, begins_session: bool = False) -> Run:
        """Record what is asked for. The same caller and idempotency_key: the run that there is.

        The trace that it is asked for in, and what the log calls who asks, are kept with it.

        Args:
            request: what is asked for.
            begins_session: whether a session that is not known here, to any caller, begins with it, under the
                id that it has elsewhere.

        Raises:
            InvalidInputError: the key was used for another request; or the session has a run that is not at
                its end; or JSON cannot hold the request.
            NotFoundError: there is no such session of this caller.
        """
        if trace := inject_context():
            request = replace(request, metadata={TRACE: trace, **request.metadata})
        if name := current_fields().get("caller"):
            request = replace(request, metadata={CALLER_NAME: name, **request.metadata})
        made = await self.store.write(lambda db: create_run(db, request, begins_session=begins_session))
        return await self.get(made.id) if made.last_seq else made

    async def get(self, run_id: str, *, caller: str | None = None) -> Run:
        """A run as it stands.

        Raises:
            NotFoundError: there is none, or it is another caller's (None: any caller).
        """
        drivers = await self.store.drivers()
        return await self.store.read(
            lambda db: drivers.with_driver_titles(db, [find_run(db, run_id, caller)])[0]
        )

    async def find_by_key(self, idempotency_key: str, *, caller: str = "") -> Run | None:
        """The run that was asked for with an idempotency key; None if there is none.

        Args:
            idempotency_key: as in `RunRequest`; not empty.
            caller: who asked.
        """
        drivers = await self.store.drivers()
        where, parameters = "runs.caller = ? AND runs.idempotency_key = ?", (caller, idempotency_key)
        found = await self.store.read(
            lambda db: drivers.with_driver_titles(db, select_runs(db, where, parameters))
        )
        return found[0] if found else None

    async def begin_session(self, *, caller: str = "", idempotency_key: str = "") -> str:
        """Begin a session before there is any run of it; gives its id.

        Args:
            caller: whose it is.
            idempotency_key: the same caller gets the same session for it; empty for a new one in any case.

        Raises:
            InvalidInputError: the caller or the key is no text.
        """
        session_id = id_for("ses", caller, idempotency_key) if idempotency_key else new_id("ses")
        await self.store.write(lambda db: begin_session(db, session_id, caller))
        return session_id

    async def session_state(self, session_id: str, *, caller: str = "") -> SessionState:
        """State of a session in addition to its runs.

        Raises:
            NotFoundError: there is no such session of this caller.
        """
        return await self.store.read(lambda db: session_state(db, session_id, caller))

    async def save_session_state(
        self, session_id: str, content: Mapping[str, Any], *, version: int, caller: str = ""
    ) -> bool:
        """Keep something of a session.

        Args:
            session_id: which session.
            content: JSON.
            version: of the state that it is made of.
            caller: whose session it is.

        Returns:
            Whether it is kept: not if there is another state since.

        Raises:
            InvalidInputError: JSON cannot hold it.
            NotFoundError: there is no such session of this caller.
        """
        return await self.store.write(lambda db: save_state(db, session_id, caller, content, version=version))

    async def runs(
        self,
        *,
        caller: str | None = None,
        profiles: Sequence[str] = (),
        session_id: str = "",
        status: Sequence[RunStatus] = (),
        limit: int = 50,
    ) -> list[Run]:
        """Runs, latest first.

        Args:
            caller: whose; None for everybody's.
            profiles: those of these are among them, whosever they are.
            session_id: of which session; empty for all.
            status: how they are; empty for whatever.
            limit: at most so many.
        """
        drivers = await self.store.drivers()
        where, parameters = condition(caller, profiles=profiles, session_id=session_id, status=status)
        return await self.store.read(
            lambda db: drivers.with_driver_titles(
                db, select_runs(db, where, parameters, order="runs.key DESC", limit=limit)
            )
        )

    async def events(self, run_id: str, *, after: int = 0, limit: int = EVENTS_AT_ONCE) -> list[StreamEvent]:
        """Events of a run, oldest first.

        Args:
            run_id: which run.
            after: seq of the last one that is known already.
            limit: at most so many.

        Raises:
            NotFoundError: there is no such run.
        """
        return await self.store.read(
            lambda db: events_of(db, run_id, find_run(db, run_id).key, after=after, limit=limit)
        )

    def follow(self, run_id: str, *, after: int = 0) -> AsyncGenerator[StreamEvent]:
        """Events as they come, also of runs that another process drives; ends behind a final event.

        Args:
            run_id: which run.
            after: seq of the last one that is known already.

        Raises:
            NotFoundError: there is no such run.
        """
        return follow_events(self.store, run_id, after=after)

    async def wait_until_idle(self, run_id: str, *, after: int, seconds: float) -> Run:
        """Wait until a run has ended, is paused, or waits for a person, in a way that is not known yet.

        One that has ended is given back at once, and so is one that waits, if something has happened in it
        since `after`; but not where an order is on its way that has it go on.

        Args:
            run_id: which run.
            after: seq of the last event that is known already.
            seconds: the longest wait.

        Returns:
            The run as it stands then, also where the time was over.

        Raises:
            NotFoundError: there is no such run.
        """
        with anyio.move_on_after(seconds):
            await wait_until_idle(self.store, run_id, after=after)
        return await self.get(run_id)

    async def wait_until_applied(self, run_id: str, *, seconds: float) -> Run:
        """Wait until a run has obeyed its orders, of whatever comes of them.

        Args:
            run_id: which run.
            seconds: the longest wait.

        Returns:
            The run as it stands then, also where the time was over.

        Raises:
            NotFoundError: there is no such run.
        """
        with anyio.move_on_after(seconds):
            await wait_until_applied(self.store, run_id)
        return await self.get(run_id)

    async def send_commands(self, run_id: str, *orders: Command, caller: str | None = None) -> Run:
        """Atomically enqueue commands for a run; the process that drives the run applies them.

        Args:
            run_id: which run.
            orders: what it shall do, in this order.
            caller: whose run it must be; None for any caller's.

        Returns:
            The run as it stands; the orders are on their way to it.

        Raises:
            InvalidInputError: one does not fit how the run stands, with what it has been told before: nothing
                is pending by that id, it was decided already, the answer is none to the question, it has
                ended …
            NotFoundError: there is no such run of this caller.
        """
        drivers = await self.store.drivers()

        def give(db: sqlite3.Connection) -> tuple[int, list[QueuedCommand], Run]:
            stored = find_run(db, run_id, caller)
            waiting = load_commands(db, stored.key)
            before = [each.command for each in waiting]
            for order in orders:
                check_command(stored.run, order, before)
                if isinstance(order, Resume | Retry):
                    check_is_latest(db, stored)
                before.append(order)
            columns = [command_column(order) for order in orders]  # nothing is written before all are sure
            sql = "INSERT INTO orders (run, body) VALUES (?, ?)"
            keys = [db.execute(sql, (stored.key, column)).lastrowid or 0 for column in columns]
            given = [QueuedCommand(key, order) for key, order in zip(keys, orders, strict=True)]
            # With those before them, which other processes may have given and this one has not seen yet.
            return stored.key, [*waiting, *given], drivers.with_driver_titles(db, [stored])[0]

        def deliver(given: tuple[int, list[QueuedCommand], Run], wake: WakeBatch) -> None:
            self.store.notifier.deliver(given[0], given[1], wake)

        return (await self.store.write(give, after=deliver))[2]

    async def claim(self, run_id: str) -> RunLog | None:
        """The only log that may write to a run; None while any process drives it.

        Enter it at once with `async with`: the run is free again at the end of the block.

        Raises:
            NotFoundError: there is no such run.
        """
        if run_id in self._driven:
            return None
        self._driven.add(run_id)
        try:
            log = await self._claim(run_id)
        except BaseException:
            self._driven.discard(run_id)
            raise
        if log is None:
            self._driven.discard(run_id)
        return log

    async def _claim(self, run_id: str) -> RunLog | None:
        drivers, inbox = await self.store.enter(), Inbox()

        def connect(claim: Claim | None, wake: WakeBatch) -> None:
            if claim is not None:
                self.store.notifier.connect(claim.stored.key, inbox)
                inbox.receive(claim.commands, wake)

        claim = await self.store.write(lambda db: claim_run(db, run_id, drivers), after=connect)
        if claim is None:
            return None
        run, key = replace(claim.stored.run, driver=drivers.title), claim.stored.key
        outbox = Outbox(
            key,
            drivers.own,
            writer=self.store.writer,
            switchboard=self.store.notifier,
            seq=run.last_seq,
            status=run.status,
        )

        def release() -> None:
            self.store.notifier.disconnect(key, inbox)
            self._driven.discard(run_id)

        steps: list[Step] = []
        try:
            if run.last_seq:
                steps = await self.store.read(lambda db: steps_of(db, run_id, key))
        except BaseException:
            with CancelScope(shield=True):
                await outbox.send(obeyed=[], release=True)
            release()
            raise
        return RunLog(
            run,
            journal=self,
            key=key,
            steps=steps,
            blobs=claim.blobs,
            outbox=outbox,
            inbox=inbox,
            switchboard=self.store.notifier,
            release=release,
        )

    async def find_unclaimed(self) -> list[str]:
        """Runs that no process drives and that have something to do, oldest first.

        They are working, have orders to obey, or wait for an answer whose deadline has passed.
        """
        drivers, driven = await self.store.drivers(), frozenset(self._driven)
        return await self.store.read(lambda db: find_unclaimed_runs(db, driven, drivers))

    async def search(
        self,
        query: str,
        *,
        caller: str | None = None,
        profiles: Sequence[str] = (),
        session_id: str = "",
        status: Sequence[RunStatus] = (),
        limit: int = 10,
    ) -> list[Run]:
        """Past runs by words of goal and output, English and Chinese; those that fit best first.

        Args:
            query: words; each counts by how rare it is, and not all need be there.
            caller: as for `runs`.
            profiles: as for `runs`.
            session_id: as for `runs`.
            status: as for `runs`.
            limit: at most so many.
        """
        while await self.store.write(index_runs):
            pass
        drivers = await self.store.drivers()
        wanted = condition(caller, profiles=profiles, session_id=session_id, status=status)
        return await self.store.read(
            lambda db: drivers.with_driver_titles(db, search_runs(db, query, wanted=wanted, limit=limit))
        )

    async def blob(self, run_id: str, number: int) -> tuple[bytes, str]:
        """Return a blob that was too large for an event, and its media type.

        Raises:
            NotFoundError: there is no such run, or it has no such blob.
        """
        return await self.store.read(lambda db: blob_of(db, find_run(db, run_id), number))

    async def purge(self, run_id: str, *, caller: str | None = None) -> None:
        """Remove all that there is of a run. What its session remembers in a memory stays there.

        Raises:
            InvalidInputError: a process drives it.
            NotFoundError: there is no such run of this caller.
        """
        drivers = await self.store.drivers()
        await self.store.write(lambda db: purge_run(db, find_run(db, run_id, caller), drivers))

    async def prune(self, *, older_than: float, keep_last: int = 0) -> int:
        """Forget runs that ended long ago.

        Args:
            older_than: seconds since something last happened in them.
            keep_last: so many are kept, however old: those that began last.

        Returns:
            How many were forgotten.
        """
        drivers = await self.store.drivers()
        before = time.time() - older_than
        forgotten = 0
        while some := await self.store.write(lambda db: purge_batch(db, before, keep_last, drivers)):
            forgotten += some
        return forgotten

    async def aclose(self) -> None:
        """Write what was added, free the runs of this process, and let go of the file."""
        await self.store.aclose()


_log = logging.getLogger(__name__)

# Events that quote what others have said of a failure, SDKs and servers among them.
_FOREIGN_WORDS: frozenset[EventType] = frozenset({"error", "model_retry"})


class Observer(Protocol):
    """Looks on while a run is driven. It must neither wait nor change anything."""

    def on_event(self, event: StreamEvent, run: Run) -> None:
        """Something has happened; the run as it stands with that."""
        ...

    def on_detach(self, run: Run) -> None:
        """The run is not driven here any more: it has ended, waits for a person, or was left."""
        ...


class RunLog:
    """The one writer of a run, as long as it is held: `async with log:`. It is used in one event loop.

    `add` is synchronous and cheap: it gives the event its number and queues the row. Rows are written by one
    thread for all runs, everything queued in one transaction, and only then do followers see them: so no
    reader ever sees an event that a crash takes back. `commit` waits until all added so far is in the file;
    with `durable` also that a power cut cannot take it (fsync): needed right before a call that must not
    happen twice. A process that is killed loses nothing committed either way.

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
        switchboard: Notifier,
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
        """Steps that were journalled with a state before this, oldest first: the loop goes on from them."""
        return self._steps

    def observe(self, observer: Observer) -> None:
        """Notify an observer of each event as it is added, before it is in the file, and of the end.

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

    def take_commands(self) -> list[Command]:
        """Orders that have come since, oldest first; they count as obeyed with the next `commit`.

        The taker adds what follows from them before anything else is awaited, as another task of the
        run may commit then.
        """
        taken = self._inbox.take()
        self._obeyed += [each.key for each in taken]
        return [each.command for each in taken]

    async def wait_for_command(self) -> None:
        """Wait until there is one; those given in other processes are seen within half a second."""
        with self._switchboard.watch_commands():
            await self._inbox.wait_until_filled()

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
                    observer.on_detach(self._run)
                except Exception:  # noqa: BLE001 - as above
                    _log.exception("%r could not take in that the run %s was left", observer, self._run.id)

    def _check(self) -> None:
        self._outbox.check()
        if self._ended:
            raise RecordError(f"Run {self._run.id} is not driven here any more.", advice="Claim it again.")


_PORTION = 20  # so few that no caller waits long for the writer


def purge_run(db: sqlite3.Connection, stored: StoredRun, drivers: DriverRegistry) -> None:
    """Remove all that there is of a run, and its session with the last one; part of a transaction.

    Raises:
        InvalidInputError: a process drives it.
    """
    if drivers.is_alive(stored.driver):
        raise InvalidInputError(
            f"Run {stored.run.id} is at work.", advice="Abort it first, and wait until it has ended."
        )
    RUN_INDEX.remove(db, stored.key)
    db.execute("DELETE FROM events WHERE key BETWEEN ? AND ?", event_keys(stored.key))
    for table in ("orders", "blobs", "requests"):
        db.execute(f"DELETE FROM {table} WHERE run = ?", (stored.key,))
    (session,) = db.execute("SELECT session FROM runs WHERE key = ?", (stored.key,)).fetchone()
    db.execute("DELETE FROM runs WHERE key = ?", (stored.key,))
    db.execute(
        "DELETE FROM sessions WHERE key = ? AND NOT EXISTS (SELECT 1 FROM runs WHERE session = sessions.key)",
        (session,),
    )


def purge_batch(db: sqlite3.Connection, before: float, keep_last: int, drivers: DriverRegistry) -> int:
    """Remove a few of the runs that ended before a time: how many; part of a transaction.

    Args:
        db: where they are.
        before: in seconds since 1970.
        keep_last: so many that began last are kept.
        drivers: who drives runs.
    """
    where = (
        "runs.status IN ('completed', 'failed', 'aborted')"
        " AND runs.key NOT IN (SELECT key FROM runs ORDER BY key DESC LIMIT ?)"
        " AND runs.key NOT IN (SELECT run FROM orders)"
        " AND COALESCE((SELECT at FROM events WHERE key = last_event), runs.created) < ?"
    )
    forgotten = 0
    for stored in select_runs(db, where, (keep_last, before), order="runs.key", limit=_PORTION):
        if not drivers.is_alive(stored.driver):
            purge_run(db, stored, drivers)
            forgotten += 1
    return forgotten
