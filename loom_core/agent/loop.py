"""Drives a run from where its journal stands to its end."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import anyio

from loom_core.agent.call_review import CallReview
from loom_core.agent.calling import CallingRun, calling_run, calls_of
from loom_core.agent.conclusion import Final, Nudge, conclusion
from loom_core.agent.ending import Ending
from loom_core.agent.model_turns import ModelTurns
from loom_core.agent.notices import Notices
from loom_core.agent.prequery import PreQuery
from loom_core.agent.record import RunRecord
from loom_core.agent.spending import BudgetError, used_up
from loom_core.agent.tool_round import ToolRound
from loom_core.llm.interface import OutputSchema
from loom_core.llm.messages import TextPart, UserMessage
from loom_core.observability.spans import INVOKE_AGENT
from loom_core.runs.driving import Driving

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from loom_core.agent.parts import Parts
    from loom_core.errors import LoomError
    from loom_core.runs.journal import RunLog
    from loom_core.runs.orders import Abort, Order
    from loom_core.runs.people import People
    from loom_core.runs.run import Run

__all__ = ["RunLoop"]


class RunLoop(Driving[RunRecord]):
    """One run, driven by who holds its log.

    It is a state machine: what comes next follows from the state, which follows from the journalled events;
    so it goes on after a crash as if nothing had been. A half turn of the model is taken again; a call with a
    result is not made again; one that had begun is, where that does no harm, and else people are asked.

    A pause lets the turn or the calls that are under way end, and nothing new begins, not even the end of the
    run. An abort cancels what is under way; every call gets a result that says so.
    """

    span_form = INVOKE_AGENT

    def __init__(self, parts: Parts, log: RunLog) -> None:
        """Take a run up.

        Args:
            parts: what drives it.
            log: the run, claimed.
        """
        super().__init__(log, RunRecord(log), asking=parts.asking)
        request = log.run.request
        schema = request.output_schema
        self._parts = parts
        self._notices = Notices.for_goal(request.goal)
        self._schema = None if schema is None else OutputSchema("answer", schema)
        self._model = ModelTurns(parts, self._record, schema=self._schema)
        self._ending = Ending(parts, self._record, self._model, self._notices)
        self._calling = CallingRun(self._record, parts.asking)
        self._prequery: PreQuery | None = None
        self._tools: ToolRound | None = None

    async def drive(self) -> Run:
        """See `Driving.drive`."""
        outer = calling_run()
        with calls_of(self._calling), nullcontext() if outer is None else outer.drives(self.leave):
            return await super().drive()

    async def _left(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._calling.leave)
            if self._tools is not None:
                group.start_soon(self._tools.leave)

    async def _begin(self) -> None:
        request = self._record.run.request
        history = await self._parts.memory.messages(request.session_id)
        goal = UserMessage((TextPart(request.goal),))
        self._record.begun([*history, goal], model=self._parts.llm.model)

    def _granted_from(self) -> float:
        return self._record.state.granted_from.seconds

    def _revive(self, order: Order) -> None:
        state = self._record.state
        answered = state.answer is not None and not state.calls
        replied = self._record.run.status == "completed"
        self._record.resumed_by(order.by, text=self._notices.resumed if answered and not replied else "")

    def _look_for_passages(self, group: TaskGroup) -> None:
        state, retriever, self._prequery = self._record.state, self._parts.knowledge, None
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

    async def _advance(self, people: People, group: TaskGroup) -> None:
        self._look_for_passages(group)
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

    async def _end_aborted(self, abort: Abort) -> None:
        await self._ending.aborted(abort)

    async def _fail(self, error: LoomError) -> None:
        await self._ending.failed(error)

    def _over_time(self) -> BudgetError:
        spent = used_up(
            self._record.run.request.budget,
            self._record.spent,
            granted_from=self._record.state.granted_from,
        )
        return BudgetError(spent.problem if spent else "The run has taken all of its time.")
