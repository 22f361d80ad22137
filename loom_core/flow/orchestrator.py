"""`WorkflowOrchestrator`: a conversation with flows, skills, tools and knowledge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from loom_core.flow.config.flow_file import check_flow_file
from loom_core.flow.config.models import FlowFile
from loom_core.flow.operators import OperatorDesk
from loom_core.flow.responses.reply import FlowReply, RoutingOutcome, TurnOutcome
from loom_core.flow.runtime.runtime import FlowRunner, RuntimeManager, RuntimeOverrides
from loom_core.flow.turns.explanation import Explanation, explain
from loom_core.flow.turns.replies import Delivery
from loom_core.flow.turns.session import ConversationStore, route_of
from loom_core.flow.turns.turn import begin_named_flow, begin_next, check_message, open_turn, process_turn
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
    from loom_core.flow.turns.session import FlowConversation
    from loom_core.flow.turns.turn_context import TurnContext
    from loom_core.llm.interface import LLMProvider
    from loom_core.runs.commands import Command
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

    The order is: pending questions of the conversation; trigger patterns; a decision by the model, while the
    knowledge sources are queried. Active runs are in the journal: they survive the process, and any
    number of processes may serve the same sessions.

    Args:
        config: the flows: a parsed file, or a `FlowFile` built by the program, which is validated.
        context: default variables of conversations (`tenantId`, `chatbotId`), if a message has none; they
            override those of the file.
        caller: sender of requests; by default one of its own.
        journal: journal of sessions and runs; by default in memory.
        memory: memory of conversations; by default in the journal's file.
        llm: the model; by default that of the file, if any.
        knowledge: the knowledge source; by default the file's `retrieve_knowledge_url`.
        tools: tools for steps and skills, in addition to the file's `system_tools`.
        live: tools of servers; see `Toolbox`.
        permissions: rules for tool calls; a single word is combined with the file's own rules.
        audit: audit log of decisions about tools.
        answer_seconds: timeout for responses of people; None for none.
        wait_seconds: how long a message waits for its run before the reply says that it continues.
        limits: limits that prevent endless flows.
        look_seconds: interval of the search for orphaned runs of crashed processes; None for never.

    Attributes:
        journal: journal of sessions and runs.
        host: executes runs.
        operators: conversations that flows have handed over to people, and events for flows.

    Raises:
        ConfigError: the file is not usable.
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
        self._open = AsyncExitStack()
        self._memory = memory or SQLiteMemory(journal=self.journal)
        self._conversations = ConversationStore(self.journal, self._memory)
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
        self._in_use = RuntimeManager(
            self._with_context(loaded), overrides, journal=self.journal, texts=self._conversations.messages
        )
        runner = FlowRunner(self._in_use)
        self.host = RunHost(self.journal, runner.for_profile, look_seconds=look_seconds)
        self.operators = OperatorDesk(self.journal, host=self.host, conversations=self._conversations)

    @property
    def loaded(self) -> LoadedFlows:
        """The flows in use."""
        return self._in_use.current.loaded

    @property
    def executor(self) -> FlowExecutor:
        """The executor of flows."""
        return self._in_use.current.executor

    def build_system_prompt(self) -> str:
        """Return the system prompt for decisions; see `loom_core.flow.build_system_prompt`."""
        return self._in_use.current.build_system_prompt()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if self._own_journal:
                stack.push_async_callback(self.journal.aclose)
            await stack.enter_async_context(self._in_use)
            await stack.enter_async_context(self._conversations)
            await self.host.__aenter__()
            stack.push_async_callback(self.host.__aexit__, None, None, None)
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.__aexit__(kind, error, trace)

    async def reload(
        self,
        loaded: LoadedFlows,
        *,
        llm: LLMProvider | Literal["same"] | None = "same",
        knowledge: FlowKnowledge | Literal["same"] | None = "same",
        tools: Iterable[Tool] | Literal["same"] = "same",
        live: Sequence[Callable[[], tuple[Tool, ...]]] | Literal["same"] = "same",
    ) -> None:
        """Reload: use another file for new runs; active runs keep the file that they use.

        The other arguments are those of the class; `same` keeps the current value.

        Args:
            loaded: the file.
            llm: the model; None for that of the file.
            knowledge: the knowledge source; None for that of the file.
            tools: tools in addition to its `system_tools`.
            live: tools of servers.

        Raises:
            ConfigError: it is not usable; nothing changes.
        """
        before = self._in_use.overrides
        overrides = replace(
            before,
            llm=before.llm if llm == "same" else llm,
            knowledge=before.knowledge if knowledge == "same" else knowledge,
            tools=before.tools if tools == "same" else tuple(tools),
            live=before.live if live == "same" else tuple(live),
        )
        await self._in_use.reload(self._with_context(loaded), overrides)
        self.host.refresh_runners()

    async def query(
        self,
        message: str,
        *,
        session_id: str = "",
        context: Mapping[str, JsonValue] | None = None,
        caller: str = "",
        idempotency_key: str = "",
        wait_seconds: float | None = None,
        tracks_delivery: bool = True,
    ) -> FlowReply:
        """Answer a message.

        If an earlier message was answered before its run ended, the reply starts with the result.

        Args:
            message: the user's message.
            session_id: the conversation; empty for a new one.
            context: new or changed variables; one conversation serves one tenant.
            caller: the caller; a session belongs to its caller.
            idempotency_key: a repeated message with the same key gets the same reply, and has no further
                effect.
            wait_seconds: timeout of waiting for its run; None for the default.
            tracks_delivery: whether the reply reaches the user at once; else call `confirm_delivery` later.

        Raises:
            NotFoundError: the caller has no such session.
            InvalidInputError: the message is too long, or the context or the key is invalid.
            StoreError: the journal cannot be written.
        """
        self._in_use.check_open()
        check_message(message)
        began = time.perf_counter()
        session_id = session_id or await self._conversations.find_session_by_key(
            idempotency_key, caller=caller
        )
        context = context or {}
        with self._in_use.current.acquire() as runtime:
            session = self._conversations.turn(
                session_id, caller=caller, context=context, key=idempotency_key
            )
            async with session as conversation:
                said = await self._conversations.find_duplicate(conversation, message, idempotency_key)
                if isinstance(said, FlowReply):
                    return said
                turn = self._turn(runtime, conversation, message, key=idempotency_key, since=began)
                outcome = said or await process_turn(turn)
                reply: FlowReply | None = None
                if not outcome.run_id:
                    reply = await self._delivery.reply(turn, outcome, None, began=began)
                    await self._delivery.keep(
                        conversation, message, reply, key=idempotency_key, tracks_delivery=tracks_delivery
                    )
                    if not conversation.queue:
                        return reply
            if reply is None:
                run = await self._delivery.wait_for_run(outcome, wait_seconds)
                reply = await self._delivery.reply(turn, outcome, run, began=began)
                await self._delivery.remember(
                    turn, reply, key=idempotency_key, tracks_delivery=tracks_delivery, again=said is not None
                )
        return await self._with_rest(
            reply, caller=caller, wait_seconds=wait_seconds, tracks_delivery=tracks_delivery
        )

    async def continue_session(
        self,
        session_id: str,
        *,
        caller: str = "",
        wait_seconds: float | None = None,
        tracks_delivery: bool = True,
    ) -> FlowReply | None:
        """Start the next request of an earlier message, if the previous one has ended; None if there is none.

        `query` does so by itself, as long as it waits for runs.

        Raises:
            NotFoundError: the caller has no such session.
            StoreError: the journal cannot be written.
        """
        began = time.perf_counter()
        with self._in_use.current.acquire() as runtime:
            async with self._conversations.turn(session_id, caller=caller, context={}) as conversation:
                if not conversation.queue:
                    return None
                message = conversation.queue[0].message
                turn = self._turn(runtime, conversation, message)
                outcome = await begin_next(turn)
                if outcome is None:
                    return None
            run = await self._delivery.wait_for_run(outcome, wait_seconds)
            reply = await self._delivery.reply(turn, outcome, run, began=began)
            await self._delivery.remember(turn, reply, key="", tracks_delivery=tracks_delivery)
            return reply

    async def _with_rest(
        self, reply: FlowReply, *, caller: str, wait_seconds: float | None, tracks_delivery: bool
    ) -> FlowReply:
        """Add the replies to the remaining requests of the message, or of an earlier one."""
        while reply.status in FINAL_STATUSES and not reply.pending:
            more = await self.continue_session(
                reply.session_id, caller=caller, wait_seconds=wait_seconds, tracks_delivery=tracks_delivery
            )
            if more is None:
                break
            reply = more.after(reply.text, told=reply.told)
        return reply

    async def confirm_delivery(
        self, session_id: str, *, run: Run | None = None, told: Sequence[str] = (), caller: str = ""
    ) -> None:
        """Confirm that the user has received the results of runs; the next reply does not repeat them.

        Args:
            session_id: the conversation.
            run: a run whose current state the user sees, if it has ended.
            told: ids of runs in a reply that was not delivered at once: `FlowReply.told`.
            caller: owner of the conversation.

        Raises:
            NotFoundError: the caller has no such session.
            StoreError: the journal cannot be written.
        """
        await self._delivery.confirm_delivery(session_id, run, told, caller=caller)

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
            message: the user's message.
            session_id: the conversation; empty for a new one.
            context: as for `query`.
            caller: the caller.
            ask_model: whether to ask the model, if it would be asked.

        Raises:
            NotFoundError: the caller has no such session.
            InvalidInputError: the message is too long, or the context is invalid.
        """
        self._in_use.check_open()
        check_message(message)
        with self._in_use.current.acquire() as runtime:
            conversation = await self._conversations.peek(session_id, caller=caller, context=context or {})
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
            flow_id: id of the flow.
            inputs: its inputs; required ones that are missing are asked for.
            message: the message that it is started for.
            session_id: as for `query`.
            context: as for `query`.
            caller: as for `query`.
            idempotency_key: idempotency key of the run.
            wait_seconds: as for `query`.

        Raises:
            NotFoundError: the flow does not exist, or the caller has no such session.
            InvalidInputError: the inputs are invalid by its schema, or the key was used with others.
            StoreError: the journal cannot be written.
        """
        with self._in_use.current.acquire() as runtime:
            route = RoutingOutcome(action="flow", how="given", flow_id=flow_id)
            before = await self._conversations.peek(session_id, caller=caller, context=context or {})
            request = runtime.executor.build_request(
                flow_id,
                message,
                inputs,
                context=before.context,
                caller=caller,
                route=asdict(route),
                idempotency_key=idempotency_key,
            )
            known = (
                await self.journal.find_by_key(idempotency_key, caller=caller) if idempotency_key else None
            )
            session_id = session_id if known is None else known.request.session_id
            context = context or {}
            session = self._conversations.turn(
                session_id, caller=caller, context=context, key=idempotency_key
            )
            async with session as conversation:
                said = message or ("" if conversation.language else request.goal)
                turn = self._turn(runtime, conversation, said)
                outcome = await begin_named_flow(turn, request, route=route, known=known)
                await self._conversations.save(conversation)
            return await self._delivery.reply_for_run(outcome, runtime, conversation, seconds=wait_seconds)

    async def send_command(
        self, run_id: str, order: Command, *, caller: str = "", wait_seconds: float | None = None
    ) -> FlowReply:
        """Send a command to a run by its id, and wait for it as `query` does.

        Raises:
            NotFoundError: the caller has no such run.
            InvalidInputError: the command does not fit the run's state.
            StoreError: the journal cannot be written.
        """
        run = await self.host.send_commands(run_id, order, caller=caller)
        return await self.status(run_id, caller=caller, after=run.last_seq, wait_seconds=wait_seconds)

    async def status(
        self, run_id: str, *, caller: str = "", after: int = 0, wait_seconds: float | None = 0.0
    ) -> FlowReply:
        """Return the state of a run.

        Args:
            run_id: id of the run.
            caller: the caller.
            after: sequence number of the last known event; the call waits for a later one.
            wait_seconds: timeout; None for the default.

        Raises:
            NotFoundError: the caller has no such run.
        """
        run = await self.journal.get(run_id, caller=caller)
        route = route_of(run)
        with self._in_use.current.acquire() as runtime:
            conversation = await self._conversations.peek(run.request.session_id, caller=caller, context={})
            outcome = TurnOutcome(route=route, run_id=run_id, after=after)
            return await self._delivery.reply_for_run(outcome, runtime, conversation, seconds=wait_seconds)

    def _turn(
        self,
        runtime: FlowRuntime,
        conversation: FlowConversation,
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
