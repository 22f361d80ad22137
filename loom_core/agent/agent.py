"""`Agent`: an LLM with tools that works on a goal until it is reached."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, Unpack, cast, overload

import anyio
from pydantic import BaseModel

from loom_core.agent.argument_validation import (
    resolve_instructions,
    resolve_knowledge_base,
    resolve_model,
    resolve_permissions,
    resolve_retries,
    resolve_skills,
    resolve_tools,
    validate_callbacks,
    validate_hooks,
    validate_parts,
)
from loom_core.agent.attachments import load_attachments, read_files
from loom_core.agent.compaction_settings import Compaction
from loom_core.agent.loop import RunLoop
from loom_core.agent.loop_guard import LoopGuard
from loom_core.agent.parts import AgentParts
from loom_core.agent.request import RunOptions, run_request
from loom_core.agent.result import RunResult
from loom_core.agent.steps import ForkOptions, ForkPlan
from loom_core.agent.user_memory.recall import explain_memory, memory_tools
from loom_core.blocking import run_blocking
from loom_core.config import defaults
from loom_core.errors import ConfigError, InvalidInputError, NotFoundError
from loom_core.llm.interface import ChatOptions, LLMProvider
from loom_core.runs.commands import HumanInputPolicy, Resume
from loom_core.runs.events import StreamEvent
from loom_core.runs.journal import Journal
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.runs.memory import InMemoryMemory
from loom_core.runs.run import CONTEXT, FORK_OF, FORK_STEP, OF_ONE_RUN, Budget, Run, RunRequest, caller_name
from loom_core.tools.execution.pipeline import ToolPipeline
from loom_core.tools.execution.retries import ToolRetries
from loom_core.tools.execution.scheduler import Scheduler
from loom_core.tools.interface import Tool
from loom_core.tools.permission.permissions import Permissions
from loom_core.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path
    from types import TracebackType

    from anyio.streams.memory import MemoryObjectSendStream

    from loom_core.agent.hooks import Hooks
    from loom_core.agent.parts import Instructions
    from loom_core.agent.skills.skill_set import SkillSet
    from loom_core.agent.user_memory.memory import UserMemory
    from loom_core.callbacks import Callback
    from loom_core.knowledge.interface import KnowledgeBaseProvider
    from loom_core.knowledge.sources.context_retriever import ContextRetriever
    from loom_core.knowledge.sources.federation.federation import Federation
    from loom_core.llm.messages import Message
    from loom_core.runs.commands import ApproveFunction, Command
    from loom_core.runs.journal import RunLog
    from loom_core.runs.memory import Memory
    from loom_core.tools.auditing.audit import AuditLog

__all__ = ["Agent", "stream_events"]

_WAIT_SECONDS = 45.0

_Model = TypeVar("_Model", bound=BaseModel)
_Tools: TypeAlias = Sequence[Tool | Callable[..., object]]
"""Tools, or functions with annotated parameters."""


class Agent:
    """LLM agent: works on goals with a model and tools.

        agent = Agent("deepseek", tools=[search], permissions="allow")
        result = await agent.run("What does our handbook say about parental leave?")
        print(result.or_raise().output)

    Every step is in the journal before the next one: with a journal in a file, `resume` continues a run that
    was killed, and no call is repeated without a person's approval. One agent may have any number of
    concurrent runs. It loads and connects nothing before the first run, except the names of `skills`.

    Args:
        llm: the model, or a configuration for `create_provider`, such as `deepseek`; by default that of
            `config.set_default_llm`.
        tools: its tools: `Tool` objects, or functions with annotated parameters.
        toolbox: instead of `tools`, a toolbox whose tools may change, such as those of MCP servers.
        knowledge_base: a knowledge base, several, or a federation: the model gets a tool to search them, and
            passages about the goal are retrieved before it answers.
        knowledge: a custom retriever of these passages, with or without such a tool.
        skills: folders with a `SKILL.md`, folders of such folders, glob patterns, or a `SkillSet`: the model
            gets their names and descriptions, and tools that load the rest.
        memory: stores the conversations of sessions; by default that of `config.set_default_memory`, or one
            that lasts as long as the process.
        user_memory: what the agent remembers about each user across sessions, see `UserMemory`; None for
            nothing.
        journal: stores the runs; by default as long as the process.
        permissions: which calls are allowed; or the action for calls that may change something or reach
            outside: `allow`, `ask` (the default) or `deny`.
        approve: asks a person for approval; without it, and without `wait_for_commands`, calls that need
            approval are not made.
        wait_for_commands: whether to wait for people who decide by `send_command`.
        approval_seconds: timeout for approvals; without an answer, the call is denied.
        budget: default budget of a run; by default the turns of `config.set_max_iterations`.
        compaction: see `Compaction`; None for no compaction.
        loop_guard: creates the guard that detects repeated calls in a run; None for no guard.
        hooks: the program's hooks, see `Hooks`.
        callbacks: observers, see `Callback`.
        system_prompt: instructions for the model, or a function that returns them, of `RunContext`, of the
            run, or without arguments; see `Instructions`. The rest of the system prompt follows from tools,
            knowledge and limits.
        deps: the program's dependencies, such as clients and connections, for the tools and instructions
            that take a `RunContext`. They are not in the journal.
        name: the agent's name; the agent of this name resumes its runs in a journal.
        description: its purpose, in a sentence: other agents choose it by that.
        scheduler: limits the concurrent calls of all runs; agents may share one.
        priority: if calls have to wait for a slot, those of agents with a higher priority go first.
        audit: the audit log for every decision about a call.
        output_tokens: approximate limit of a tool's output that the model sees.
        tool_retries: how often a call is retried that failed for a reason that passes, see `ToolRetries`; or
            the number of retries, 0 for none.
        options: options for every request to the model, such as `temperature` or `effort`. By default,
            answers may be as long as the vendor allows.

    Attributes:
        name: the agent's name.
        description: its purpose.
        journal: its runs.
        budget: see above.
        scheduler: see above; its `snapshot` has the number of calls that run, wait, and timed out.
        parts: the components of its runs.

    Raises:
        ConfigError: the model's configuration is wrong, two tools have the same name, there is no skill at a
            path, or an argument is invalid.
        ValueError: a function cannot be made a tool; see `tool`.
    """

    def __init__(
        self,
        llm: LLMProvider | str | None = None,
        *,
        tools: Sequence[Tool | Callable[..., object]] = (),
        toolbox: Toolbox | None = None,
        knowledge_base: KnowledgeBaseProvider | Federation | Sequence[KnowledgeBaseProvider] | None = None,
        knowledge: ContextRetriever | None = None,
        skills: Sequence[str | Path] | SkillSet = (),
        memory: Memory | None = None,
        user_memory: UserMemory | None = None,
        journal: Journal | None = None,
        permissions: Permissions | Literal["allow", "ask", "deny"] = "ask",
        approve: ApproveFunction | None = None,
        wait_for_commands: bool = False,
        approval_seconds: float | None = 600.0,
        budget: Budget | None = None,
        compaction: Compaction | None = Compaction(),  # noqa: B008 - frozen
        loop_guard: Callable[[], LoopGuard] | None = LoopGuard,
        hooks: Sequence[Hooks] = (),
        callbacks: Sequence[Callback] = (),
        system_prompt: Instructions
        | Callable[[Run], str | Awaitable[str]]
        | Callable[[], str | Awaitable[str]] = "",
        deps: object = None,
        name: str = "default",
        description: str = "",
        scheduler: Scheduler | None = None,
        priority: int = 0,
        audit: AuditLog | None = None,
        output_tokens: int = 6000,
        tool_retries: ToolRetries | int = ToolRetries(),  # noqa: B008 - frozen
        options: ChatOptions | None = None,
    ) -> None:
        standing = defaults()
        if toolbox is not None and tools:
            raise InvalidInputError(
                "An agent takes either tools or a toolbox.", advice="Put the tools into the toolbox."
            )
        validate_parts(
            name=name,
            budget=budget,
            journal=journal,
            memory=memory,
            user_memory=user_memory,
            knowledge=knowledge,
            approve=approve,
            loop_guard=loop_guard,
            toolbox=toolbox,
            scheduler=scheduler,
            audit=audit,
            priority=priority,
            options=options,
        )
        if compaction is not None and not isinstance(cast("object", compaction), Compaction):
            raise ConfigError(
                f"`compaction` cannot be {compaction!r}.", advice="Give `Compaction(…)`, or None for none."
            )
        self.name = name
        self.description = description
        self.journal = journal or Journal()
        self.budget = budget or Budget(iterations=standing.max_iterations)
        self._permissions = resolve_permissions(permissions)
        self.scheduler = scheduler or Scheduler()
        self._priority = priority
        self._audit = audit
        self._output_tokens = output_tokens
        self._callbacks = validate_callbacks(callbacks)
        skill_set = resolve_skills(skills)
        own = [*resolve_tools(tools), *skill_set.tools]
        if knowledge_base is not None:
            search, passages = resolve_knowledge_base(knowledge_base)
            own.append(search)
            knowledge = knowledge or passages
        instructions = [resolve_instructions(each) for each in (system_prompt, skill_set.instructions)]
        if user_memory is not None:
            own += memory_tools(user_memory)
            instructions.append(resolve_instructions(partial(explain_memory, user_memory)))
        if toolbox is None:
            toolbox = Toolbox(own)
        elif own:
            toolbox = toolbox.with_tools(own)
        provider, options = resolve_model(llm if llm is not None else standing.llm), options or ChatOptions()
        self.parts = AgentParts(
            llm=provider,
            toolbox=toolbox,
            pipeline=self._pipeline,
            memory=memory or standing.memory or InMemoryMemory(),
            user_memory=user_memory,
            retries=resolve_retries(tool_retries),
            knowledge=knowledge,
            compactor=compaction and compaction.compactors(provider, reserve=options.get("max_tokens")),
            guard=loop_guard,
            hooks=validate_hooks(hooks),
            system_prompt=tuple(instructions),
            asking=HumanInputPolicy(
                approve=approve, accepts_commands=wait_for_commands, seconds=approval_seconds
            ),
            options=options,
            deps=deps,
        )

    @classmethod
    def create(cls, llm: LLMProvider | str | None = None, **options: Any) -> Self:  # noqa: ANN401 - as above
        """Return `Agent(llm, …)`; an alias from the first design."""
        return cls(llm, **options)

    @overload
    async def run(
        self,
        goal: str,
        *,
        output_schema: type[_Model],
        deps: object = None,
        tools: _Tools = (),
        **options: Unpack[RunOptions],
    ) -> RunResult[_Model]: ...
    @overload
    async def run(
        self,
        goal: str,
        *,
        output_schema: Mapping[str, Any] | None = None,
        deps: object = None,
        tools: _Tools = (),
        **options: Unpack[RunOptions],
    ) -> RunResult[dict[str, Any]]: ...
    async def run(
        self,
        goal: str,
        *,
        output_schema: type[BaseModel] | Mapping[str, Any] | None = None,
        deps: object = None,
        tools: _Tools = (),
        **options: Unpack[RunOptions],
    ) -> RunResult[Any]:
        """Run the agent on a goal until the run ends.

        If this is cancelled, the run stays in the journal as it is, and can be resumed.

        Args:
            goal: the task.
            output_schema: a Pydantic model, or a JSON Schema of objects, that the final answer has to fit. If
                it does not, or the model's validators reject it, the LLM is told why, and answers again.
            deps: replaces the agent's `deps` in this run; None for the agent's.
            tools: additional tools for this run. Like `deps`, they are not in the journal: a program that
                resumes the run passes them to `resume`.
            options: see `RunOptions`.

        Raises:
            ConfigError: one of the tools is invalid, or two have the same name.
            InvalidInputError: the goal is empty, the schema or an option is invalid, agents are nested too
                deeply, the session has an active run, or the model takes no images.
            LoomError: an attachment cannot be loaded; see `load_attachments`.
            NotFoundError: neither the journal nor the memory knows the session.
            StoreError: the journal cannot be written.
            Exception: a component, such as `approve`, raised an exception other than `LoomError`; the run
                has failed.
        """
        agent = self._for_run(deps, tools, model=_model(output_schema))
        if given := options.get("attachments"):
            options["attachments"] = await load_attachments(given)
        run = await self._create_run(self.request(goal, output_schema=output_schema, **options))
        return RunResult[Any].of(await agent._execute_run(run), model=_model(output_schema))

    @overload
    def run_sync(
        self,
        goal: str,
        *,
        output_schema: type[_Model],
        deps: object = None,
        tools: _Tools = (),
        **options: Unpack[RunOptions],
    ) -> RunResult[_Model]: ...
    @overload
    def run_sync(
        self,
        goal: str,
        *,
        output_schema: Mapping[str, Any] | None = None,
        deps: object = None,
        tools: _Tools = (),
        **options: Unpack[RunOptions],
    ) -> RunResult[dict[str, Any]]: ...
    def run_sync(
        self,
        goal: str,
        *,
        output_schema: type[BaseModel] | Mapping[str, Any] | None = None,
        deps: object = None,
        tools: _Tools = (),
        **options: Unpack[RunOptions],
    ) -> RunResult[Any]:
        """Run the agent without `await`, for scripts and notebooks, even if an event loop is running.

        Components that belong to the caller's event loop, such as connected MCP servers, need `run`.
        """

        async def run() -> RunResult[Any]:  # `run` itself is overloaded
            schema = cast("None", output_schema)
            return await self.run(goal, output_schema=schema, deps=deps, tools=tools, **options)

        return run_blocking(run)

    async def stream(
        self,
        goal: str,
        *,
        output_schema: type[BaseModel] | Mapping[str, Any] | None = None,
        deps: object = None,
        tools: _Tools = (),
        **options: Unpack[RunOptions],
    ) -> AsyncGenerator[StreamEvent]:
        """Run the agent on a goal, and stream all events to the end of the run.

        Close the iterator (`contextlib.aclosing`) to leave it early: the run stops there, and can be resumed.

        Args:
            goal: as for `run`, like all others.
            output_schema: see there.
            deps: see there.
            tools: see there.
            options: see there.

        Raises:
            LoomError: as for `run`.
        """
        agent = self._for_run(deps, tools, model=_model(output_schema))
        if given := options.get("attachments"):
            options["attachments"] = await load_attachments(given)
        run = await self._create_run(self.request(goal, output_schema=output_schema, **options))
        async with aclosing(stream_events(run.id, self.journal, agent._execute_run(run))) as events:
            async for event in events:
                yield event

    async def resume(
        self, run_id: str, *, deps: object = None, tools: _Tools = ()
    ) -> RunResult[dict[str, Any]]:
        """Resume a run that was killed, is paused, has failed or was aborted.

        If another process executes the run, wait for it; return a completed run as it is.

        Args:
            run_id: the run.
            deps: as for `run`; the journal has neither these nor the additional tools.
            tools: see there.

        Raises:
            ConfigError: as for `run`.
            NotFoundError: there is no such run.
            InvalidInputError: another agent started it.
            StoreError: the journal cannot be written.
        """
        run = await self.journal.get(run_id)
        if run.request.profile != self.name:
            raise InvalidInputError(
                f"Run {run_id} belongs to the agent {run.request.profile!r}, not to {self.name!r}.",
                advice="Resume it with that one.",
            )
        agent = self._for_run(deps, tools)
        if run.status in {"paused", "failed", "aborted"}:
            await self.journal.send_commands(run_id, Resume())
        return RunResult[dict[str, Any]].of(await agent._execute_run(run))

    async def fork(self, run_id: str, *, at: int, **change: Unpack[ForkOptions]) -> RunResult[dict[str, Any]]:
        """Run a fork of a run, possibly of another agent of the same journal, from one of its steps on.

        The fork begins with the recorded steps before this one, which cost nothing and have no effects. It
        does this step again, or takes the given outcome, and goes on: calls are made for real, by the
        permissions of this agent. It has the original's budget for itself. Approvals for the rest of a run
        are not taken along. The original stays as it is.

        Args:
            run_id: the original.
            at: number of the step; see `read_steps`.
            change: see `ForkOptions`.

        Raises:
            InvalidInputError: the run has no such step, or the outcome does not fit it; or as for `run`.
            NotFoundError: there is no such run, or a given call is of an unknown tool.
            StoreError: the journal cannot be written.
        """
        return RunResult[dict[str, Any]].of(
            await self._execute_run(await self.create_fork(run_id, at=at, **change))
        )

    async def create_fork(self, run_id: str, *, at: int, **change: Unpack[ForkOptions]) -> Run:
        """Create a fork without executing it, for example for a `RunHost`; see `fork`."""
        run = await self.journal.get(run_id)
        events = await self.journal.events(run_id, limit=run.last_seq)
        outcome = change.get("outcome")
        if outcome is not None and not isinstance(outcome, str):
            find = self.parts.toolbox.find
            outcome = [replace(each, name=find(each.name).wire_name) for each in outcome]
        plan = ForkPlan.at(run_id, events, at)
        begins = plan.first_events(outcome=outcome, message=change.get("message", ""))
        known = {name: value for name, value in run.request.metadata.items() if name not in OF_ONE_RUN}
        request = self.request(
            run.request.goal,
            output_schema=run.request.output_schema,
            session_id=run.request.session_id if change.get("same_session", False) else "",
            budget=change.get("budget", run.request.budget),
            allowed_tools=run.request.allowed_tools,
            caller=change.get("caller", run.request.caller),
            attachments=run.request.attachments,
            metadata={**known, FORK_OF: run_id, FORK_STEP: at},
        )
        return await self.journal.fork(run_id, request, begins)

    async def send_command(self, run_id: str, order: Command) -> Run:
        """Send a command to a run; see `Journal.send_commands`."""
        return await self.journal.send_commands(run_id, order)

    def extend(
        self,
        *,
        tools: _Tools = (),
        system_prompt: str = "",
        deps: object = None,
        journal: Journal | None = None,
        memory: Memory | None = None,
        history: Sequence[Message] = (),
        asking: HumanInputPolicy | None = None,
    ) -> Agent:
        """Return a copy of the agent with additions. It has the same name: both can resume each other's runs.

        Args:
            tools: additional tools.
            system_prompt: instructions to append to the agent's own.
            deps: replaces the agent's dependencies, if it is not None.
            journal: replaces the agent's journal, as do all others.
            memory: replaces its memory.
            history: the conversation that new sessions begin with.
            asking: replaces its policy for human input.

        Raises:
            ConfigError: a tool is invalid, or two have the same name.
        """
        other = copy.copy(self)
        other.journal = journal or self.journal
        mine, added = self.parts, resolve_tools(tools)
        other.parts = replace(
            mine,
            toolbox=mine.toolbox.with_tools(added) if added else mine.toolbox,
            pipeline=other._pipeline,
            memory=memory or mine.memory,
            history=history or mine.history,
            system_prompt=(*mine.system_prompt, system_prompt),
            asking=asking or mine.asking,
            deps=mine.deps if deps is None else deps,
        )
        return other

    def _for_run(self, deps: object, tools: _Tools, *, model: type[BaseModel] | None = None) -> Agent:
        """Return the agent with the dependencies, tools and answer model of one run."""
        if deps is None and not tools and model is None:
            return self
        agent = self.extend(deps=deps, tools=tools)
        agent.parts = replace(agent.parts, answer_model=model)
        return agent

    def request(
        self,
        goal: str,
        *,
        output_schema: type[BaseModel] | Mapping[str, Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> RunRequest:
        """Build the request for a run of this agent, for example for a `RunHost`.

        Raises:
            InvalidInputError: as for `run`; or an attachment is not loaded, see `load_attachments`.
        """
        request = run_request(
            goal, profile=self.name, budget=self.budget, output_schema=output_schema, options=options
        )
        image = next((each.name for each in request.attachments if each.is_image), "")
        if image and not self.parts.llm.takes_images:
            raise InvalidInputError(
                f"{image} is an image, and the model {self.parts.llm.model} takes none.",
                advice="Leave it out, or use a model that takes images.",
            )
        return request

    def loop(self, log: RunLog) -> RunLoop:
        """Return the executor of a claimed run."""
        for each in self._callbacks:
            log.observe(each)
        return RunLoop(self.parts, log)

    async def execute(self, log: RunLog) -> Run:
        """Execute a claimed run to its end; see `RunLoop.execute`."""
        return await self.loop(log).execute()

    async def aclose(self) -> None:
        """Close the model's connections and the journal."""
        await self.parts.llm.aclose()
        await self.journal.aclose()

    def __repr__(self) -> str:
        return f"<Agent {self.name}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _create_run(self, request: RunRequest) -> Run:
        """Create a run. If only the memory knows its session, create the session in the journal under its id.

        Only the journal knows the owner of a session, so this is for the user of this machine only.
        """
        try:
            return await self.journal.create(request)
        except NotFoundError:
            if request.caller or not await self.parts.memory.messages(request.session_id, limit=1):
                raise
            return await self.journal.create(request, begins_session=True)

    async def _execute_run(self, run: Run) -> Run:
        """Execute a run to its end, or wait for the process that executes it; return the ended run."""
        while True:
            log = await self.journal.claim(run.id)
            if log is not None:
                async with log:
                    return await self.execute(log)
            run = await self.journal.wait_until_idle(run.id, after=run.last_seq, seconds=_WAIT_SECONDS)
            if run.status in FINAL_STATUSES:
                return run

    def _pipeline(self, run: Run) -> ToolPipeline:
        # The memory is given to be used.
        free = [] if self.parts.user_memory is None else [self.parts.toolbox.find("remember")]
        return ToolPipeline(
            self.parts.toolbox,
            permissions=self._permissions.for_run(free=free),
            scheduler=self.scheduler,
            priority=self._priority,
            output_tokens=self._output_tokens,
            audit=self._audit,
            run_id=run.id,
            source=run.request.caller,
            caller=caller_name(run),
            data=run.request.metadata.get(CONTEXT),
            read_files=read_files,
        )


def _model(given: type[BaseModel] | Mapping[str, Any] | None) -> type[BaseModel] | None:
    return None if given is None or isinstance(given, Mapping) else given


_STREAM_BUFFER = 256  # events that the consumer has not taken yet


async def stream_events(
    run_id: str, journal: Journal, drive: Coroutine[Any, Any, object]
) -> AsyncGenerator[StreamEvent]:
    """Stream the events of a run to its end. If the iterator is closed early, cancel the execution.

    Args:
        run_id: the run.
        journal: its journal.
        drive: executes the run to its end, concurrently.

    Raises:
        Exception: an exception of `drive`.
    """
    # Tasks, not a task group: a generator must not yield inside an open task group.
    giving, taking = anyio.create_memory_object_stream["StreamEvent"](_STREAM_BUFFER)
    driving = asyncio.ensure_future(drive)
    following = asyncio.ensure_future(_forward_events(run_id, journal, giving))

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
            with anyio.CancelScope(shield=True):  # else the caller believes that the run is free by now
                await asyncio.wait(left)


async def _forward_events(run_id: str, journal: Journal, giving: MemoryObjectSendStream[StreamEvent]) -> None:
    """Forward the events of a run to a stream, at the pace of its consumer."""
    async with giving, aclosing(journal.follow(run_id)) as events:
        async for event in events:
            try:
                giving.send_nowait(event)
            except anyio.WouldBlock:
                await giving.send(event)
