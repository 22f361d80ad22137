"""Long polling: a call that waits for a run, reports progress, and asks the user for pending input."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any, Literal, Protocol

import anyio

from loom_core.errors import InvalidInputError
from loom_core.runs.commands import Abort, ApprovalDecision, InputResponse, check_response
from loom_core.server.calls.context import progress
from loom_core.server.calls.elicitation import ask_form, can_ask, form_of
from loom_core.server.calls.tasks import become_task

if TYPE_CHECKING:
    from loom_core.runs.commands import Command
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.journal import Journal
    from loom_core.runs.run import Pending, Run
    from loom_core.server.calls.context import ToolContext
    from loom_core.server.calls.elicitation import FormResult

__all__ = ["LONGEST_WAIT", "CallerRuns", "LongPoll", "decider_of"]

LONGEST_WAIT = 45.0
"""Seconds; hosts give up a call after sixty."""

_LEAST_ASKING = 10.0  # minimum of seconds for a person to answer; with fewer, the next call asks
_LONGEST_ASKING = 30 * 86_400.0
_TASK_AFTER = 3.0
_BETWEEN_LINES = 0.25
_PAGE = 500  # events per read
_CALLED_OFF_SECONDS = 5.0  # that a run has to end before its task is reported as cancelled


class CallerRuns(Protocol):
    """The runs of a server that the current caller may see and control."""

    async def run(self, run_id: str) -> Run:
        """Return a run; `NotFoundError` if the caller has none with this id."""
        ...

    async def wait_until_idle(self, run_id: str, *, after: int = 0, seconds: float) -> Run:
        """Wait until a run is idle; see `Journal.wait_until_idle`."""
        ...

    async def send_commands(self, run_id: str, order: Command, /) -> Run:
        """Send a command to a run."""
        ...

    async def decide(self, run: Run, decision: ApprovalDecision | InputResponse, /) -> Run:
        """Apply a decision to a run; `InvalidInputError` if it no longer waits for it."""
        ...

    def can_decide(self, run: Run) -> bool:
        """Return whether the caller may decide for a run."""
        ...

    def journal(self) -> Journal:
        """Return the journal of the runs."""
        ...


@dataclass(frozen=True, slots=True)
class LongPoll:
    """Long polling for the runs of a server.

    Attributes:
        runs: the runs.
        question: returns the question about a pending input, for a form of the client.
        lines: returns a function that formats an event of a run as a line; an empty line is not sent.
    """

    runs: CallerRuns
    question: Callable[[Run, Pending], str]
    lines: Callable[[Run], Callable[[StreamEvent], str]]

    def can_ask_user(self, ctx: ToolContext, run: Run) -> bool:
        """Return whether the client can ask its user about a run, and the user may decide."""
        return can_ask(ctx) and self.runs.can_decide(run)

    async def wait_for_run(
        self,
        ctx: ToolContext,
        run_id: str,
        *,
        after: int = 0,
        seconds: float,
        task: Literal["", "waits", "aborts"] = "",
    ) -> Run:
        """Wait for a run, in one call of a client.

        It returns when the run has ended or is paused, when it waits for input that cannot be requested here,
        or after the timeout. The run is not affected.

        Args:
            ctx: the call.
            run_id: id of the run.
            after: seq of the last known event.
            seconds: timeout.
            task: whether the call may become a task, which has no timeout: `waits` if cancelling the task
                only ends the wait, `aborts` if it aborts the run; empty for no task.

        Raises:
            NotFoundError: the caller has no such run.
        """
        run = await self.runs.run(run_id)
        async with self._forward_progress(ctx, run):
            if task and ctx.task is not None and seconds > 0:
                run = await self.runs.wait_until_idle(run_id, after=after, seconds=min(seconds, _TASK_AFTER))
                if run.status == "working":
                    call_off = partial(self._abort, run_id, decider_of(ctx))
                    if await become_task(ctx, run.id, on_cancel=call_off if task == "aborts" else None):
                        seconds = math.inf
            return await self._wait_until_idle(ctx, run_id, after=after, seconds=seconds)

    async def _wait_until_idle(self, ctx: ToolContext, run_id: str, *, after: int, seconds: float) -> Run:
        until = anyio.current_time() + seconds
        closed: set[str] = set()
        while True:
            left = max(until - anyio.current_time(), 0.0)
            run = await self.runs.wait_until_idle(run_id, after=after, seconds=left)
            if run.status != "input_required" or not self.can_ask_user(ctx, run):
                return run
            pending = next((each for each in run.questions if each.id not in closed), None)
            left = until - anyio.current_time()
            if pending is None or left < _LEAST_ASKING:
                return run
            form = form_of(pending.schema)
            if form is None:  # no form can express it: it is asked for in the conversation
                closed.add(pending.id)
                continue
            seconds = _answer_timeout(pending, left if ctx.client_input.holds_call else math.inf)
            answer = await self._ask(ctx, run, pending, form, seconds=seconds)
            if answer is None:
                continue
            try:
                passed_on = await self._submit_response(ctx, run, pending, answer)
            except InvalidInputError as error:  # what was filled in does not fit: the next call asks again
                return replace(await self.runs.run(run_id), problem=str(error))
            if not passed_on:
                return await self.runs.run(run_id)
            _count_response(ctx, pending)
            after = run.last_seq

    async def _ask(
        self, ctx: ToolContext, run: Run, pending: Pending, form: Mapping[str, Any], *, seconds: float
    ) -> FormResult | None:
        """Ask the user; None if the run no longer waits for it: it was answered elsewhere, or has ended."""
        found: list[FormResult] = []

        async def withdraw() -> None:
            now = run
            while now.status == "input_required" and any(each.id == pending.id for each in now.questions):
                now = await self.runs.wait_until_idle(run.id, after=now.last_seq, seconds=math.inf)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(withdraw)
            question = self.question(run, pending)
            found.append(await ask_form(ctx, question, form, name=_name(ctx, pending), deadline=seconds))
            tasks.cancel_scope.cancel()
        return found[0] if found else None

    async def _submit_response(
        self, ctx: ToolContext, run: Run, pending: Pending, answer: FormResult
    ) -> bool:
        """Submit the user's response to the run; return False if there is none.

        Raises:
            InvalidInputError: the response does not match the question.
        """
        by = decider_of(ctx)
        if answer.outcome not in {"accepted", "declined"}:
            return False
        yes = answer.outcome == "accepted"
        order: ApprovalDecision | InputResponse
        if pending.kind == "question":
            action = "accept" if yes else "decline"
            order = InputResponse(id=pending.id, action=action, content=answer.content, by=by)
        else:
            order = ApprovalDecision(id=pending.id, action="approve" if yes else "deny", by=by)
        check_response(pending, order)
        try:
            await self.runs.decide(run, order)
        except InvalidInputError:  # another decision, or the deadline, came first: the run has it
            return True
        return True

    async def _abort(self, run_id: str, by: str) -> None:
        """Abort the run, as the client has cancelled the task."""
        await self.runs.send_commands(run_id, Abort(reason="The task was cancelled.", by=by))
        await self.runs.wait_until_idle(run_id, seconds=_CALLED_OFF_SECONDS)

    @asynccontextmanager
    async def _forward_progress(self, ctx: ToolContext, run: Run) -> AsyncGenerator[None]:
        """Report the events of the run to the client: at most four lines a second, and the last one."""
        lines = _Lines(self.lines(run), known=run.last_seq)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_progress, ctx, run, lines)
            try:
                yield
            finally:
                async with lines.sending:  # cancelled in the middle of sending, a line would be lost
                    tasks.cancel_scope.cancel()
        while events := await self.runs.journal().events(run.id, after=lines.read, limit=_PAGE):
            for event in events:
                lines.take(event)
        if lines.latest is not None:
            await progress(ctx).report(*lines.latest)

    async def _send_progress(self, ctx: ToolContext, run: Run, lines: _Lines) -> None:
        reporter = progress(ctx)
        news = anyio.Event()

        async def read() -> None:
            async for event in self.runs.journal().follow(run.id, after=run.last_seq):
                lines.take(event)
                if lines.latest is not None:
                    news.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            while True:
                await news.wait()
                news = anyio.Event()
                async with lines.sending:
                    latest, lines.latest = lines.latest, None
                    if latest is not None:
                        await reporter.report(*latest)
                await anyio.sleep(_BETWEEN_LINES)


class _Lines:
    """Buffer of progress lines about a run.

    Args:
        said: formats an event as a line.
        known: seq of the last known event.

    Attributes:
        read: seq of the last event that was read.
        latest: the latest unsent line, with the seq of its event.
        sending: held while a line is sent.
    """

    def __init__(self, said: Callable[[StreamEvent], str], *, known: int) -> None:
        self._said = said
        self.read = known
        self.latest: tuple[int, str] | None = None
        self.sending = anyio.Lock()

    def take(self, event: StreamEvent) -> None:
        """Read an event."""
        self.read = event.seq
        if line := self._said(event):
            self.latest = (event.seq, line)


def decider_of(ctx: ToolContext) -> str:
    """Return the name of the decider for the journal."""
    return ctx.caller.name if ctx.caller.id else "the user"


def _name(ctx: ToolContext, pending: Pending) -> str:
    """Return the name of a question in this call; a new one each time the run repeats it."""
    times = ctx.client_input.kept.get(f"answered {pending.id}")
    return f"{pending.id}.{times}" if times else pending.id


def _count_response(ctx: ToolContext, pending: Pending) -> None:
    kept, key = ctx.client_input.kept, f"answered {pending.id}"
    kept[key] = str(int(kept.get(key, 0)) + 1)


def _answer_timeout(pending: Pending, left: float) -> float:
    """Return the seconds for the user to answer, within those left and the question's deadline."""
    deadline = math.inf if pending.deadline is None else max(pending.deadline - time(), 0.0)
    return min(left, deadline, _LONGEST_ASKING)
