"""A call that waits for a run: it tells its client how far the run is, and has its user asked."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from time import time
from typing import TYPE_CHECKING, Literal

import anyio

from loom_agent.progress_lines import ProgressLines
from loom_agent.texts import question_of
from loom_agent.wording import Wording
from loom_core.agent.orders import Abort, Answered, Decided, check_fits
from loom_core.errors import InvalidInputError
from loom_core.server.asking import ask_form, can_ask
from loom_core.server.progress import progress
from loom_core.server.tasks import become_task

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from loom_agent.service import Service
    from loom_core.agent.run import Pending, Run
    from loom_core.server.asking import FormAnswer
    from loom_core.server.context import ToolContext

__all__ = ["LONGEST_WAIT", "asks_user", "attended", "decided_by"]

LONGEST_WAIT = 45.0
"""Seconds; hosts give up a call after sixty."""

_LEAST_ASKING = 10.0  # seconds that are left for a person to answer; with fewer, the next call asks
_LONGEST_ASKING = 30 * 86_400.0
_TASK_AFTER = 3.0
_BETWEEN_LINES = 0.25


def asks_user(ctx: ToolContext, service: Service, run: Run) -> bool:
    """Whether the user of the client can be asked about a run, and may decide."""
    return can_ask(ctx) and service.approvers.decides(run)


def decided_by(ctx: ToolContext) -> str:
    """What stands in the journal for who has decided."""
    return ctx.caller.name if ctx.caller.id else "the user"


async def attended(
    ctx: ToolContext,
    service: Service,
    run_id: str,
    *,
    after: int = 0,
    seconds: float,
    task: Literal["", "waits", "aborts"] = "",
) -> Run:
    """Wait for a run, in one call of a client.

    It ends when the run has ended or is paused, when it waits for somebody who cannot be asked here, or when
    the time is over. What the run does is not affected by that.

    Args:
        ctx: the call.
        service: has the run.
        run_id: which.
        after: seq of the last event that is known already.
        seconds: how long to wait at the most.
        task: whether the call may become a task, which has no limit; and what a client does that cancels
            it: it does not wait any more, or the run it has started is not wanted any more.

    Raises:
        NotFoundError: the caller has no such run.
    """
    run = await service.run(run_id)
    async with _telling(ctx, service, run):
        if task and ctx.task is not None and seconds > 0:
            run = await service.changed(run_id, after=after, seconds=min(seconds, _TASK_AFTER))
            if run.status == "working":
                call_off = partial(_abort, service, run_id, decided_by(ctx))
                if await become_task(ctx, run.id, on_cancel=call_off if task == "aborts" else None):
                    seconds = math.inf
        return await _until_it_stands(ctx, service, run_id, after=after, seconds=seconds)


async def _until_it_stands(
    ctx: ToolContext, service: Service, run_id: str, *, after: int, seconds: float
) -> Run:
    until = anyio.current_time() + seconds
    closed: set[str] = set()
    while True:
        left = max(until - anyio.current_time(), 0.0)
        run = await service.changed(run_id, after=after, seconds=left)
        if run.status != "input_required" or not asks_user(ctx, service, run):
            return run
        pending = next((each for each in run.pending if each.id not in closed), None)
        left = until - anyio.current_time()
        if pending is None or left < _LEAST_ASKING:
            return run
        wording = Wording.for_goal(run.request.goal)
        answer = await ask_form(
            ctx,
            question_of(pending, wording),
            pending.schema,
            name=pending.id,
            deadline=_patience(pending, left),
        )
        try:
            passed_on = await _passed_on(ctx, service, run, pending, answer)
        except InvalidInputError as error:  # what was filled in does not fit: it is asked at the next call
            return replace(await service.run(run_id), problem=str(error))
        if not passed_on:
            closed.add(pending.id)
            return await service.run(run_id)
        after = run.last_seq


async def _passed_on(
    ctx: ToolContext, service: Service, run: Run, pending: Pending, answer: FormAnswer
) -> bool:
    """Tell the run what the user said; False if they said nothing.

    Raises:
        InvalidInputError: what they filled in is no answer to the question.
    """
    by = decided_by(ctx)
    if answer.outcome not in {"accepted", "declined"}:
        return False
    yes = answer.outcome == "accepted"
    if pending.kind == "question":
        order = Answered(id=pending.id, action="accept" if yes else "decline", content=answer.content, by=by)
    else:
        order = Decided(id=pending.id, action="approve" if yes else "deny", by=by)
    check_fits(pending, order)
    try:
        await service.decide(run, order)
    except InvalidInputError:  # somebody else, or the deadline, was faster: the run says what holds
        return True
    return True


def _patience(pending: Pending, left: float) -> float:
    """Seconds that the user has: as long as the call, or the task, may take, and the question holds."""
    deadline = math.inf if pending.deadline is None else max(pending.deadline - time(), 0.0)
    return min(left, deadline, _LONGEST_ASKING)


async def _abort(service: Service, run_id: str, by: str) -> None:
    """The client has cancelled the task: the run is not wanted any more."""
    await service.order(run_id, Abort(reason="The task was cancelled.", by=by))


@asynccontextmanager
async def _telling(ctx: ToolContext, service: Service, run: Run) -> AsyncGenerator[None]:
    """Tells the client what happens in the run meanwhile: at most four lines a second."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tell, ctx, service, run)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


async def _tell(ctx: ToolContext, service: Service, run: Run) -> None:
    lines = ProgressLines(Wording.for_goal(run.request.goal))
    reporter = progress(ctx)
    latest: tuple[int, str] | None = None
    news = anyio.Event()

    async def read() -> None:
        nonlocal latest
        async for event in service.journal().follow(run.id, after=run.last_seq):
            if line := lines.line(event):
                latest = (event.seq, line)
                news.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        while True:
            await news.wait()
            news = anyio.Event()
            if latest is not None:
                await reporter.report(*latest)
            await anyio.sleep(_BETWEEN_LINES)
