"""`AgentTool`: an agent as a tool of another agent, with a child run for each call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio

from loom_core.agent.calling_run import USAGE_KEY, calling_run
from loom_core.agent.result import RunResult
from loom_core.agent.run_context import RunContext
from loom_core.errors import ConfigError, InvalidInputError, LoomError, unwrap_group
from loom_core.runs.commands import (
    Abort,
    ApprovalDecision,
    HumanInputPolicy,
    InputResponse,
    Pause,
    Resume,
    check_response,
    deny_by_timeout,
)
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.runs.run import CONTEXT, PARENT_CALL, PARENT_RUN, Budget, Pending
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

_APPLIED_SECONDS = 10.0  # timeout for commands to be applied to a child run

_ARGUMENTS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "goal": {
            "type": "string",
            "minLength": 1,
            "description": "The task with all the context it needs: this conversation is not visible to it.",
        }
    },
    "required": ["goal"],
    "additionalProperties": False,
}


class AgentTool(Tool):
    """Agent as a tool: each call is a child run of the agent, and its answer is the result.

        researcher = Agent("deepseek", tools=[search], name="researcher")
        boss = Agent("deepseek", tools=[AgentTool(researcher, description="Finds facts, with sources.")])

    The child run is in the journal of the calling run (`metadata` has `parent_run` and `parent_call`), and it
    belongs to the call: if the call is repeated after a crash, the existing child run is resumed. Its usage
    counts for the calling run, and it is limited to the remaining tokens, cost, calls and time of that run;
    concurrent calls may each use what remained when they started. If the calling run is aborted or fails, the
    child run is aborted.

    The agent's own permissions apply inside, so the call itself needs no approval. Their approval requests go
    through the calling run, under the names of agent and tool (`researcher/write_file`), unless the agent has
    its own `approve`. The child run has the `context` of the calling run, and its `deps` unless the agent has
    its own.

    Args:
        agent: the agent.
        name: name of the tool, in any script; by default the agent's name.
        description: when to call it, and what it returns; by default the agent's description.
        output_schema: a Pydantic model, or a JSON Schema of objects, for its answers; None for text.
        budget: budget of one run; None for the agent's own.

    Raises:
        ConfigError: there is no description, or `agent` is not an agent.
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
            raise ConfigError(f"{agent!r} is not an agent.", advice="Give an `Agent`.")
        self.agent = agent
        self._name = name or agent.name
        self._description = description or agent.description
        if not self._description:
            raise ConfigError(
                f"The agent {self._name!r} has no description, so no model knows when to call it.",
                advice="Give it a description.",
            )
        self._output_schema = output_schema
        self._budget = budget or agent.budget

    def __repr__(self) -> str:
        return f"<AgentTool {self._name}>"

    @property
    def name(self) -> str:
        """The name for people."""
        return self._name

    @property
    def wire_name(self) -> str:
        """The name for models; see `names.own_wire_name`."""
        return own_wire_name(self._name)

    @property
    def description(self) -> str:
        """When to call it, and what it returns."""
        return self._description

    @property
    def args_schema(self) -> Mapping[str, Any]:
        """The schema of the arguments: a goal, as text."""
        return _ARGUMENTS

    @property
    def annotations(self) -> ToolAnnotations:
        """Harmless: running the agent changes nothing, and its own permissions decide about its calls."""
        return ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)

    @property
    def is_concurrency_safe(self) -> bool:
        """Whether all tools of the agent are concurrency-safe."""
        return all(tool.is_concurrency_safe for tool in self.agent.parts.toolbox.tools())

    @property
    def needs_seconds(self) -> float:
        """Infinite: only its budget limits it."""
        return math.inf

    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        """Run the agent to its end; resume the child run of this call if it exists."""
        context = context or CallContext()
        try:
            agent = await self.agent_for(arguments, context)
            child = ChildRun(agent, self._name, context, budget=self._budget)
            result = await child.result(str(arguments["goal"]), output_schema=self.answer_schema(arguments))
        except LoomError as error:
            return ToolOutput(str(error), is_error=True)
        return _output(result, self._name)

    async def agent_for(self, arguments: Mapping[str, Any], context: CallContext) -> Agent:
        """Return the agent for the child run of a call: the tool's own."""
        return self.agent

    def answer_schema(self, arguments: Mapping[str, Any]) -> type[BaseModel] | Mapping[str, Any] | None:
        """Return the schema of a call's answer: the tool's `output_schema`."""
        return self._output_schema

    async def abandon(self, *, context: CallContext) -> Mapping[str, Any] | None:
        """Abort the child run of a call, if it is active, and return its usage; see `Tool.abandon`."""
        run = await ChildRun(self.agent, self._name, context, budget=self._budget).abort()
        return None if run is None else {USAGE_KEY: run.spent}


def _output(result: RunResult[dict[str, Any]], name: str) -> ToolOutput:
    metadata = {USAGE_KEY: result.spent, "run_id": result.run_id}
    if result.status == "completed":
        return ToolOutput(result.output, result.structured, metadata=metadata)
    text = f"The agent `{name}` did not reach the goal: {result.problem}"
    if result.output:
        text += f"\nIts output so far:\n{result.output}"
    return ToolOutput(text, is_error=True, metadata=metadata)


_N = TypeVar("_N", int, float)


class ChildRun:
    """Child run for a call. The call is its idempotency key: a repeated call has the same run.

    Its requests to people go through the call; it is paused and resumed together with the calling run.

    Args:
        agent: the agent of the child run.
        name: name of the agent as a tool.
        context: context of the call.
        budget: its budget, further limited by the remaining budget of the calling run.
    """

    def __init__(self, agent: Agent, name: str, context: CallContext, *, budget: Budget) -> None:
        self._calling = calling_run() if context.call_id else None
        asking = agent.parts.asking
        calls, can_ask = self._calling, context.ask is not None
        # Prefer the agent's own `approve`; requests through the call have the deadline of the calling run.
        self._passes_on = asking.approve is None and can_ask and (calls is None or calls.can_ask)
        asked = HumanInputPolicy(accepts_commands=True, seconds=None) if calls is None else calls.child_policy
        self._agent = agent.extend(
            journal=None if calls is None else calls.journal,
            asking=asked if self._passes_on else None,
            deps=_deps_of(context) if agent.parts.deps is None else None,
        )
        self._name = name
        self._context = context
        self._budget = budget if calls is None else _limit_budget(budget, calls.remaining_budget)
        self._key = "" if calls is None else f"{context.run_id}/{context.call_id}"
        self._questions: dict[str, anyio.CancelScope] = {}

    async def result(
        self, goal: str, *, output_schema: type[BaseModel] | Mapping[str, Any] | None
    ) -> RunResult[dict[str, Any]]:
        """Run it to its end; resume it if it exists.

        Args:
            goal: the task.
            output_schema: see `Agent.run`.

        Raises:
            LoomError: as for `Agent.run`.
        """
        known = await self._find_existing()
        if known is not None and known.status == "paused":
            await self._send_command(known.id, Resume())
        if known is not None:  # it keeps the budget that it started with
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
            raise unwrap_group(error) from None
        return RunResult[dict[str, Any]].of(await self._agent.journal.get(run_id))

    async def abort(self) -> Run | None:
        """Abort the run, if it has not ended; return it, or None if there is none."""
        run = await self._find_existing()
        if run is None or run.status in FINAL_STATUSES:
            return run
        reason = "The run that asked for this has ended."
        await self._send_command(run.id, Abort(reason=reason, by=self._context.run_id))
        log = await self._agent.journal.claim(run.id)
        if log is not None:  # else the process that executes it applies the command
            async with log:
                await self._agent.execute(log)
        return await self._agent.journal.get(run.id)

    def _options(self) -> RunOptions:
        if self._calling is None:
            return {"budget": self._budget}
        request = self._calling.run.request
        return {
            "budget": self._budget,
            "idempotency_key": self._key,
            "caller": request.caller,
            "metadata": {PARENT_RUN: self._context.run_id, PARENT_CALL: self._context.call_id},
            "context": request.metadata.get(CONTEXT, {}),
        }

    async def _find_existing(self) -> Run | None:
        if self._calling is None:
            return None
        return await self._agent.journal.find_by_key(self._key, caller=self._calling.run.request.caller)

    async def _report_progress(self, event: StreamEvent) -> None:
        match event.type:
            case "approval_decided":
                if (scope := self._questions.pop(event.payload["call_id"], None)) is not None:
                    scope.cancel()  # it was decided by a command to the child run itself
                return
            case "tool_start":
                text = f"{self._name}/{event.payload['tool']}"
            case "tool_retry":
                it = event.payload
                text = f"{self._name}/{it['tool']} ↻ {it['attempt']}/{it['attempts']}: {it['problem']}"
            case "tool_progress":
                text = str(event.payload["message"])
            case _:
                return
        if self._context.progress is not None:
            await self._context.progress(float(event.seq), None, text)

    async def _ask(self, run_id: str, asked: Pending) -> None:
        """Forward a request to people, and their response to the child run."""
        # A decision that was sent to the child run itself while no process executed it answers the request.
        run = await self._agent.journal.wait_until_applied(run_id, seconds=_APPLIED_SECONDS)
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
                        in_doubt=pending.kind == "unknown",
                    )
                )
                said = _decision(pending, answer)
            await self._send_command(run_id, _validate_response(pending, said))

    async def _mirror_pauses(self, run_id: str) -> None:
        """Pause and resume together with the calling run."""
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
        except InvalidInputError:  # the state has changed: it has ended, or another response was faster
            return


def _deps_of(context: CallContext) -> object:
    return cast("RunContext[object]", context).deps if isinstance(context, RunContext) else None


def _limit_budget(budget: Budget, left: Budget) -> Budget:
    """Limit a budget to the remaining one of another run, except turns, which each run counts for itself."""
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
    """Validate a response from a program's function; replace an invalid one by a denial."""
    try:
        check_response(pending, said)
    except InvalidInputError as error:
        if isinstance(said, InputResponse):
            return InputResponse(id=pending.id, action="cancel")
        return ApprovalDecision(id=pending.id, action="deny", reason=str(error))
    return said


def _decision(pending: Pending, answer: QuestionAnswer) -> ApprovalDecision:
    """Convert the answer about a call inside the child run to a decision."""
    if answer.action == "cancel":
        return deny_by_timeout(pending.id)
    if answer.action == "decline":
        return ApprovalDecision(id=pending.id, action="deny", reason=str(answer.content.get("reason", "")))
    changed = cast("Mapping[str, Any] | None", answer.content.get("arguments"))
    keep = answer.content.get("keep", True) is True
    if changed is None:
        return ApprovalDecision(id=pending.id, action="approve", keep=keep)
    return ApprovalDecision(id=pending.id, action="edit", arguments=changed, keep=keep)
