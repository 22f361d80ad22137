"""Waiting for events and changes of a run, in any process that executes it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from loom_core.runs.commands import revives
from loom_core.runs.events import FINAL_EVENTS
from loom_core.runs.journal.rows.commands import load_commands
from loom_core.runs.journal.rows.events import events_of
from loom_core.runs.journal.rows.runs import FINAL_STATUSES, find_run
from loom_core.runs.run import is_for_call

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from loom_core.runs.events import StreamEvent
    from loom_core.runs.journal.store import JournalStore
    from loom_core.runs.run import Run
    from loom_core.storage.sql import SQLConnection

__all__ = ["EVENTS_AT_ONCE", "follow_events", "wait_until_applied", "wait_until_idle"]

EVENTS_AT_ONCE = 500
"""Page size for reading events."""

_STANDING = FINAL_STATUSES | {"input_required", "paused"}


async def follow_events(store: JournalStore, run_id: str, *, after: int) -> AsyncGenerator[StreamEvent]:
    """Stream the events of a run; see `Journal.follow`."""
    stored = await store.read(lambda db: find_run(db, run_id))
    with store.notifier.watch(stored.key, follows=True) as watch:
        at_end = True  # as far as known
        while True:
            count = watch.count
            events = watch.events_after(after)
            if events is None:
                events = await store.read(partial(_read_page, run_id=run_id, run=stored.key, after=after))
            for event in events:
                after = event.seq
                yield event
            at_end = events[-1].type in FINAL_EVENTS if events else at_end or watch.status in FINAL_STATUSES
            if at_end:
                run, _ = await store.read(partial(_read_state, run_id=run_id))
                if run.status in FINAL_STATUSES and run.last_seq <= after:
                    return
                at_end = False
            if len(events) < EVENTS_AT_ONCE:
                await watch.wait_for_change(count)


async def wait_until_idle(store: JournalStore, run_id: str, *, after: int) -> None:
    """Wait until a run has ended, is paused, or waits for a person; see `Journal.wait_until_idle`."""
    stored = await store.read(lambda db: find_run(db, run_id))
    with store.notifier.watch(stored.key) as watch:
        while True:
            count = watch.count
            if watch.status in {"", *_STANDING}:
                run, goes_on = await store.read(partial(_read_state, run_id=run_id))
                news = run.last_seq > after or run.status in FINAL_STATUSES
                if run.status in _STANDING and news and not goes_on:
                    return
            await watch.wait_for_change(count)


async def wait_until_applied(store: JournalStore, run_id: str) -> None:
    """Wait until the queued commands of a run are applied; see `Journal.wait_until_applied`."""
    stored = await store.read(lambda db: find_run(db, run_id))
    with store.notifier.watch(stored.key) as watch:
        while True:
            count = watch.count
            if not await store.read(lambda db: load_commands(db, stored.key)):
                return
            await watch.wait_for_change(count)


def _read_page(db: SQLConnection, *, run_id: str, run: int, after: int) -> list[StreamEvent]:
    return events_of(db, run_id, run, after=after, limit=EVENTS_AT_ONCE)


def _read_state(db: SQLConnection, *, run_id: str) -> tuple[Run, bool]:
    """Return the run, and whether its queued commands will make it continue."""
    stored = find_run(db, run_id)
    run, orders = stored.run, [each.command for each in load_commands(db, stored.key)]
    if run.status not in FINAL_STATUSES:
        return run, bool(orders)
    # A child run has ended with its parent: no process would adopt it.
    return run, not is_for_call(run) and any(revives(order, run.status) for order in orders)
