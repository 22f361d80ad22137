"""The run of an agent for a call that another run makes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio

from loom_core.agent.calling_run import calling_run
from loom_core.agent.result import RunResult
from loom_core.errors import InvalidInputError, unwrapped
from loom_core.runs.commands import Abort, Answered, Decided, Pause, Resume, check_fits
from loom_core.runs.human_broker import Asking, refused_by_time
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.runs.run import PARENT_CALL, PARENT_RUN, Budget, Pending
from loom_core.tools.interface import Question

if TYPE_CHECKING:
    from pydantic import BaseModel

    from loom_core.agent.agent import Agent
    from loom_core.agent.request import RunOptions
    from loom_core.runs.commands import Order
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Run
    from loom_core.tools.interface import Answer, CallContext

__all__ = ["ChildRun"]

_N = TypeVar("_N", int, float)


class ChildRun:
    """A run for a call, which is its idempotency key: the same call has the same run, also after a crash.

    What it asks people, the call asks; when the run that calls pauses, it does, and goes on with it.

    Args:
        agent: whose run it is.
        name: what the agent is called there.
        context: of the call.
        budget: what it may take, besides what is left of the budget of the run that calls.
    """

    def __init__(self, agent: Agent, name: str, context: CallContext, *, budget: Budget) -> None:
        self._calling = calling_run() if context.call_id else None
        asking = agent.parts.asking
        calls, can_ask = self._calling, context.ask is not None
        # The agent's own people are asked if it has some; who is asked here has a deadline of their own.
        self._passes_on = asking.approve is None and can_ask and (calls is None or calls.can_ask)
        asked = Asking(orders=True, seconds=None) if calls is None else calls.passed_on
        self._agent = agent.extended(
            journal=None if calls is None else calls.journal,
            asking=asked if self._passes_on else None,
        )
        self._name = name
        self._context = context
        self._budget = budget if calls is None else _within(budget, calls.left)
        self._key = "" if calls is None else f"{context.run_id}/{context.call_id}"
        self._questions: dict[str, anyio.CancelScope] = {}

    async def result(
        self, goal: str, *, output_schema: type[BaseModel] | Mapping[str, Any] | None
    ) -> RunResult[dict[str, Any]]:
        """Run it to its end, or what there is of it.

        Args:
            goal: what is wanted.
            output_schema: see `Agent.run`.

        Raises:
            LoomError: as for `Agent.run`.
        """
        known = await self._known()
        if known is not None and known.status == "paused":
            await self._order(known.id, Resume())
        if known is not None:  # what was left for it when it began: it is the same run again
            self._budget = known.request.budget
        run_id = ""
        try:
            async with anyio.create_task_group() as group:
                stream = self._agent.stream(goal, output_schema=output_schema, **self._options())
                async with aclosing(stream) as events:
                    async for event in events:
                        if not run_id:
                            run_id = event.run_id
                            group.start_soon(self._pause_with_it, run_id)
                        if event.type == "approval_required" and self._passes_on:
                            group.start_soon(self._ask, run_id, Pending(**event.payload["pending"]))
                        await self._tell(event)
                group.cancel_scope.cancel()
        except ExceptionGroup as error:
            raise unwrapped(error) from None
        return RunResult[dict[str, Any]].of(await self._agent.journal.get(run_id))

    async def abort(self) -> None:
        """End it, if there is one and it goes on."""
        run = await self._known()
        if run is not None and run.status not in FINAL_STATUSES:
            reason = "The run that wanted this has ended."
            await self._order(run.id, Abort(reason=reason, by=self._context.run_id))
            log = await self._agent.journal.claim(run.id)
            if log is not None:  # else who drives it obeys
                async with log:
                    await self._agent.drive(log)

    def _options(self) -> RunOptions:
        if self._calling is None:
            return {"budget": self._budget}
        return {
            "budget": self._budget,
            "idempotency_key": self._key,
            "caller": self._calling.run.request.caller,
            "metadata": {PARENT_RUN: self._context.run_id, PARENT_CALL: self._context.call_id},
        }

    async def _known(self) -> Run | None:
        if self._calling is None:
            return None
        return await self._agent.journal.with_key(self._key, caller=self._calling.run.request.caller)

    async def _tell(self, event: StreamEvent) -> None:
        """Tell how far it is."""
        match event.type:
            case "approval_decided":
                if (scope := self._questions.pop(event.payload["call_id"], None)) is not None:
                    scope.cancel()  # somebody has said it to the run itself
                return
            case "tool_start":
                text = f"{self._name}/{event.payload['tool']}"
            case "tool_progress":
                text = str(event.payload["message"])
            case _:
                return
        if self._context.progress is not None:
            await self._context.progress(float(event.seq), None, text)

    async def _ask(self, run_id: str, asked: Pending) -> None:
        """Ask people what an event says that is asked, and tell it what they said."""
        run = await self._agent.journal.get(run_id)
        pending = next((each for each in run.pending if replace(each, arguments_schema={}) == asked), None)
        if pending is None or self._context.ask is None:
            return  # it was answered before a crash
        with anyio.CancelScope() as scope:
            self._questions[pending.id] = scope
            if pending.kind == "question":
                answer = await self._context.ask(Question(pending.reason, pending.schema, origin=self._name))
                said = Answered(id=pending.id, action=answer.action, content=answer.content)
            else:
                tool = f"{self._name}/{pending.tool}"
                answer = await self._context.ask(
                    Question(
                        pending.reason,
                        origin=self._name,
                        tool=tool,
                        arguments=pending.arguments,
                        arguments_schema=pending.arguments_schema,
                    )
                )
                said = _decision(pending, answer)
            await self._order(run_id, _fitting(pending, said))

    async def _pause_with_it(self, run_id: str) -> None:
        """Pause when the run that calls does, and go on with it."""
        if self._calling is None:
            return
        calling = self._calling.run
        async with aclosing(self._calling.journal.follow(calling.id, after=calling.last_seq)) as events:
            async for event in events:
                if event.type in {"paused", "resumed"}:
                    by = str(event.payload["by"])
                    await self._order(run_id, Pause(by=by) if event.type == "paused" else Resume(by=by))

    async def _order(self, run_id: str, order: Order) -> None:
        try:
            await self._agent.order(run_id, order)
        except InvalidInputError:  # it stands otherwise meanwhile: it has ended, or somebody was quicker
            return


def _within(budget: Budget, left: Budget) -> Budget:
    """A budget that takes no more than what is left of another; turns are each run's own."""
    return replace(
        budget,
        tokens=_least(budget.tokens, left.tokens),
        cost=_least(budget.cost, left.cost),
        tool_calls=_least(budget.tool_calls, left.tool_calls),
        seconds=_least(budget.seconds, left.seconds),
    )


def _least(one: _N | None, other: _N | None) -> _N | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _fitting(pending: Pending, said: Decided | Answered) -> Decided | Answered:
    """What was said, where it is an answer: of a program's function that is not checked before."""
    try:
        check_fits(pending, said)
    except InvalidInputError as error:
        if isinstance(said, Answered):
            return Answered(id=pending.id, action="cancel")
        return Decided(id=pending.id, action="deny", reason=str(error))
    return said


def _decision(pending: Pending, answer: Answer) -> Decided:
    """What was said of a call that it wants to make."""
    if answer.action == "cancel":
        return refused_by_time(pending.id)
    if answer.action == "decline":
        return Decided(id=pending.id, action="deny", reason=str(answer.content.get("reason", "")))
    changed = cast("Mapping[str, Any] | None", answer.content.get("arguments"))
    keep = answer.content.get("keep", True) is True
    if changed is None:
        return Decided(id=pending.id, action="approve", keep=keep)
    return Decided(id=pending.id, action="edit", arguments=changed, keep=keep)
