"""`Agent`: a model with tools that works on a goal until it is reached."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, cast, overload

import anyio
from pydantic import BaseModel

from loom_core.agent.argument_validation import (
    resolve_instructions,
    resolve_knowledge_base,
    resolve_model,
    resolve_permissions,
    resolve_tools,
    validate_callbacks,
    validate_hooks,
    validate_parts,
)
from loom_core.agent.compaction_settings import Compaction, Compactors
from loom_core.agent.loop import RunLoop
from loom_core.agent.loop_guard import LoopGuard
from loom_core.agent.parts import AgentParts
from loom_core.agent.request import RunOptions, run_request
from loom_core.agent.result import RunResult
from loom_core.blocking import run_blocking
from loom_core.config import defaults
from loom_core.errors import ConfigError, InvalidInputError, NotFoundError
from loom_core.llm.interface import ChatOptions, LLMProvider
from loom_core.runs.commands import Resume
from loom_core.runs.events import StreamEvent
from loom_core.runs.human_broker import HumanInputPolicy
from loom_core.runs.journal import Journal
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.runs.memory import InMemoryMemory
from loom_core.runs.run import Budget, Run, RunRequest, caller_name
from loom_core.tools.execution.pipeline import ToolPipeline
from loom_core.tools.execution.scheduler import Scheduler
from loom_core.tools.interface import Tool
from loom_core.tools.permission.permissions import Permissions
from loom_core.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from anyio.streams.memory import MemoryObjectSendStream

    from loom_core.agent.hooks import Hooks
    from loom_core.agent.parts import Instructions
    from loom_core.callbacks.interface import Callback
    from loom_core.knowledge.interface import KnowledgeBaseProvider
    from loom_core.knowledge.sources.context_retriever import ContextRetriever
    from loom_core.knowledge.sources.federation.federation import Federation
    from loom_core.runs.commands import Command
    from loom_core.runs.human_broker import ApproveFunction
    from loom_core.runs.journal import RunLog
    from loom_core.runs.memory import Memory
    from loom_core.tools.auditing.audit import AuditLog

__all__ = ["Agent", "stream_events"]

_WAIT_SECONDS = 45.0

_Model = TypeVar("_Model", bound=BaseModel)


class Agent:
    """Works on goals with a model and tools.

        agent = Agent("deepseek", tools=[search], permissions="allow")
        result = await agent.run("What does our handbook say about parental leave?")
        print(result.or_raise().output)

    Every step is in the journal before the next: with a journal in a file, a run that was killed goes on by
    `resume`, and no call is made twice without a person's word. One agent may have any number of runs at the
    same time. Nothing is loaded or connected before the first one.

    Args:
        llm: the model, or a configuration for `create_provider`, such as `deepseek`; by default that of
            `config.set_default_llm`.
        tools: what it may call: tools, or functions with annotated parameters.
        toolbox: instead, tools that come and go, such as those of MCP servers.
        knowledge_base: a knowledge base, several, or a federation of some: the model searches them by a tool,
            and passages about the goal are found before it answers.
        knowledge: finds these passages in a way of its own, with or without such a tool.
        memory: keeps the conversations of sessions; by default that of `config.set_default_memory`, or one
            that lasts as long as the program runs.
        journal: keeps the runs; by default as long as the program runs.
        permissions: which calls may be made; or what becomes of those that may change something or reach
            outside: `allow`, `ask` (the default) or `deny`.
        approve: asks a person, where one has to be asked; without it, and without `wait_for_orders`, what
            would have to be approved is not done.
        wait_for_orders: whether people are waited for who decide by `order`.
        approval_seconds: how long people are waited for; who has not answered by then has refused.
        budget: what a run may take at the most, if it does not say so itself; by default the turns of
            `config.set_max_iterations`.
        compaction: see `Compaction`; None leaves conversations as they are.
        loop_guard: makes what notices that a run goes round in circles; None lets it.
        hooks: the program's own, see `Hooks`.
        callbacks: look on, see `Callback`.
        system_prompt: what the model is told first, or a function of the run that says it, see
            `Instructions`; the rest of the system prompt is made of the tools, the knowledge and the limits.
        name: what it is called; runs of a journal are taken up again by the agent of this name.
        description: what it is for, in a sentence: other agents choose it by that.
        scheduler: gives places to the calls of all runs; agents may share one.
        priority: where calls have to wait for a place, those of agents with a higher one go first.
        audit: has every decision about a call on file.
        output_tokens: about so many of a tool's output are shown to the model.
        options: what every request to the model says besides, such as `temperature` or `effort`. Answers may
            be as long as the vendor allows, if nothing is said.

    Attributes:
        name: what it is called.
        description: what it is for.
        journal: its runs.
        budget: see above.
        scheduler: see above; its `snapshot` says how many calls run, wait, and took too long.
        parts: what drives its runs.

    Raises:
        ConfigError: the model's configuration is wrong, two tools have the same name, or something is not
            what it should be.
        ValueError: no tool can be made of a function; see `tool`.
    """

    def __init__(
        self,
        llm: LLMProvider | str | None = None,
        *,
        tools: Sequence[Tool | Callable[..., object]] = (),
        toolbox: Toolbox | None = None,
        knowledge_base: KnowledgeBaseProvider | Federation | Sequence[KnowledgeBaseProvider] | None = None,
        knowledge: ContextRetriever | None = None,
        memory: Memory | None = None,
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
        system_prompt: Instructions | Callable[[], str | Awaitable[str]] = "",
        name: str = "default",
        description: str = "",
        scheduler: Scheduler | None = None,
        priority: int = 0,
        audit: AuditLog | None = None,
        output_tokens: int = 6000,
        options: ChatOptions | None = None,
    ) -> None:
        standing = defaults()
        if toolbox is not None and tools:
            raise InvalidInputError(
                "An agent has either tools or a toolbox.", advice="Put the tools into the toolbox."
            )
        validate_parts(
            name=name,
            budget=budget,
            journal=journal,
            memory=memory,
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
        own = resolve_tools(tools)
        if knowledge_base is not None:
            search, passages = resolve_knowledge_base(knowledge_base)
            own.append(search)
            knowledge = knowledge or passages
        if toolbox is None:
            toolbox = Toolbox(own)
        elif own:
            toolbox = Toolbox(own, live=(toolbox.tools,))
        provider, options = resolve_model(llm if llm is not None else standing.llm), options or ChatOptions()
        self.parts = AgentParts(
            llm=provider,
            toolbox=toolbox,
            pipeline=self._pipeline,
            memory=memory or standing.memory or InMemoryMemory(),
            knowledge=knowledge,
            compactor=None
            if compaction is None
            else Compactors(compaction, provider, reserve=options.get("max_tokens")).make,
            guard=loop_guard,
            hooks=validate_hooks(hooks),
            system_prompt=(resolve_instructions(system_prompt),),
            asking=HumanInputPolicy(
                approve=approve, accepts_commands=wait_for_commands, seconds=approval_seconds
            ),
            options=options,
        )

    @classmethod
    def create(cls, llm: LLMProvider | str | None = None, **options: Any) -> Self:  # noqa: ANN401 - as above
        """Return `Agent(llm, …)`: the name of the first design for the same."""
        return cls(llm, **options)

    @overload
    async def run(
        self, goal: str, *, output_schema: type[_Model], **options: Unpack[RunOptions]
    ) -> RunResult[_Model]: ...
    @overload
    async def run(
        self, goal: str, *, output_schema: Mapping[str, Any] | None = None, **options: Unpack[RunOptions]
    ) -> RunResult[dict[str, Any]]: ...
    async def run(
        self,
        goal: str,
        *,
        output_schema: type[BaseModel] | Mapping[str, Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult[Any]:
        """Work on a goal until the run is at its end.

        Where this is cancelled, the run stays in the journal as it is, and can be resumed.

        Args:
            goal: what is wanted.
            output_schema: a Pydantic model, or a JSON Schema of objects, that the final answer has to fit.
            options: see `RunOptions`.

        Raises:
            InvalidInputError: the goal is empty, the schema cannot be used, an option is wrong, agents have
                started each other too deeply, or the session has a run that is under way.
            NotFoundError: neither the journal nor the memory knows the session.
            RecordError: the journal cannot be written.
            Exception: what a part, such as `approve`, raises that is no `LoomError`; the run has failed.
        """
        run = await self._create_run(self.request(goal, output_schema=output_schema, **options))
        return RunResult[Any].of(await self._execute_run(run), model=_model(output_schema))

    @overload
    def run_sync(
        self, goal: str, *, output_schema: type[_Model], **options: Unpack[RunOptions]
    ) -> RunResult[_Model]: ...
    @overload
    def run_sync(
        self, goal: str, *, output_schema: Mapping[str, Any] | None = None, **options: Unpack[RunOptions]
    ) -> RunResult[dict[str, Any]]: ...
    def run_sync(
        self,
        goal: str,
        *,
        output_schema: type[BaseModel] | Mapping[str, Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult[Any]:
        """`run` without `await`, for scripts and notebooks, also where an event loop is running.

        Parts that belong to the caller's own event loop, such as connected MCP servers, need `run`.
        """

        async def run() -> RunResult[Any]:  # `run` itself is overloaded
            return await self.run(goal, output_schema=cast("None", output_schema), **options)

        return run_blocking(run)

    async def stream(
        self,
        goal: str,
        *,
        output_schema: type[BaseModel] | Mapping[str, Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncGenerator[StreamEvent]:
        """Work on a goal, and tell everything that happens, to the end of the run.

        Close the iterator (`contextlib.aclosing`) where it is left before its end: the run stops there, and
        can be resumed.

        Args:
            goal: as for `run`, as all others.
            output_schema: see there.
            options: see there.

        Raises:
            LoomError: as for `run`.
        """
        run = await self._create_run(self.request(goal, output_schema=output_schema, **options))
        async with aclosing(stream_events(run.id, self.journal, self._execute_run(run))) as events:
            async for event in events:
                yield event

    async def resume(self, run_id: str) -> RunResult[dict[str, Any]]:
        """Go on with a run: one that was killed, is paused, has failed or was aborted.

        A run that somebody drives already is waited for; one that is completed is given back as it is.

        Raises:
            NotFoundError: there is no such run.
            InvalidInputError: it was begun by another agent.
            RecordError: the journal cannot be written.
        """
        run = await self.journal.get(run_id)
        if run.request.profile != self.name:
            raise InvalidInputError(
                f"Run {run_id} belongs to the agent {run.request.profile!r}, not to {self.name!r}.",
                advice="Resume it with that one.",
            )
        if run.status in {"paused", "failed", "aborted"}:
            await self.journal.send_commands(run_id, Resume())
        return RunResult[dict[str, Any]].of(await self._execute_run(run))

    async def send_command(self, run_id: str, order: Command) -> Run:
        """Tell a run something while it is under way; see `Journal.order`."""
        return await self.journal.send_commands(run_id, order)

    def extend(
        self,
        *,
        tools: Sequence[Tool] = (),
        system_prompt: str = "",
        journal: Journal | None = None,
        memory: Memory | None = None,
        asking: HumanInputPolicy | None = None,
    ) -> Agent:
        """The same agent with more: with the same name, so that each goes on with the runs of the other.

        Args:
            tools: what it may call besides.
            system_prompt: what its model is told behind the agent's own.
            journal: keeps its runs instead of the agent's own, as all others.
            memory: keeps its conversations.
            asking: whom its runs ask.

        Raises:
            ConfigError: two of the tools have the same name.
        """
        other = copy.copy(self)
        other.journal = journal or self.journal
        mine = self.parts
        other.parts = replace(
            mine,
            toolbox=Toolbox(tools, live=(mine.toolbox.tools,)) if tools else mine.toolbox,
            pipeline=other._pipeline,
            memory=memory or mine.memory,
            system_prompt=(*mine.system_prompt, system_prompt),
            asking=asking or mine.asking,
        )
        return other

    def request(
        self,
        goal: str,
        *,
        output_schema: type[BaseModel] | Mapping[str, Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> RunRequest:
        """What a run of this agent is asked to do, for who starts it in other ways, such as a `RunHost`.

        Raises:
            InvalidInputError: as for `run`.
        """
        return run_request(
            goal, profile=self.name, budget=self.budget, output_schema=output_schema, options=options
        )

    def loop(self, log: RunLog) -> RunLoop:
        """What drives a claimed run, for who wants to have a hold of it."""
        for each in self._callbacks:
            log.observe(each)
        return RunLoop(self.parts, log)

    async def execute(self, log: RunLog) -> Run:
        """Drive a claimed run to its end; see `RunLoop.drive`."""
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
        """The run in the journal. A session that the memory alone knows begins there under its own id.

        Whose a session is, the journal alone knows: so this is for the user of this machine only.
        """
        try:
            return await self.journal.create(request)
        except NotFoundError:
            if request.caller or not await self.parts.memory.messages(request.session_id, limit=1):
                raise
            return await self.journal.create(request, begins_session=True)

    async def _execute_run(self, run: Run) -> Run:
        """The run at its end: driven here, or waited for where another drives it."""
        while True:
            log = await self.journal.claim(run.id)
            if log is not None:
                async with log:
                    return await self.execute(log)
            run = await self.journal.wait_until_idle(run.id, after=run.last_seq, seconds=_WAIT_SECONDS)
            if run.status in FINAL_STATUSES:
                return run

    def _pipeline(self, run: Run) -> ToolPipeline:
        return ToolPipeline(
            self.parts.toolbox,
            permissions=self._permissions.for_run(),
            scheduler=self.scheduler,
            priority=self._priority,
            output_tokens=self._output_tokens,
            audit=self._audit,
            run_id=run.id,
            source=run.request.caller,
            caller=caller_name(run),
        )


def _model(given: type[BaseModel] | Mapping[str, Any] | None) -> type[BaseModel] | None:
    return None if given is None or isinstance(given, Mapping) else given


_STREAM_BUFFER = 256  # events that nobody has taken yet


async def stream_events(
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
            await asyncio.wait(left)


async def _forward_events(run_id: str, journal: Journal, giving: MemoryObjectSendStream[StreamEvent]) -> None:
    """Give the events of a run to whoever takes them, as fast as they do."""
    async with giving, aclosing(journal.follow(run_id)) as events:
        async for event in events:
            try:
                giving.send_nowait(event)
            except anyio.WouldBlock:
                await giving.send(event)
