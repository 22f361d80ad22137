"""Drives a run from where its journal stands to its end."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from loom_core.agent.call_review import CallReview
from loom_core.agent.calling import CallingRun, calling_run, calls_of
from loom_core.agent.conclusion import Final, Nudge, conclusion
from loom_core.agent.ending import Ending
from loom_core.agent.model_turns import ModelTurns
from loom_core.agent.notices import Notices
from loom_core.agent.orders import Abort, Answered, Decided, Pause, Reply, Resume, revives
from loom_core.agent.people import People
from loom_core.agent.prequery import PreQuery
from loom_core.agent.record import FINAL, RunRecord
from loom_core.agent.spending import BudgetError, used_up
from loom_core.agent.tool_round import ToolRound
from loom_core.errors import LoomError, RecordError, unwrapped
from loom_core.llm.interface import OutputSchema
from loom_core.llm.messages import TextPart, UserMessage

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from loom_core.agent.journal import RunLog
    from loom_core.agent.orders import Order
    from loom_core.agent.parts import Parts
    from loom_core.agent.run import Run

__all__ = ["RunLoop"]


class RunLoop:
    """One run, driven by who holds its log.

    It is a state machine: what comes next follows from the state, which follows from the journalled events;
    so it goes on after a crash as if nothing had been. A half turn of the model is taken again; a call with a
    result is not made again; one that had begun is, where that does no harm, and else people are asked.

    A pause lets the turn or the calls that are under way end, and nothing new begins, not even the end of the
    run. An abort cancels what is under way; every call gets a result that says so.
    """

    def __init__(self, parts: Parts, log: RunLog) -> None:
        """Take a run up.

        Args:
            parts: what drives it.
            log: the run, claimed.
        """
        request = log.run.request
        schema = request.output_schema
        self._parts = parts
        self._log = log
        self._is_new = not log.steps
        self._record = RunRecord(log)
        self._notices = Notices.for_goal(request.goal)
        self._schema = None if schema is None else OutputSchema("answer", schema)
        self._model = ModelTurns(parts, self._record, schema=self._schema)
        self._ending = Ending(parts, self._record, self._model, self._notices)
        self._people: People | None = None
        self._prequery: PreQuery | None = None
        self._work = anyio.CancelScope()
        self._resumed = anyio.Event()
        self._abort: Abort | None = None
        self._tools: ToolRound | None = None
        self._calling = CallingRun(self._record, parts.asking)
        self._leaving = False

    async def drive(self) -> Run:
        """Go on until the run is at its end, and say how it stands then.

        Errors of the run are in it: `Run.problem`.

        Raises:
            RecordError: the journal cannot be written; the run stays as it is there.
            Exception: what a part raises that is no `LoomError`; the run has failed with it.
        """
        outer = calling_run()
        with calls_of(self._calling), nullcontext() if outer is None else outer.drives(self.leave):
            return await self._driven()

    async def leave(self) -> None:
        """Begin nothing new, and wait until no call runs that must not be made twice, in runs for calls, too.

        Who drives the run can be cancelled then, and nobody has to be asked about a call afterwards.
        """
        self._leaving = True
        async with anyio.create_task_group() as group:
            group.start_soon(self._calling.leave)
            if self._tools is not None:
                group.start_soon(self._tools.leave)

    async def _driven(self) -> Run:
        while await self._drive_once():  # what was said in the moment in which it ended is heard, too
            await self._record.commit()
        return self._record.run

    async def _drive_once(self) -> bool:
        """Go on until the run is at its end; returns whether there was anything to do."""
        goes_on = True
        try:
            async with anyio.create_task_group() as group:
                self._people = People(self._record, self._parts.asking, group)
                goes_on = await self._take_up()
                if goes_on:
                    group.start_soon(self._listen)
                    await self._to_the_end(group, self._people)
                group.cancel_scope.cancel()
        except Exception as raised:  # noqa: BLE001 - whatever it was, the run has to say that it failed
            error = unwrapped(raised)
            if isinstance(error, RecordError):
                raise error from None
            await self._ending.failed(error)
            if not isinstance(error, LoomError):
                await self._record.commit()
                raise error from None
        return goes_on

    async def _take_up(self) -> bool:
        """Begin, or see what has happened since; returns whether there is anything to do."""
        run, record = self._record.run, self._record
        self._work, self._abort, self._prequery, self._tools = anyio.CancelScope(), None, None, None
        orders = self._log.orders()
        ended = run.status in FINAL
        if ended and not any(revives(order, run.status) for order in orders):
            return False
        if self._is_new:
            history = await self._parts.memory.messages(run.request.session_id)
            record.begun([*history, UserMessage((TextPart(run.request.goal),))], model=self._parts.llm.model)
            self._is_new = False
        if run.status == "working":
            record.stopwatch.run()
        self._limit_time()
        for pending in run.pending:
            if pending.id not in record.state.pending:  # a tool asked it that is not there any more
                record.question_closed(pending.id, action="cancel", by="restart")
        if ended:
            self._revive(next((order.by for order in orders if revives(order, run.status)), ""))
        for order in orders:
            self._obey(order)
        await record.commit()
        return True

    def _revive(self, by: str) -> None:
        """Go on after the end."""
        state = self._record.state
        answered = state.answer is not None and not state.calls
        replied = self._record.run.status == "completed"
        self._record.resumed_by(by, text=self._notices.resumed if answered and not replied else "")
        self._limit_time()

    def _limit_time(self) -> None:
        seconds = self._record.run.request.budget.seconds
        if seconds is not None:
            self._record.stopwatch.allow(self._record.state.granted_from.seconds + seconds)

    async def _listen(self) -> None:
        while True:
            await self._log.next_order()
            if self._record.run.status in FINAL:  # it ended in the same moment: they are for who resumes it
                return
            self._obey_all()
            await self._record.commit()

    def _obey_all(self) -> None:
        for order in self._log.orders():
            self._obey(order)

    def _obey(self, order: Order) -> None:
        record = self._record
        match order:
            case Decided() | Answered():
                if self._people is not None:
                    self._people.say(order)
            case Reply():
                record.received(order.text)
            case Pause():
                if not record.paused:
                    self._resumed = anyio.Event()
                    record.paused_by(order.by)
            case Resume():
                if record.paused:
                    record.resumed_by(order.by)
                    self._resumed.set()
            case Abort():
                self._abort = order
                self._work.cancel()

    async def _gate(self) -> None:
        """Wait until something new may begin."""
        while self._record.paused:
            await self._resumed.wait()
        if self._leaving:
            await anyio.sleep_forever()

    async def _to_the_end(self, group: TaskGroup, people: People) -> None:
        with self._work:
            self._record.stopwatch.times(self._work)
            await checkpoint_if_cancelled()  # it was aborted before it was taken up
            self._look_for_passages(group)
            await self._advance(people)
        if self._record.run.status in FINAL:
            return
        if self._abort is not None:
            await self._ending.aborted(self._abort)
        elif self._work.cancelled_caught and self._record.stopwatch.ran_out:
            raise self._over_budget()

    def _look_for_passages(self, group: TaskGroup) -> None:
        state, retriever = self._record.state, self._parts.knowledge
        if retriever is not None and not state.turns and not state.looked:
            self._prequery = PreQuery(retriever, self._record, late=self._notices.late)
            self._prequery.start(group, self._record.run.request.goal, state.history[:-1])

    def _tool_round(self, people: People) -> ToolRound:
        """What makes the calls; it knows what was done and approved before."""
        state = self._record.state
        guard = None if self._parts.guard is None else self._parts.guard()
        if guard is not None:
            guard.replay(state.conversation())
        pipeline = self._parts.pipeline(self._record.run)
        for approved in state.approved:
            pipeline.remember(approved)
        hooks = self._parts.hooks
        review = CallReview(self._record, pipeline, people, guard=guard, hooks=hooks, notices=self._notices)
        return ToolRound(
            self._record, pipeline, people, review=review, guard=guard, hooks=hooks, gate=self._gate
        )

    async def _advance(self, people: People) -> None:
        """Step by step to the end."""
        record = self._record
        state = record.state
        tools = self._tools = self._tool_round(people)
        while True:
            await self._gate()
            if state.closing and state.answer is not None:
                raise BudgetError(state.closing)
            if state.open_calls:
                await tools.run()
                continue
            if state.final is not None and not state.inbox:
                if await self._finished(Final(**state.final)):
                    return
                continue
            nudge = Nudge()
            if state.answer is not None and not state.calls:
                following = conclusion(state, schema=self._schema, notices=self._notices)
                if isinstance(following, Final):
                    if await self._finished(following):
                        return
                    continue
                nudge = following
            elif state.nudge != "none" and not state.inbox:  # a turn that was broken off is taken again
                nudge = Nudge(state.nudge)
            elif self._prequery is not None and not state.turns:
                await self._prequery.patiently()
            await self._turn(nudge)

    async def _turn(self, nudge: Nudge) -> None:
        state, budget = self._record.state, self._record.run.request.budget
        closing = state.closing
        spent = used_up(budget, self._record.spent, granted_from=state.granted_from)
        if spent is not None and not closing:
            answered = state.answer is not None and not state.calls
            if answered or not (spent.closing and state.turns):
                raise BudgetError(spent.problem)
            closing = spent.problem
            nudge = Nudge("closing", self._notices.closing.format(problem=spent.problem))
        await self._model.take(nudge, closing=closing)

    async def _finished(self, final: Final) -> bool:
        """End with an answer, unless something came meanwhile; returns whether the run has ended."""
        if self._prequery is not None:
            self._prequery.stop()
        record = self._record
        await self._ending.remember()
        await record.commit()
        self._obey_all()  # nothing that was said before the end is left unread
        if record.paused or record.state.inbox or self._abort is not None:
            await record.commit()
            return False
        record.finished(final.output, final.structured)
        return True

    def _over_budget(self) -> BudgetError:
        spent = used_up(
            self._record.run.request.budget,
            self._record.spent,
            granted_from=self._record.state.granted_from,
        )
        return BudgetError(spent.problem if spent else "The run has taken all of its time.")
