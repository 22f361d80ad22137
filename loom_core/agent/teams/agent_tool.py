"""`AgentTool`: an agent as a tool of another one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio

from loom_core.agent.calling_run import USAGE_KEY, calling_run
from loom_core.agent.result import RunResult
from loom_core.errors import ConfigError, InvalidInputError, LoomError, unwrapped
from loom_core.runs.commands import Abort, ApprovalDecision, InputResponse, Pause, Resume, check_response
from loom_core.runs.human_broker import HumanInputPolicy, deny_by_timeout
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.runs.run import PARENT_CALL, PARENT_RUN, Budget, Pending
from loom_core.tools.interface import CallContext, Question, Tool, ToolAnnotations, ToolOutput
from loom_core.tools.names import own_wire_name

if TYPE_CHECKING:
    from pydantic import BaseModel

    from loom_core.agent.agent import Agent
    from loom_core.agent.request import RunOptions
    from loom_core.runs.commands import Command
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Run
    from loom_core.tools.interface import QuestionAnswer


__all__ = ["AgentTool", "ChildRun"]

_ARGUMENTS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "goal": {
            "type": "string",
            "minLength": 1,
            "description": "What is wanted, with all that has to be known for it: nothing of this "
            "conversation is seen there.",
        }
    },
    "required": ["goal"],
    "additionalProperties": False,
}


class AgentTool(Tool):
    """An agent as a tool: a call is a run of it, and what it answers is the result.

        researcher = Agent("deepseek", tools=[search], name="researcher")
        boss = Agent("deepseek", tools=[AgentTool(researcher, description="Finds facts, with sources.")])

    The run is in the journal of the run that calls, which names it (`metadata` has `parent_run` and
    `parent_call`), and belongs to the call: when the call is made again after a crash, the run that there is
    is gone on with. What it spends counts for the run that calls, and it may not take more of tokens, money,
    calls and time than that has left; calls that run side by side may each take what was left when they
    began. When the run that calls is aborted or fails, so is this one.

    What its agent's permissions allow needs no further word, so that the call as such need not be approved.
    What they want people asked about, the run that calls asks them about, under the name of the agent and the
    tool (`researcher/write_file`); unless the agent has somebody of its own to ask.

    Args:
        agent: the agent.
        name: what the tool is called, in any script; the agent's name if empty.
        description: when to call it, and what it gives; the agent's description if empty.
        output_schema: a Pydantic model, or a JSON Schema of objects, for its answers; None for text.
        budget: what one run may take at the most; None for the agent's own.

    Raises:
        ConfigError: there is no description, or what is given is no agent.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        name: str = "",
        description: str = "",
        output_schema: type[BaseModel] | Mapping[str, Any] | None = None,
        budget: Budget | None = None,
    ) -> None:
        if not hasattr(agent, "parts"):
            raise ConfigError(f"{agent!r} is no agent.", advice="Make an `Agent` of it.")
        self.agent = agent
        self._name = name or agent.name
        self._description = description or agent.description
        if not self._description:
            raise ConfigError(
                f"The agent {self._name!r} has no description, so no model knows when to call it.",
                advice="Give it one.",
            )
        self._output_schema = output_schema
        self._budget = budget or agent.budget

    def __repr__(self) -> str:
        return f"<AgentTool {self._name}>"

    @property
    def name(self) -> str:
        """What people call it."""
        return self._name

    @property
    def wire_name(self) -> str:
        """What models call it; see `names.own_wire_name`."""
        return own_wire_name(self._name)

    @property
    def description(self) -> str:
        """When to call it, and what it gives."""
        return self._description

    @property
    def args_schema(self) -> Mapping[str, Any]:
        """A goal, in words."""
        return _ARGUMENTS

    @property
    def annotations(self) -> ToolAnnotations:
        """Harmless: to run the agent changes nothing, and what it calls is decided there."""
        return ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)

    @property
    def is_concurrency_safe(self) -> bool:
        """Whether all that the agent may call is."""
        return all(tool.is_concurrency_safe for tool in self.agent.parts.toolbox.tools())

    @property
    def needs_seconds(self) -> float:
        """No limit but that of its budget."""
        return math.inf

    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        """Run the agent to its end; a run of this call that there is already is gone on with."""
        child = ChildRun(self.agent, self._name, context or CallContext(), budget=self._budget)
        try:
            result = await child.result(str(arguments["goal"]), output_schema=self._output_schema)
        except LoomError as error:
            return ToolOutput(str(error), is_error=True)
        return _output(result, self._name)

    async def abandon(self, *, context: CallContext) -> None:
        """Abort the run of a call, if there is one that goes on; see `Tool.abandoned`."""
        await ChildRun(self.agent, self._name, context, budget=self._budget).abort()


def _output(result: RunResult[dict[str, Any]], name: str) -> ToolOutput:
    metadata = {USAGE_KEY: result.spent, "run_id": result.run_id}
    if result.status == "completed":
        return ToolOutput(result.output, result.structured, metadata=metadata)
    text = f"The agent `{name}` did not reach the goal: {result.problem}"
    if result.output:
        text += f"\nThis is as far as it came:\n{result.output}"
    return ToolOutput(text, is_error=True, metadata=metadata)


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
        asked = HumanInputPolicy(accepts_commands=True, seconds=None) if calls is None else calls.child_policy
        self._agent = agent.extend(
            journal=None if calls is None else calls.journal,
            asking=asked if self._passes_on else None,
        )
        self._name = name
        self._context = context
        self._budget = budget if calls is None else _limit_budget(budget, calls.remaining_budget)
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
        known = await self._find_existing()
        if known is not None and known.status == "paused":
            await self._send_command(known.id, Resume())
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
                            group.start_soon(self._mirror_pauses, run_id)
                        if event.type == "approval_required" and self._passes_on:
                            group.start_soon(self._ask, run_id, Pending(**event.payload["pending"]))
                        await self._report_progress(event)
                group.cancel_scope.cancel()
        except ExceptionGroup as error:
            raise unwrapped(error) from None
        return RunResult[dict[str, Any]].of(await self._agent.journal.get(run_id))

    async def abort(self) -> None:
        """End it, if there is one and it goes on."""
        run = await self._find_existing()
        if run is not None and run.status not in FINAL_STATUSES:
            reason = "The run that wanted this has ended."
            await self._send_command(run.id, Abort(reason=reason, by=self._context.run_id))
            log = await self._agent.journal.claim(run.id)
            if log is not None:  # else who drives it obeys
                async with log:
                    await self._agent.execute(log)

    def _options(self) -> RunOptions:
        if self._calling is None:
            return {"budget": self._budget}
        return {
            "budget": self._budget,
            "idempotency_key": self._key,
            "caller": self._calling.run.request.caller,
            "metadata": {PARENT_RUN: self._context.run_id, PARENT_CALL: self._context.call_id},
        }

    async def _find_existing(self) -> Run | None:
        if self._calling is None:
            return None
        return await self._agent.journal.find_by_key(self._key, caller=self._calling.run.request.caller)

    async def _report_progress(self, event: StreamEvent) -> None:
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
                said = InputResponse(id=pending.id, action=answer.action, content=answer.content)
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
            await self._send_command(run_id, _validate_response(pending, said))

    async def _mirror_pauses(self, run_id: str) -> None:
        """Pause when the run that calls does, and go on with it."""
        if self._calling is None:
            return
        calling = self._calling.run
        async with aclosing(self._calling.journal.follow(calling.id, after=calling.last_seq)) as events:
            async for event in events:
                if event.type in {"paused", "resumed"}:
                    by = str(event.payload["by"])
                    await self._send_command(
                        run_id, Pause(by=by) if event.type == "paused" else Resume(by=by)
                    )

    async def _send_command(self, run_id: str, order: Command) -> None:
        try:
            await self._agent.send_command(run_id, order)
        except InvalidInputError:  # it stands otherwise meanwhile: it has ended, or somebody was quicker
            return


def _limit_budget(budget: Budget, left: Budget) -> Budget:
    """A budget that takes no more than what is left of another; turns are each run's own."""
    return replace(
        budget,
        tokens=_minimum(budget.tokens, left.tokens),
        cost=_minimum(budget.cost, left.cost),
        tool_calls=_minimum(budget.tool_calls, left.tool_calls),
        seconds=_minimum(budget.seconds, left.seconds),
    )


def _minimum(one: _N | None, other: _N | None) -> _N | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _validate_response(
    pending: Pending, said: ApprovalDecision | InputResponse
) -> ApprovalDecision | InputResponse:
    """What was said, where it is an answer: of a program's function that is not checked before."""
    try:
        check_response(pending, said)
    except InvalidInputError as error:
        if isinstance(said, InputResponse):
            return InputResponse(id=pending.id, action="cancel")
        return ApprovalDecision(id=pending.id, action="deny", reason=str(error))
    return said


def _decision(pending: Pending, answer: QuestionAnswer) -> ApprovalDecision:
    """What was said of a call that it wants to make."""
    if answer.action == "cancel":
        return deny_by_timeout(pending.id)
    if answer.action == "decline":
        return ApprovalDecision(id=pending.id, action="deny", reason=str(answer.content.get("reason", "")))
    changed = cast("Mapping[str, Any] | None", answer.content.get("arguments"))
    keep = answer.content.get("keep", True) is True
    if changed is None:
        return ApprovalDecision(id=pending.id, action="approve", keep=keep)
    return ApprovalDecision(id=pending.id, action="edit", arguments=changed, keep=keep)
