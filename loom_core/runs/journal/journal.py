"""The run journal: create, read, follow, command, claim, search and purge the runs of one file."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import anyio
from anyio import CancelScope

from loom_core.errors import InvalidInputError, StoreError
from loom_core.observability.log_fields import current_fields
from loom_core.observability.metrics import process_metrics
from loom_core.observability.propagation import inject_context
from loom_core.redaction import Redaction
from loom_core.runs.commands import Abort, Resume, Retry, revives
from loom_core.runs.events import EventType, StreamEvent
from loom_core.runs.journal.creation import NewEvent, create_run, fork_run, id_for, new_id
from loom_core.runs.journal.drivers import claim_run, find_unclaimed_runs
from loom_core.runs.journal.notifier import Inbox
from loom_core.runs.journal.rows.commands import (
    QueuedCommand,
    check_command,
    check_is_latest,
    command_column,
    load_commands,
)
from loom_core.runs.journal.rows.json_column import to_column
from loom_core.runs.journal.rows.runs import (
    CHANGING,
    FINAL_STATUSES,
    LAST_EVENT,
    Step,
    StoredRun,
    attachments_of,
    blob_of,
    condition,
    event_keys,
    events_of,
    find_run,
    select_runs,
    standing_column,
    steps_of,
)
from loom_core.runs.journal.rows.schema import NOTIFY, SEQ_BITS
from loom_core.runs.journal.rows.sessions import SessionState, begin_session, save_state, session_state
from loom_core.runs.journal.search import RUN_INDEX, index_runs, search_runs
from loom_core.runs.journal.store import (
    EVENTS_AT_ONCE,
    JournalStore,
    PostgresPlace,
    follow_events,
    wait_until_applied,
    wait_until_idle,
)
from loom_core.runs.journal.writer import Outbox
from loom_core.runs.run import CALLER_NAME, TRACE
from loom_core.runs.run_meter import RunMeter
from loom_core.storage.postgres_pool import POSTGRES_SCHEMES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from types import TracebackType

    from loom_core.runs.commands import Command
    from loom_core.runs.journal.drivers import Claim, DriverRegistry
    from loom_core.runs.journal.notifier import WakeBatch
    from loom_core.runs.run import PendingKind, Run, RunRequest, RunStatus
    from loom_core.storage.sql import SQLConnection

__all__ = ["Journal", "Observer", "RunLog", "purge_batch", "purge_run"]


class Journal:
    """Journal of all runs in one file, in PostgreSQL, or in memory. It is opened on first use.

    Several processes can share a journal, and each claimed run names the process that executes it. Sharing
    a file, each process holds an OS lock on its own lock file while it lives: if it is killed, its runs are
    free at once; if it hangs or sleeps, no other process executes them. In PostgreSQL, where processes are on
    any number of machines, each renews a lease: if it is killed, hangs or is cut off, its runs are free once
    the lease has expired, and what it still writes to them is refused.

    Every method raises StoreError if the journal cannot be read or written.

    Args:
        place: a file, created if absent, together with its folder; a database, as `PostgresPlace` or
            `postgresql://user@host/database`; None keeps everything in memory.
    """

    def __init__(self, place: Path | str | PostgresPlace | None = None) -> None:
        if isinstance(place, str):
            place = PostgresPlace(place) if place.startswith(POSTGRES_SCHEMES) else Path(place)
        self.store = JournalStore(place)
        self._driven: set[str] = set()
        self._looked = 0

    @property
    def is_durable(self) -> bool:
        """Whether its runs survive this process."""
        return self.store.place is not None

    async def create(self, request: RunRequest, *, begins_session: bool = False) -> Run:
        """Create a run. The same caller and idempotency key return the existing run.

        The current trace and the caller's display name are stored with the run.

        Args:
            request: the request.
            begins_session: whether to create the session under the given id if no caller has it here.

        Raises:
            InvalidInputError: the key was used for another request; or the session has a run that has not
                ended; or JSON cannot hold the request.
            NotFoundError: there is no such session of this caller.
        """
        request = _with_context(request)
        made = await self.store.write(lambda db: create_run(db, request, begins_session=begins_session))
        return await self.get(made.id) if made.last_seq else made

    async def fork(self, run_id: str, request: RunRequest, events: Sequence[int | NewEvent]) -> Run:
        """Create a run that begins with a copy of events of another one, which stays as it is.

        Args:
            run_id: the other run.
            request: the request; it has no idempotency key.
            events: in order: seqs of events to copy, with their states, and new events. The copy of an event
                differs only in the addresses of blobs.

        Raises:
            InvalidInputError: as for `create`.
            NotFoundError: there is no such run; or as for `create`.
        """
        request = _with_context(request)
        return await self.store.write(lambda db: fork_run(db, find_run(db, run_id), request, events))

    async def get(self, run_id: str, *, caller: str | None = None) -> Run:
        """Return a run in its current state.

        Raises:
            NotFoundError: there is none, or it is another caller's (None: any caller).
        """
        return (await self._read_runs(lambda db: [find_run(db, run_id, caller)]))[0]

    async def find_by_key(self, idempotency_key: str, *, caller: str = "") -> Run | None:
        """Find the run that was requested with an idempotency key; None if there is none.

        Args:
            idempotency_key: as in `RunRequest`; not empty.
            caller: the caller of the request.
        """
        where, parameters = "runs.caller = ? AND runs.idempotency_key = ?", (caller, idempotency_key)
        found = await self._read_runs(lambda db: select_runs(db, where, parameters))
        return found[0] if found else None

    async def begin_session(self, *, caller: str = "", idempotency_key: str = "") -> str:
        """Begin a session without a run; return its id.

        Args:
            caller: the owner of the session.
            idempotency_key: the same caller and key get the same session; empty always creates a new one.

        Raises:
            InvalidInputError: the caller or the key is not valid text.
        """
        session_id = id_for("ses", caller, idempotency_key) if idempotency_key else new_id("ses")
        await self.store.write(lambda db: begin_session(db, session_id, caller))
        return session_id

    async def session_state(self, session_id: str, *, caller: str = "") -> SessionState:
        """Return the state of a session in addition to its runs.

        Raises:
            NotFoundError: there is no such session of this caller.
        """
        return await self.store.read(lambda db: session_state(db, session_id, caller))

    async def save_session_state(
        self, session_id: str, content: Mapping[str, Any], *, version: int, caller: str = ""
    ) -> bool:
        """Save the state of a session, with optimistic locking.

        Args:
            session_id: the session.
            content: JSON.
            version: version of the state that this one is based on.
            caller: the owner of the session.

        Returns:
            Whether it was saved: False if the state has changed since that version.

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
        waits_for: PendingKind | None = None,
        waits_for_name: str = "",
        limit: int = 50,
    ) -> list[Run]:
        """List runs, latest first.

        Args:
            caller: only runs of this caller; None for all callers.
            profiles: also include the runs of these profiles, of any caller.
            session_id: only runs of this session; empty for all.
            status: only runs with these statuses; empty for all.
            waits_for: only runs that wait for something of this kind; None for all.
            waits_for_name: with it, only where it may have this name, that of an event; empty for all.
            limit: maximum number of runs.
        """
        where, parameters = condition(
            caller,
            profiles=profiles,
            session_id=session_id,
            status=status,
            waits_for=waits_for,
            waits_for_name=waits_for_name,
        )
        return await self._read_runs(
            lambda db: select_runs(db, where, parameters, order="runs.key DESC", limit=limit)
        )

    async def events(self, run_id: str, *, after: int = 0, limit: int = EVENTS_AT_ONCE) -> list[StreamEvent]:
        """Return the events of a run, oldest first.

        Args:
            run_id: the run.
            after: seq of the last known event.
            limit: maximum number of events.

        Raises:
            NotFoundError: there is no such run.
        """
        return await self.store.read(
            lambda db: events_of(db, run_id, find_run(db, run_id).key, after=after, limit=limit)
        )

    def follow(self, run_id: str, *, after: int = 0) -> AsyncGenerator[StreamEvent]:
        """Stream the events of a run, also of one that another process executes; ends after a final event.

        Args:
            run_id: the run.
            after: seq of the last known event.

        Raises:
            NotFoundError: there is no such run.
        """
        return follow_events(self.store, run_id, after=after)

    async def wait_until_idle(self, run_id: str, *, after: int, seconds: float) -> Run:
        """Wait until a run is idle: it has ended, is paused, or waits for a person.

        Returns at once for a run that has ended; also for one that waits or is paused, if it has events
        after `after`. It keeps waiting if a queued command will make the run continue.

        Args:
            run_id: the run.
            after: seq of the last known event.
            seconds: timeout.

        Returns:
            The run in its state then, also after a timeout.

        Raises:
            NotFoundError: there is no such run.
        """
        with anyio.move_on_after(seconds):
            await wait_until_idle(self.store, run_id, after=after)
        return await self.get(run_id)

    async def wait_until_applied(self, run_id: str, *, seconds: float) -> Run:
        """Wait until the queued commands of a run are applied.

        Args:
            run_id: the run.
            seconds: timeout.

        Returns:
            The run in its state then, also after a timeout.

        Raises:
            NotFoundError: there is no such run.
        """
        with anyio.move_on_after(seconds):
            await wait_until_applied(self.store, run_id)
        return await self.get(run_id)

    async def send_commands(self, run_id: str, *orders: Command, caller: str | None = None) -> Run:
        """Atomically enqueue commands for a run; the process that executes the run applies them.

        Args:
            run_id: the run.
            orders: the commands, in order.
            caller: the caller whose run it must be; None for any caller.

        Returns:
            The run in its current state; the commands are queued.

        Raises:
            InvalidInputError: a command does not fit the state of the run after the commands queued before:
                nothing is pending with that id, it was decided already, the answer does not fit the question,
                the run has ended …
            NotFoundError: there is no such run of this caller.
        """
        drivers = await self.store.drivers()

        def give(db: SQLConnection) -> tuple[int, list[QueuedCommand], Run]:
            stored = find_run(db, run_id, caller)
            waiting = load_commands(db, stored.key)
            before = [each.command for each in waiting]
            for order in orders:
                check_command(stored.run, order, before)
                if isinstance(order, Resume | Retry):
                    check_is_latest(db, stored)
                before.append(order)
            columns = [command_column(order) for order in orders]  # nothing is written before all are valid
            sql = f"INSERT INTO orders (run, body) VALUES (?, ?) RETURNING key/*postgres , {NOTIFY}*/"
            keys = [db.execute(sql, (stored.key, column)).fetchone()[0] for column in columns]
            given = [QueuedCommand(key, order) for key, order in zip(keys, orders, strict=True)]
            # Include earlier commands, which other processes may have sent and this one has not seen yet.
            return stored.key, [*waiting, *given], drivers.with_driver_titles(db, [stored])[0]

        deliver = self.store.notifier.deliver
        return (await self.store.write(give, after=lambda given, wake: deliver(*given[:2], wake)))[2]

    async def claim(self, run_id: str) -> RunLog | None:
        """Claim a run: return the only log that may write to it; None while any process executes the run.

        Enter the log at once with `async with`: the end of the block releases the claim.

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
            if run.request.attachments:
                attachments = await self.store.read(lambda db: attachments_of(db, claim.stored.run, key))
                run = replace(run, request=replace(run.request, attachments=attachments))
        except BaseException:
            with CancelScope(shield=True):
                await outbox.send(obeyed=[], release=True, interrupted=True)
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
            release=release,
        )

    async def find_unclaimed(self) -> list[str]:
        """Return the ids of runs that have work to do and that no process executes, oldest first.

        They are working, have queued commands, or wait for an answer whose deadline has passed; or they are
        flows that were interrupted while something waited.
        """
        drivers, driven = await self.store.drivers(), frozenset(self._driven)
        self._looked = self.store.notifier.unclaimed.count
        return await self.store.read(lambda db: find_unclaimed_runs(db, driven, drivers))

    async def wait_for_unclaimed(self, *, seconds: float) -> None:
        """Wait until it is time for the next `find_unclaimed`: earlier if a command comes from elsewhere.

        Args:
            seconds: timeout.
        """
        with anyio.move_on_after(seconds):
            await self.store.notifier.wait_for_unclaimed(self._looked)

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
        """Search runs by words of goal and output, in English and Chinese; best matches first.

        Args:
            query: words; rare words weigh more, and not all need to match.
            caller: as for `runs`.
            profiles: as for `runs`.
            session_id: as for `runs`.
            status: as for `runs`.
            limit: maximum number of runs.
        """
        while await self.store.write(index_runs):
            pass
        wanted = condition(caller, profiles=profiles, session_id=session_id, status=status)
        return await self._read_runs(lambda db: search_runs(db, query, wanted=wanted, limit=limit))

    async def _read_runs(self, select: Callable[[SQLConnection], Sequence[StoredRun]]) -> list[Run]:
        drivers = await self.store.drivers()
        return await self.store.read(lambda db: drivers.with_driver_titles(db, select(db)))

    async def blob(self, run_id: str, number: int) -> tuple[bytes, str]:
        """Return a blob that was too large for an event, and its media type.

        Raises:
            NotFoundError: there is no such run, or it has no such blob.
        """
        return await self.store.read(lambda db: blob_of(db, find_run(db, run_id), number))

    async def purge(self, run_id: str, *, caller: str | None = None) -> None:
        """Purge a run: delete all its data. The memory keeps the conversation of its session.

        Raises:
            InvalidInputError: a process is executing it.
            NotFoundError: there is no such run of this caller.
        """
        drivers = await self.store.drivers()
        await self.store.write(lambda db: purge_run(db, find_run(db, run_id, caller), drivers))

    async def prune(self, *, older_than: float, keep_last: int = 0) -> int:
        """Purge old runs that have ended: the retention of the journal.

        Args:
            older_than: minimum age, in seconds since the last event.
            keep_last: number of latest runs to keep, however old.

        Returns:
            The number of purged runs.
        """
        drivers = await self.store.drivers()
        before = time.time() - older_than
        forgotten = 0
        while some := await self.store.write(lambda db: purge_batch(db, before, keep_last, drivers)):
            forgotten += some
        return forgotten

    async def aclose(self) -> None:
        """Write queued changes, release the runs of this process, and close the file."""
        await self.store.aclose()


def _with_context(request: RunRequest) -> RunRequest:
    """Return the request with the current trace and the caller's display name."""
    if trace := inject_context():
        request = replace(request, metadata={TRACE: trace, **request.metadata})
    if name := current_fields().get("caller"):
        request = replace(request, metadata={CALLER_NAME: name, **request.metadata})
    return request


_log = logging.getLogger(__name__)

# Events that may quote error messages of SDKs and servers: secrets in them are redacted.
_FOREIGN_WORDS: frozenset[EventType] = frozenset({"error", "model_retry", "tool_retry"})


class Observer(Protocol):
    """Observer of a run while it is executed. It must neither block nor change anything."""

    def on_event(self, event: StreamEvent, run: Run) -> None:
        """Handle an event; `run` is the state after it."""
        ...

    def on_detach(self, run: Run) -> None:
        """Handle the release of the run: it has ended, waits for a person, or was detached."""
        ...


class RunLog:
    """Log of a claimed run: its only writer, as long as the claim is held: `async with log:`.

    It is used in one event loop. `add` is synchronous and cheap: it numbers the event and queues the row. One
    thread writes the rows of all runs, everything queued in one transaction, and only then do followers see
    them: so no reader ever sees an event that a crash undoes. `commit` waits until all events added so far
    are in the file; with `durable`, also until they survive a power failure (fsync), as is needed before a
    call that must not be repeated. Either way, a process that is killed loses nothing committed.

    Events added after `take_commands` are held back until the next `commit`, and written in one transaction
    with the removal of the commands: so each command is applied exactly once, whenever the process is killed.
    The end of the block writes the rest; if it ends with an exception, without the events held back.

    Args:
        run: the run.
        journal: the journal.
        key: key of the run's row.
        steps: events that were journaled with a state.
        blobs: number of its blobs.
        outbox: receives the events to write.
        inbox: delivers commands.
        release: called at the end: the run may be claimed again.

    Attributes:
        journal: the journal.
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
        self._release = release
        self._obeyed: list[int] = []
        self._aborts: list[int] = []
        self._ended = False
        self._observers: list[Observer] = []
        if process_metrics.enabled:
            is_flow = any(step.event.type == "flow_start" for step in steps[:2])
            self._observers.append(RunMeter(process_metrics, kind="flow" if is_flow else "agent"))

    @property
    def run(self) -> Run:
        """The run in its current state, with the events added so far."""
        if self._run.last_seq != self._seq:
            self._run = replace(self._run, last_seq=self._seq, updated=self._at)
        return self._run

    @property
    def steps(self) -> Sequence[Step]:
        """Events journaled with a state before this claim, oldest first: the run resumes from them."""
        return self._steps

    def observe(self, observer: Observer) -> None:
        """Notify an observer of each event as it is added, before it is in the file, and of the release.

        Errors of an observer are logged, and the run continues.
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
        """Add an event.

        Args:
            type: the event type.
            payload: the keys of that type; must not be changed afterwards.
            state: data to resume from after a crash; JSON, None for nothing.
            changes: fields of `Run` that change in the same transaction: `status`, `output`, `structured`,
                `problem`, `pending`, `spent`.

        Raises:
            StoreError: an earlier event could not be written, or the block has ended.
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
        if run.status in FINAL_STATUSES:
            self._obeyed += self._aborts
            self._aborts = []
        seq = self._seq + 1
        at = max(time.time(), self._at)  # keep the order of events, even if the clock is set back
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
            except Exception:  # noqa: BLE001 - an observer must not break the run
                _log.exception("%r could not handle the event %s of the run %s", observer, type, run.id)
        return event

    async def commit(self, *, durable: bool = False) -> None:
        """Wait until all events added so far are in the file.

        Args:
            durable: also flush them to the disk (fsync), so that they survive a power failure.

        Raises:
            StoreError: the disk is full or the file is gone. The run must stop then: uncommitted events must
                have no effects, and this log accepts nothing more.
        """
        self._check()
        obeyed, self._obeyed = self._obeyed, []
        await self._outbox.send(obeyed=obeyed, durable=durable)
        self._outbox.check()

    async def save_blob(self, content: bytes, media_type: str) -> int:
        """Save data that is too large for an event; the next `commit` commits it.

        Args:
            content: the data.
            media_type: its media type, such as `text/plain`.

        Returns:
            Its number in the run, from 1.
        """
        self._check()
        self._blobs += 1
        self._outbox.add_blob(self._blobs, media_type, content)
        return self._blobs

    def take_commands(self) -> list[Command]:
        """Take the new commands, oldest first; the next `commit` marks them as applied.

        An abort is applied when the run has ended: if the process is killed before, the next one aborts it.
        The commands after it can be taken then.

        The caller must add the resulting events before it awaits anything, as another task of the run may
        commit meanwhile.
        """
        taken: list[Command] = []
        status = self._run.status
        while not self._aborts and (queued := self._inbox.take()) is not None:
            is_abort = isinstance(queued.command, Abort)
            if is_abort and status in FINAL_STATUSES and not any(revives(each, status) for each in taken):
                self._obeyed.append(queued.key)  # it comes too late
                continue
            (self._aborts if is_abort else self._obeyed).append(queued.key)
            taken.append(queued.command)
        return taken

    async def wait_for_command(self) -> None:
        """Wait for a command; those from other processes are seen within 0.2 s, in PostgreSQL at once."""
        with self.journal.store.notifier.watch_commands():
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
                applied = self._obeyed if error is not None else [*self._obeyed, *self._aborts]
                await self._outbox.send(obeyed=applied, release=True, interrupted=error is not None)
            self._outbox.check()
        except StoreError:
            if error is None:
                raise
        finally:
            self._release()
            for observer in self._observers:
                try:
                    observer.on_detach(self._run)
                except Exception:  # noqa: BLE001 - as above
                    _log.exception("%r could not handle the release of the run %s", observer, self._run.id)

    def _check(self) -> None:
        self._outbox.check()
        if self._ended:
            raise StoreError(f"Run {self._run.id} is not executed here any more.", advice="Claim it again.")


_PORTION = 20  # small, so that no caller waits long for the writer


def purge_run(db: SQLConnection, stored: StoredRun, drivers: DriverRegistry) -> None:
    """Purge a run, and its session if it has no other run; part of a transaction.

    Raises:
        InvalidInputError: a process is executing it.
    """
    if drivers.is_alive(db, stored.driver):
        raise InvalidInputError(
            f"Run {stored.run.id} is being executed.", advice="Abort it first, and wait until it has ended."
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


def purge_batch(db: SQLConnection, before: float, keep_last: int, drivers: DriverRegistry) -> int:
    """Purge a batch of the runs that ended before a time; return their number; part of a transaction.

    Args:
        db: the database.
        before: in seconds since 1970.
        keep_last: number of latest runs to keep.
        drivers: the processes that execute runs.
    """
    where = (
        "runs.status IN ('completed', 'failed', 'aborted')"
        " AND runs.key NOT IN (SELECT key FROM runs ORDER BY key DESC LIMIT ?)"
        " AND runs.key NOT IN (SELECT run FROM orders)"
        f" AND COALESCE((SELECT at FROM events WHERE key = {LAST_EVENT}), runs.created) < ?"
    )
    forgotten = 0
    for stored in select_runs(db, where, (keep_last, before), order="runs.key", limit=_PORTION):
        if not drivers.is_alive(db, stored.driver):
            purge_run(db, stored, drivers)
            forgotten += 1
    return forgotten
