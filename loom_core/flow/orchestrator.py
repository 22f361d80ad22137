"""`WorkflowOrchestrator`: a conversation with flows, skills, tools and knowledge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from loom_core.flow.config.flow_file import check_flow_file
from loom_core.flow.config.models import FlowFile
from loom_core.flow.responses.reply import FlowReply, Outcome, Route
from loom_core.flow.runtime.runtime import FlowRunner, RuntimeInUse, RuntimeOverrides
from loom_core.flow.turns.explanation import Explanation, explain
from loom_core.flow.turns.replies import Delivery
from loom_core.flow.turns.session import Conversations, route_of
from loom_core.flow.turns.turn import begin_named_flow, begin_next, check_message, open_turn, take
from loom_core.runs.host import RunHost
from loom_core.runs.journal import Journal
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.runs.memory import SQLiteMemory

if TYPE_CHECKING:
    from types import TracebackType

    from loom_core.flow.config.flow_file import LoadedFlows
    from loom_core.flow.executor import FlowExecutor, FlowLimits
    from loom_core.flow.http import EndpointCaller
    from loom_core.flow.knowledge import FlowKnowledge
    from loom_core.flow.runtime.runtime import FlowRuntime
    from loom_core.flow.turns.session import Conversation
    from loom_core.flow.turns.turn_context import TurnContext
    from loom_core.llm.interface import LLMProvider
    from loom_core.runs.commands import Order
    from loom_core.runs.memory import Memory
    from loom_core.runs.run import Run
    from loom_core.tools.auditing.audit import AuditLog
    from loom_core.tools.interface import JsonValue, Tool
    from loom_core.tools.permission.permissions import Permissions

__all__ = ["WorkflowOrchestrator"]

_WAIT_SECONDS = 45.0


class WorkflowOrchestrator:
    """Orchestrator of conversations: route each message, and do what it asks for.

        journal = Journal(home / "runs.db")
        async with WorkflowOrchestrator(read_flow_file(path), journal=journal) as assistant:
            reply = await assistant.query("我要请三天假")
            reply = await assistant.query("感冒了", session_id=reply.session_id)

    In this order: what the conversation waits for; trigger patterns; a decision by the model, beside which
    the knowledge sources are asked. What is under way is in the journal: it outlives the process, and any
    number of processes may serve the same sessions.

    Args:
        config: the flows: a file that was read, or a `FlowFile` that the program has made, which is checked.
        context: variables of conversations (`tenantId`, `chatbotId`) where a message brings none; they take
            the place of those of the file.
        caller: sends requests; by default one of its own.
        journal: keeps sessions and runs; by default as long as the program runs.
        memory: keeps what is said; by default in the journal's file.
        llm: the model; by default that of the file, and none if it names none.
        knowledge: what is asked for knowledge; by default the file's `retrieve_knowledge_url`.
        tools: what steps and skills may call besides the file's `system_tools`.
        live: tools of servers; see `Toolbox`.
        permissions: whether tools may be called; what the file says of its own counts with a word here.
        audit: has every decision about tools on file.
        answer_seconds: how long people are waited for; None for as long as it takes.
        wait_seconds: how long a message waits for its run before it is told that the run goes on.
        limits: what keeps flows from going on for ever.
        look_seconds: how often is looked for runs that a dead process has left; None for never.

    Raises:
        ConfigError: the file cannot be used.
    """

    def __init__(
        self,
        config: LoadedFlows | FlowFile,
        context: Mapping[str, JsonValue] | None = None,
        caller: EndpointCaller | None = None,
        *,
        journal: Journal | None = None,
        memory: Memory | None = None,
        llm: LLMProvider | None = None,
        knowledge: FlowKnowledge | None = None,
        tools: Iterable[Tool] = (),
        live: Sequence[Callable[[], tuple[Tool, ...]]] = (),
        permissions: Permissions | Literal["allow", "ask", "deny"] = "ask",
        audit: AuditLog | None = None,
        answer_seconds: float | None = None,
        wait_seconds: float = _WAIT_SECONDS,
        limits: FlowLimits | None = None,
        look_seconds: float | None = 2.0,
    ) -> None:
        self.journal = journal or Journal()
        self._own_journal = journal is None
        self._memory = memory or SQLiteMemory(journal=self.journal)
        self._conversations = Conversations(self.journal, self._memory)
        self._delivery = Delivery(self.journal, conversations=self._conversations, wait_seconds=wait_seconds)
        overrides = RuntimeOverrides(
            llm=llm,
            knowledge=knowledge,
            caller=caller,
            tools=tuple(tools),
            live=tuple(live),
            permissions=permissions,
            audit=audit,
            answer_seconds=answer_seconds,
            limits=limits,
        )
        named = [tool.name for tool in overrides.tools]
        loaded = check_flow_file(config, tools=named) if isinstance(config, FlowFile) else config
        self._context = context or {}
        self._in_use = RuntimeInUse(
            self._with_context(loaded), overrides, journal=self.journal, texts=self._conversations.texts
        )
        runner = FlowRunner(self._in_use)
        self.host = RunHost(self.journal, runner.for_profile, look_seconds=look_seconds)

    @property
    def loaded(self) -> LoadedFlows:
        """The flows in use."""
        return self._in_use.now.loaded

    @property
    def executor(self) -> FlowExecutor:
        """The executor of flows."""
        return self._in_use.now.executor

    def build_system_prompt(self) -> str:
        """Return the system prompt for decisions; see `loom_core.flow.build_system_prompt`."""
        return self._in_use.now.build_system_prompt()

    async def __aenter__(self) -> Self:
        await self._in_use.__aenter__()
        await self._conversations.__aenter__()
        try:
            await self.host.__aenter__()
        except BaseException as error:
            await self._conversations.__aexit__(type(error), error, error.__traceback__)
            await self._in_use.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.host.__aexit__(None, None, None)
        finally:
            try:
                await self._conversations.__aexit__(kind, error, trace)
            finally:
                await self._in_use.__aexit__(kind, error, trace)
                if self._own_journal:
                    await self.journal.aclose()

    async def use(
        self,
        loaded: LoadedFlows,
        *,
        llm: LLMProvider | Literal["same"] | None = "same",
        knowledge: FlowKnowledge | Literal["same"] | None = "same",
        tools: Iterable[Tool] | Literal["same"] = "same",
        live: Sequence[Callable[[], tuple[Tool, ...]]] | Literal["same"] = "same",
    ) -> None:
        """Reload: use another file for new runs; active runs keep the file that they use.

        What else may be given is what the class takes, and `same` what it has been given.

        Args:
            loaded: the file.
            llm: the model; None for that of the file.
            knowledge: what is asked for knowledge; None for what the file names.
            tools: what may be called besides its `system_tools`.
            live: tools of servers.

        Raises:
            ConfigError: it cannot be used; everything stays as it was.
        """
        before = self._in_use.overrides
        overrides = replace(
            before,
            llm=before.llm if llm == "same" else llm,
            knowledge=before.knowledge if knowledge == "same" else knowledge,
            tools=before.tools if tools == "same" else tuple(tools),
            live=before.live if live == "same" else tuple(live),
        )
        await self._in_use.exchange(self._with_context(loaded), overrides)
        self.host.reconsider()

    async def query(
        self,
        message: str,
        *,
        session_id: str = "",
        context: Mapping[str, JsonValue] | None = None,
        caller: str = "",
        idempotency_key: str = "",
        wait_seconds: float | None = None,
        reaches: bool = True,
    ) -> FlowReply:
        """Answer a message.

        Where an earlier message was answered before its run had ended, the reply begins with how it did.

        Args:
            message: what the user says.
            session_id: the conversation; empty for a new one.
            context: variables of it that are new or have changed; one conversation serves one tenant.
            caller: who asks; a session belongs to its caller.
            idempotency_key: the same message with the same key is taken once, and told the same again.
            wait_seconds: how long its run is waited for; None for what holds for all.
            reaches: whether the reply reaches the user as it is; if not, `reached` is called when it does.

        Raises:
            NotFoundError: there is no such session of this caller.
            InvalidInputError: the message is too long, or the context or the key cannot be used.
            RecordError: the journal cannot be written.
        """
        self._in_use.check_open()
        check_message(message)
        began = time.perf_counter()
        session_id = session_id or await self._conversations.session_with_key(idempotency_key, caller=caller)
        context = context or {}
        with self._in_use.now.used() as runtime:
            session = self._conversations.turn(
                session_id, caller=caller, context=context, key=idempotency_key
            )
            async with session as conversation:
                said = await self._conversations.recall(conversation, message, idempotency_key)
                if isinstance(said, FlowReply):
                    return said
                turn = self._turn(runtime, conversation, message, key=idempotency_key, since=began)
                outcome = said or await take(turn)
                reply: FlowReply | None = None
                if not outcome.run_id:
                    reply = await self._delivery.reply(turn, outcome, None, began=began)
                    await self._delivery.keep(
                        conversation, message, reply, key=idempotency_key, reaches=reaches
                    )
                    if not conversation.queue:
                        return reply
            if reply is None:
                run = await self._delivery.run_of(outcome, wait_seconds)
                reply = await self._delivery.reply(turn, outcome, run, began=began)
                await self._delivery.remember(
                    turn, reply, key=idempotency_key, reaches=reaches, again=said is not None
                )
        return await self._with_rest(reply, caller=caller, wait_seconds=wait_seconds, reaches=reaches)

    async def go_on(
        self, session_id: str, *, caller: str = "", wait_seconds: float | None = None, reaches: bool = True
    ) -> FlowReply | None:
        """Start the next request of an earlier message, if the previous one has ended; None if there is none.

        `query` does so by itself, as far as it waits for runs.

        Args:
            session_id: the conversation.
            caller: whose.
            wait_seconds: as for `query`.
            reaches: as for `query`.

        Raises:
            NotFoundError: there is no such session of this caller.
            RecordError: the journal cannot be written.
        """
        began = time.perf_counter()
        with self._in_use.now.used() as runtime:
            async with self._conversations.turn(session_id, caller=caller, context={}) as conversation:
                if not conversation.queue:
                    return None
                message = conversation.queue[0].message
                turn = self._turn(runtime, conversation, message)
                outcome = await begin_next(turn)
                if outcome is None:
                    return None
            run = await self._delivery.run_of(outcome, wait_seconds)
            reply = await self._delivery.reply(turn, outcome, run, began=began)
            await self._delivery.remember(turn, reply, key="", reaches=reaches)
            return reply

    async def _with_rest(
        self, reply: FlowReply, *, caller: str, wait_seconds: float | None, reaches: bool
    ) -> FlowReply:
        """Add the replies to the remaining requests of the message, or of an earlier one."""
        while reply.status in FINAL_STATUSES and not reply.pending:
            more = await self.go_on(
                reply.session_id, caller=caller, wait_seconds=wait_seconds, reaches=reaches
            )
            if more is None:
                break
            reply = more.after(reply.text, told=reply.told)
        return reply

    async def reached(
        self, session_id: str, *, run: Run | None = None, told: Sequence[str] = (), caller: str = ""
    ) -> None:
        """Confirm that the user has received the results of runs; the next reply does not repeat them.

        Args:
            session_id: the conversation.
            run: a run that the user is shown as it stands, if it has ended.
            told: ids of runs that a reply, made with `reaches=False`, tells of: `FlowReply.told`.
            caller: whose conversation it is.

        Raises:
            NotFoundError: there is no such session of this caller.
            RecordError: the journal cannot be written.
        """
        await self._delivery.reached(session_id, run, told, caller=caller)

    async def explain(
        self,
        message: str,
        *,
        session_id: str = "",
        context: Mapping[str, JsonValue] | None = None,
        caller: str = "",
        ask_model: bool = True,
    ) -> Explanation:
        """Explain what a message would do, without any effect.

        Args:
            message: what the user would say.
            session_id: in this conversation; empty for a new one.
            context: as for `query`.
            caller: who asks.
            ask_model: whether the model is asked, where it would be.

        Raises:
            NotFoundError: there is no such session of this caller.
            InvalidInputError: the message is too long, or the context cannot be used.
        """
        self._in_use.check_open()
        check_message(message)
        with self._in_use.now.used() as runtime:
            conversation = await self._conversations.look(session_id, caller=caller, context=context or {})
            turn = self._turn(runtime, conversation, message)
            return await explain(turn, ask_model=ask_model)

    async def run_flow(
        self,
        flow_id: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        message: str = "",
        session_id: str = "",
        context: Mapping[str, JsonValue] | None = None,
        caller: str = "",
        idempotency_key: str = "",
        wait_seconds: float | None = None,
    ) -> FlowReply:
        """Start a flow by its id, and wait for it as `query` does.

        Args:
            flow_id: which.
            inputs: its inputs; what is required and missing is asked for.
            message: what it is begun for.
            session_id: as for `query`, as all others.
            context: see there.
            caller: see there.
            idempotency_key: of the run.
            wait_seconds: see there.

        Raises:
            NotFoundError: there is no such flow, or no such session of this caller.
            InvalidInputError: the inputs do not fit its schema, or the key came with others.
            RecordError: the journal cannot be written.
        """
        with self._in_use.now.used() as runtime:
            route = Route(action="flow", how="given", flow_id=flow_id)
            request = runtime.executor.request(
                flow_id, message, inputs, caller=caller, route=asdict(route), idempotency_key=idempotency_key
            )
            known = await self.journal.with_key(idempotency_key, caller=caller) if idempotency_key else None
            session_id = session_id if known is None else known.request.session_id
            context = context or {}
            session = self._conversations.turn(
                session_id, caller=caller, context=context, key=idempotency_key
            )
            async with session as conversation:
                said = message or ("" if conversation.language else request.goal)
                turn = self._turn(runtime, conversation, said)
                outcome = await begin_named_flow(turn, request, route=route, known=known)
                await self._conversations.keep(conversation)
            return await self._delivery.of_run(outcome, runtime, conversation, seconds=wait_seconds)

    async def tell(
        self, run_id: str, order: Order, *, caller: str = "", wait_seconds: float | None = None
    ) -> FlowReply:
        """Send a command to a run by its id, and wait for it as `query` does.

        Raises:
            NotFoundError: there is no such run of this caller.
            InvalidInputError: it does not fit how the run stands.
            RecordError: the journal cannot be written.
        """
        run = await self.host.order(run_id, order, caller=caller)
        return await self.status(run_id, caller=caller, after=run.last_seq, wait_seconds=wait_seconds)

    async def status(
        self, run_id: str, *, caller: str = "", after: int = 0, wait_seconds: float | None = 0.0
    ) -> FlowReply:
        """Return the state of a run.

        Args:
            run_id: which.
            caller: whose.
            after: seq of its last event that is known; something newer is waited for.
            wait_seconds: how long; None for what holds for all.

        Raises:
            NotFoundError: there is no such run of this caller.
        """
        run = await self.journal.get(run_id, caller=caller)
        route = route_of(run)
        with self._in_use.now.used() as runtime:
            conversation = await self._conversations.look(run.request.session_id, caller=caller, context={})
            outcome = Outcome(route=route, run_id=run_id, after=after)
            return await self._delivery.of_run(outcome, runtime, conversation, seconds=wait_seconds)

    def _turn(
        self,
        runtime: FlowRuntime,
        conversation: Conversation,
        message: str,
        *,
        key: str = "",
        since: float | None = None,
    ) -> TurnContext:
        return open_turn(
            runtime,
            conversation,
            message,
            conversations=self._conversations,
            host=self.host,
            key=key,
            since=since,
        )

    def _with_context(self, loaded: LoadedFlows) -> LoadedFlows:
        context = {**loaded.file.context, **self._context}
        return replace(loaded, file=loaded.file.model_copy(update={"context": context}))
