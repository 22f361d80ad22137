"""The events of a run, handed on while it is driven."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine

    from anyio.streams.memory import MemoryObjectSendStream

    from loom_core.runs.events import StreamEvent
    from loom_core.runs.journal import Journal

__all__ = ["streamed"]

_AHEAD = 256  # events that nobody has taken yet


async def streamed(
    run_id: str, journal: Journal, drive: Coroutine[Any, Any, object]
) -> AsyncGenerator[StreamEvent]:
    """The events of a run, to its end; where the iterator is closed before, so is what drives the run.

    Args:
        run_id: which run.
        journal: where it is.
        drive: drives it to its end, beside.

    Raises:
        Exception: what `drive` raises.
    """
    # Tasks and no task group: what a generator holds must not be open while it hands something on.
    giving, taking = anyio.create_memory_object_stream["StreamEvent"](_AHEAD)
    driving = asyncio.ensure_future(drive)
    following = asyncio.ensure_future(_hand_on(run_id, journal, giving))

    def stop_if_failed(driven: asyncio.Future[object]) -> None:
        if not driven.cancelled() and driven.exception() is not None:
            following.cancel()

    driving.add_done_callback(stop_if_failed)
    try:
        with taking:
            while True:
                try:
                    event = taking.receive_nowait()
                except anyio.WouldBlock:
                    event = await anext(taking, None)
                except anyio.EndOfStream:
                    break
                if event is None:
                    break
                yield event
        await asyncio.wait({following})
        if not following.cancelled():
            following.result()
        await driving
    finally:
        giving.close()
        if left := {task for task in (driving, following) if not task.done()}:
            for task in left:
                task.cancel()
            await asyncio.wait(left)


async def _hand_on(run_id: str, journal: Journal, giving: MemoryObjectSendStream[StreamEvent]) -> None:
    """Give the events of a run to whoever takes them, as fast as they do."""
    async with giving, aclosing(journal.follow(run_id)) as events:
        async for event in events:
            try:
                giving.send_nowait(event)
            except anyio.WouldBlock:
                await giving.send(event)
