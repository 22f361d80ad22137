"""The calls of one answer: run in the model's order, and each given a result."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import anyio

from loom_core.agent.calls.caller import SPENT
from loom_core.agent.hooks import asked_hooks
from loom_core.agent.loop_guard import reminded
from loom_core.llm.messages import TextPart
from loom_core.runs.run import Pending, Spent
from loom_core.tools.calls import CallResult, PlannedCall
from loom_core.tools.depth import DEPTH_META_KEY, called_with
from loom_core.tools.permission.permissions import identity

if TYPE_CHECKING:
    from loom_core.agent.calls.review import CallReview, ReviewedCall
    from loom_core.agent.hooks import Hooks
    from loom_core.agent.loop_guard import LoopGuard
    from loom_core.agent.record import RunRecord
    from loom_core.runs.human_broker import People
    from loom_core.tools.execution.pipeline import ToolPipeline
    from loom_core.tools.interface import Answer, Question

__all__ = ["ToolRound"]

_PROGRESS_SECONDS = 0.25  # between two events of one call


class ToolRound:
    """Gives every call of the last answer its result. It is what the pipeline tells and asks, too.

    All calls are planned and people are asked about all of them before any runs; those that stand before the
    first one that has to be decided run meanwhile.
    """

    def __init__(
        self,
        record: RunRecord,
        pipeline: ToolPipeline,
        people: People,
        *,
        review: CallReview,
        guard: LoopGuard | None,
        hooks: Sequence[Hooks],
        gate: Callable[[], Awaitable[None]],
    ) -> None:
        """Set up.

        Args:
            record: is told what happens.
            pipeline: runs the calls.
            people: are asked.
            review: decides which run.
            guard: is told what came of each.
            hooks: are told, too.
            gate: returns when something new may begin.
        """
        self._record = record
        self._pipeline = pipeline
        self._people = people
        self._review = review
        self._guard = guard
        self._hooks = hooks
        self._gate = gate
        self._running: dict[str, ReviewedCall] = {}
        self._shown: dict[str, float] = {}
        self._questions = 0
        self._unrepeatable: set[str] = set()  # that run now
        self._quiet = anyio.Event()
        self._leaving = False

    async def run(self) -> None:
        """See the class.

        Raises:
            LoopStoppedError: see there; the calls that had not begun have no result.
            HookError: a hook raised something.
            RecordError: what has to be written down cannot be.
        """
        await self._all(await self._review.calls())

    async def leave(self) -> None:
        """Begin no other call, and wait until none runs that must not be made twice."""
        self._leaving = True
        while self._unrepeatable:
            self._quiet = anyio.Event()
            await self._quiet.wait()

    async def _all(self, entries: Sequence[ReviewedCall]) -> None:
        """Run them in order, side by side where tools allow it and nobody has to be waited for."""
        decisions = self._record.state.decisions
        for entry in entries:
            if entry.pending is not None and entry.pending.id not in decisions:
                self._people.ask(entry.pending)
        waiting = deque(entries)
        while waiting:
            batch = [await self._review.decided(waiting.popleft())]
            while waiting and not batch[-1].alone:
                pending = waiting[0].pending
                if pending is not None and pending.id not in decisions:
                    break
                following = await self._review.decided(waiting.popleft())
                if following.alone:
                    waiting.appendleft(following)
                    break
                batch.append(following)
            await self._together(batch)

    async def _together(self, batch: Sequence[ReviewedCall]) -> None:
        await self._gate()
        self._running = {entry.planned.call.id: entry for entry in batch}
        depth = self._record.run.request.depth + 1
        with called_with({DEPTH_META_KEY: depth}):
            await self._pipeline.execute(
                [entry.planned for entry in batch],
                watcher=self,
                approved=frozenset(self._review.approved),
                depth=depth,
                can_ask=self._people.anybody,
            )

    async def starting(self, planned: PlannedCall) -> None:
        """See `CallWatcher`; the disk has it, too, where the call must not be made twice."""
        if self._leaving:
            await anyio.sleep_forever()
        tool, lasting = planned.tool, self._running[planned.call.id].lasting
        approved = identity(tool) if tool is not None and lasting else None
        self._record.call_started(planned.call, planned.name, approved=approved)
        repeatable = tool is not None and tool.annotations.repeatable
        if not repeatable:
            self._unrepeatable.add(planned.call.id)
        await self._record.commit(durable=not repeatable)

    async def finished(self, planned: PlannedCall, result: CallResult) -> None:
        """See `CallWatcher`. What was aborted gets its result from the loop, which knows why it was."""
        try:
            await self._told_result(planned, result)
        finally:
            self._unrepeatable.discard(result.call_id)
            if not self._unrepeatable:
                self._quiet.set()

    async def _told_result(self, planned: PlannedCall, result: CallResult) -> None:
        if result.status == "aborted":
            return
        message, entry = result.message, self._running[result.call_id]
        if entry.note:
            message = replace(message, parts=(*message.parts, TextPart(f"\n\n{entry.note}")))
        if self._guard is not None:
            tool = planned.tool
            changes = tool is not None and not tool.annotations.read_only
            self._guard.after(planned.call, message.text, failed=message.failed, changes=changes)
        if entry.reminder:
            message = reminded(message, entry.reminder)
        spent = result.output.metadata.get(SPENT)
        self._record.call_ended(result, message, spent=spent if isinstance(spent, Spent) else None)
        for hooks in self._hooks:
            say = partial(hooks.after_tool, self._record.run, planned, result)
            await asked_hooks(hooks, "after_tool", say)

    async def progress(self, planned: PlannedCall, done: float, total: float | None, message: str) -> None:
        """See `CallWatcher`; at most four a second of one call."""
        now = monotonic()
        if now - self._shown.get(planned.call.id, -_PROGRESS_SECONDS) >= _PROGRESS_SECONDS:
            self._shown[planned.call.id] = now
            self._record.progress(planned.call.id, done, total, message)

    async def ask(self, planned: PlannedCall, question: Question) -> Answer:
        """See `CallWatcher`."""
        self._questions += 1
        where = f" ({question.url})" if question.url else ""
        origin = f"{question.origin}: " if question.origin else ""
        about_call = bool(question.tool)
        pending = Pending(
            id=f"{planned.call.id}.{self._questions}",
            kind="approval" if about_call else "question",
            tool=question.tool or planned.name,
            arguments=dict(question.arguments if about_call else planned.arguments),
            arguments_schema=dict(question.arguments_schema),
            reason=f"{origin}{question.text}{where}",
            schema=dict(question.schema),
            deadline=self._people.deadline(),
        )
        return await self._people.answer(pending)

    async def spill(self, planned: PlannedCall, text: str) -> str:
        """See `CallWatcher`."""
        return await self._record.save_blob(text.encode("utf-8", "replace"), "text/plain; charset=utf-8")
