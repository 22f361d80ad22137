"""Operations of the tools and the command line on flows and runs, without texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from anyio import to_thread

from loom_core.errors import InvalidInputError, LoomError, NotFoundError
from loom_core.flow.config.models import FlowFile, has_side_effects
from loom_core.flow.executor.inputs import missing_inputs, with_defaults
from loom_core.runs.commands import Resume
from loom_core.server.auth.caller import FULL_ACCESS, current_caller, use_caller
from loom_flow.engine import FlowEngine
from loom_flow.models import ExplainResult, FlowInfo, FlowsResult, MatchInfo
from loom_flow.texts import progress_line, question_of, run_line, steps_of

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from loom_core.flow.config import FlowConfig, LoadedFlows
    from loom_core.flow.operators import Handover, OperatorDesk, SpokenMessage
    from loom_core.flow.orchestrator import WorkflowOrchestrator
    from loom_core.flow.responses.reply import FlowReply
    from loom_core.flow.turns.explanation import Explanation
    from loom_core.llm.interface import LLMProvider
    from loom_core.runs.commands import ApprovalDecision, Command, InputResponse
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.journal import Journal, PostgresPlace
    from loom_core.runs.run import Pending, Run, RunStatus
    from loom_core.server.calls.long_polling import LongPoll
    from loom_flow.models import StepInfo
    from loom_flow.settings import Settings

__all__ = ["FlowService", "OperatorAction", "tool_name"]

OperatorAction: TypeAlias = Literal["say", "take", "return", "decline"]
"""An act of an operator on a conversation; see `FlowService.operate`."""

_OPEN: tuple[RunStatus, ...] = ("working", "input_required", "paused", "failed")
_LISTED = 20
_PAGE = 500
_REPLY_SECONDS = 0.5  # for which a message waits for its run


class FlowService:
    """Service for the flows and runs of one home. Use it as `async with`.

    Nothing is opened before the first call that needs it, except for orphaned runs of another process; see
    `FlowEngine`. A caller sees only their own runs.

    Attributes:
        settings: settings of the process.
    """

    def __init__(self, settings: Settings, *, adopts: bool = True, sees_all: bool = False) -> None:
        """Create the service; nothing is opened yet.

        Args:
            settings: settings of the process.
            adopts: whether to adopt orphaned runs of other processes.
            sees_all: whether the runs of all callers are visible: on the command line, whose user owns the
                file.
        """
        self.settings = settings
        self._sees_all = sees_all
        self._engine = FlowEngine(settings, adopts=adopts)

    @cached_property
    def long_poll(self) -> LongPoll:
        """Return the long polls of calls that wait for runs."""
        from loom_core.server.calls.long_polling import LongPoll  # imports the MCP SDK; commands need neither

        return LongPoll(self, self.question, progress_line)

    async def __aenter__(self) -> Self:
        await self._engine.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._engine.__aexit__(kind, error, traceback)

    @property
    def current(self) -> FlowFile | None:
        """The last valid flow file; None if it does not exist."""
        return None if self._engine.current is None else self._engine.current.file

    @property
    def file(self) -> FlowFile:
        """The same; an empty file if it does not exist."""
        return self.current or FlowFile()

    def question(self, run: Run, pending: Pending) -> str:
        """Return the question of a pending request for people."""
        return question_of(run, pending, self.file)

    def load(self) -> None:
        """Load the flow file, if it exists. Blocks.

        Raises:
            ConfigError: it is invalid, or a named file does not exist.
        """
        self._engine.load()

    async def reload_if_changed(self) -> None:
        """Reload the file if it has changed; see `FlowEngine.poll`."""
        await self._engine.poll()

    async def chat(
        self,
        message: str,
        *,
        session_id: str = "",
        context: Mapping[str, Any] | None = None,
        idempotency_key: str = "",
        seconds: float = _REPLY_SECONDS,
    ) -> FlowReply:
        """Answer a message; see `WorkflowOrchestrator.query`. Call `confirm_delivery` on delivery.

        Raises:
            LoomError: as there; or there is no usable flow file.
        """
        assistant, caller, context = await self._assistant(), current_caller().id, _caller_context(context)
        with use_caller(FULL_ACCESS):  # the run continues after the call
            return await assistant.query(
                message,
                session_id=session_id,
                context=context,
                caller=caller,
                idempotency_key=idempotency_key,
                # The call itself waits for the run, to report progress and to ask.
                wait_seconds=min(seconds, _REPLY_SECONDS),
                tracks_delivery=False,
            )

    async def continue_session(self, session_id: str, *, seconds: float) -> FlowReply | None:
        """Start the next request of an earlier message; see `WorkflowOrchestrator.continue_session`.

        Raises:
            LoomError: as for `chat`.
        """
        assistant, caller = await self._assistant(), current_caller().id
        with use_caller(FULL_ACCESS):
            return await assistant.continue_session(
                session_id, caller=caller, wait_seconds=min(seconds, _REPLY_SECONDS), tracks_delivery=False
            )

    async def confirm_delivery(self, session_id: str, run: Run | None, told: Sequence[str] = ()) -> None:
        """Confirm that the user has received results; see `WorkflowOrchestrator.confirm_delivery`.

        Raises:
            LoomError: as for `chat`.
        """
        caller = current_caller().id
        await (await self._assistant()).confirm_delivery(session_id, run=run, told=told, caller=caller)

    async def explain(
        self, message: str, *, session_id: str = "", context: Mapping[str, Any] | None = None
    ) -> ExplainResult:
        """Explain a message; see `WorkflowOrchestrator.explain`.

        Raises:
            LoomError: as for `chat`.
        """
        assistant, caller, context = await self._assistant(), current_caller().id, _caller_context(context)
        with use_caller(FULL_ACCESS):
            found = await assistant.explain(message, session_id=session_id, context=context, caller=caller)
        return _explain_result(message, found, assistant.loaded.file)

    async def start(
        self,
        flow_id: str,
        inputs: Mapping[str, Any],
        *,
        message: str = "",
        session_id: str = "",
        context: Mapping[str, Any] | None = None,
        idempotency_key: str = "",
    ) -> Run:
        """Start a flow, and return at once.

        Raises:
            NotFoundError: there is no such flow, or no such session.
            InvalidInputError: the inputs are invalid by its schema.
            LoomError: as for `chat`.
        """
        assistant, caller, context = await self._assistant(), current_caller(), _caller_context(context)
        self._check_flow(assistant.loaded.file, flow_id)
        with use_caller(FULL_ACCESS):
            reply = await assistant.run_flow(
                flow_id,
                inputs,
                message=message,
                session_id=session_id,
                context=context,
                caller=caller.id,
                idempotency_key=idempotency_key,
                wait_seconds=0.0,
            )
        return await self.run(reply.run_id)

    async def run(self, run_id: str) -> Run:
        """Return a run's state.

        Raises:
            NotFoundError: the caller has no such run.
        """
        return await self.journal().get(run_id, caller=self._owner())

    async def wait_until_idle(self, run_id: str, *, after: int = 0, seconds: float) -> Run:
        """Wait until a run is idle; see `Journal.wait_until_idle`.

        Raises:
            NotFoundError: the caller has no such run.
        """
        await self.run(run_id)
        return await self.journal().wait_until_idle(run_id, after=after, seconds=seconds)

    async def send_commands(self, run_id: str, order: Command) -> Run:
        """Send a command to a run; if no process executes the run, this one does.

        Raises:
            NotFoundError: the caller has no such run.
            InvalidInputError: the command does not fit the run's state.
            LoomError: as for `chat`.
        """
        await self.run(run_id)
        assistant = await self._assistant()
        with use_caller(FULL_ACCESS):
            return await assistant.host.send_commands(run_id, order)

    async def decide(self, run: Run, decision: ApprovalDecision | InputResponse) -> Run:
        """Send a decision to a run, as `send_commands` does."""
        return await self.send_commands(run.id, decision)

    def can_decide(self, run: Run) -> bool:
        """Return whether the caller may decide for a run, as its owner."""
        caller = current_caller()
        return caller.may("write") and (self._sees_all or run.request.caller == caller.id)

    async def retry(self, run_id: str, step: str, *, inputs: Mapping[str, Any] | None = None, by: str) -> Run:
        """Retry a failed run from a step, or from where it failed; as `send_commands`.

        Raises:
            InvalidInputError: it has not failed, its flow has no such step, or the inputs are invalid.
        """
        run = await self.run(run_id)
        if run.status not in {"failed", "aborted"}:
            raise InvalidInputError(
                f"Run {run_id} is {run.status}: there is nothing to retry.",
                advice="Wait for it, or answer what it waits for.",
            )
        executor = (await self._assistant()).executor
        return await self.send_commands(run_id, executor.build_retry(run, step, inputs=inputs or {}, by=by))

    async def resume(self, run_id: str, *, by: str) -> Run:
        """Execute a run here: one that was paused or has failed, or one that no process executes.

        Raises:
            NotFoundError: the caller has no such run.
            InvalidInputError: it is completed.
            LoomError: as for `chat`.
        """
        run = await self.run(run_id)
        if run.status not in {"working", "input_required"}:
            return await self.send_commands(run_id, Resume(by=by))
        assistant = await self._assistant()
        with use_caller(FULL_ACCESS):
            await assistant.host.adopt(run_id)
        return run

    async def runs(
        self, *, status: Sequence[RunStatus] = (), query: str = "", limit: int = _LISTED
    ) -> list[Run]:
        """Return the caller's runs: the latest first, or by query the best matches."""
        if not await to_thread.run_sync(self.settings.journal.exists):
            return []
        if query:
            found = await self.journal().search(query, caller=self._owner(), limit=limit)
            return [run for run in found if not status or run.status in status]
        return await self.journal().runs(caller=self._owner(), status=status, limit=limit)

    async def latest_runs(self, limit: int) -> Sequence[Run]:
        """Return the caller's runs, the latest first."""
        return await self.runs(limit=limit)

    async def events(self, run_id: str, *, after: int = 0, limit: int = 100) -> list[StreamEvent]:
        """Return the events of a run, oldest first.

        Raises:
            NotFoundError: the caller has no such run.
        """
        await self.run(run_id)
        return await self.journal().events(run_id, after=after, limit=limit)

    async def steps(self, run_id: str) -> list[StepInfo]:
        """Return the state of each step of a run.

        Raises:
            NotFoundError: the caller has no such run.
        """
        events: list[StreamEvent] = []
        while found := await self.events(run_id, after=events[-1].seq if events else 0, limit=_PAGE):
            events += found
        return steps_of(events)

    async def blob(self, run_id: str, number: int) -> tuple[bytes, str]:
        """Return data that was too large for an event, and its media type.

        Raises:
            NotFoundError: the caller has no such run, or it has no such blob.
        """
        await self.run(run_id)
        return await self.journal().blob(run_id, number)

    async def list_flows(self) -> FlowsResult:
        """List the caller's flows and unfinished runs; or say why there are no flows."""
        unfinished = await self.runs(status=_OPEN)
        file, problems = FlowFile(), list[str]()
        try:
            file = (await self._assistant()).loaded.file
        except LoomError as error:
            problems.append(str(error))
        return FlowsResult(
            name=file.basic_settings.name,
            flows=[_flow_info(file, flow) for flow in self._flows(file)],
            skills=[skill.condition for skill in file.skills if skill.enabled],
            system_tools=[tool.name for tool in file.system_tools if tool.enabled],
            model=self._engine.model,
            unfinished=[run_line(run) for run in unfinished],
            problems=[*problems, *self._engine.problems],
        )

    async def read_flows(self) -> LoadedFlows:
        """Return the current flow file, without opening anything.

        Raises:
            ConfigError: there is no usable file.
        """
        return await self._engine.latest()

    async def model(self) -> LLMProvider:
        """Return the language model.

        Raises:
            ConfigError: none is configured, or it is not usable.
        """
        return await self._engine.language_model()

    async def operator_queue(self) -> list[Handover]:
        """Return the conversations that operators have or that wait for one; see `OperatorDesk.queue`.

        Raises:
            InvalidInputError: the caller is no operator.
            LoomError: as for `chat`.
        """
        desk, caller = await self._desk(), current_caller()
        return await desk.queue(flows=caller.sources, context=caller.context)

    async def handover(self, run_id: str) -> tuple[Handover, list[SpokenMessage]]:
        """Return a handed-over conversation with its messages; see `OperatorDesk.conversation`.

        Raises:
            NotFoundError: there is none.
            LoomError: as for `operator_queue`.
        """
        desk, caller = await self._desk(), current_caller()
        found = await desk.find(run_id, flows=caller.sources, context=caller.context)
        return found, await desk.conversation(found)

    async def operate(
        self,
        run_id: str,
        action: OperatorAction,
        *,
        by: str,
        text: str = "",
        agreed: Mapping[str, Any] | None = None,
    ) -> Run:
        """Act on a handed-over conversation as an operator.

        Args:
            run_id: id of its run.
            action: `say` something; `take` it, also from another operator; `return` it to the flow with what
                was agreed; `decline`: return it without a result, and the text is the reason.
            by: name of the operator, which the user reads.
            text: the message.
            agreed: the agreed values.

        Raises:
            InvalidInputError: it does not fit its state; see `OperatorDesk`.
            NotFoundError: it is not handed over.
            LoomError: as for `operator_queue`.
        """
        desk, caller = await self._desk(), current_caller()
        found = await desk.find(run_id, flows=caller.sources, context=caller.context)
        with use_caller(FULL_ACCESS):  # the run continues after the call
            match action:
                case "say":
                    if not text.strip():
                        raise InvalidInputError("There is nothing to say.", advice="Give a text.")
                    return await desk.say(found, text, by=by)
                case "take":
                    return await desk.say(found, text, by=by, takes_over=True)
                case "return":
                    return await desk.hand_back(found, agreed or {}, by=by)
                case "decline":
                    return await desk.give_up(found, text, by=by)

    async def send_event(self, name: str, *, key: str = "", payload: object = None) -> list[str]:
        """Send an event to the caller's runs that wait for it, or to all with the scope `admin`.

        Raises:
            NotFoundError: no run waits for it.
            LoomError: as for `chat`.
        """
        caller = current_caller()
        owner = None if self._sees_all or caller.may("admin") else caller.id
        desk = (await self._assistant()).operators
        with use_caller(FULL_ACCESS):
            return await desk.send_event(name, key=key, payload=payload, by=caller.name, caller=owner)

    async def _desk(self) -> OperatorDesk:
        if not current_caller().may("admin"):
            raise InvalidInputError(
                "Only operators see the conversations of others.",
                advice="Use a token with the scope admin.",
            )
        return (await self._assistant()).operators

    def journal(self) -> Journal:
        """Return the journal of this home; opened on first use."""
        return self._engine.journal()

    @property
    def journal_place(self) -> Path | PostgresPlace:
        """Where the journal is."""
        return self.settings.journal

    async def _assistant(self) -> WorkflowOrchestrator:
        return await self._engine.assistant(current_caller().sources)

    def _owner(self) -> str | None:
        return None if self._sees_all else current_caller().id

    def _flows(self, file: FlowFile) -> list[FlowConfig]:
        caller = current_caller()
        return [flow for flow in file.flows if flow.enabled and caller.may_use(flow.flow_id)]

    def _check_flow(self, file: FlowFile, flow_id: str) -> None:
        known = [flow.flow_id for flow in self._flows(file)]
        if flow_id in known:
            return
        near = get_close_matches(flow_id, known, n=1)
        meant = f"Did you mean {near[0]!r}? " if near else ""
        listed = f"There are: {', '.join(known)}." if known else "There is none for you."
        raise NotFoundError(f"There is no flow {flow_id[:200]!r}.", advice=f"{meant}{listed}")


def _caller_context(context: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the variables of a call; those bound to the caller's token take precedence."""
    return {**(context or {}), **current_caller().context}


def _flow_info(file: FlowFile, flow: FlowConfig) -> FlowInfo:
    changes = has_side_effects(file, flow)
    return FlowInfo(
        flow_id=flow.flow_id,
        name=flow.title,
        description=flow.description,
        inputs=flow.input_schema,
        triggers=flow.trigger_patterns,
        examples=flow.examples,
        changes_something=changes,
        hidden=flow.hidden,
        tool=tool_name(flow) if current_caller().may("write" if changes else "read") else "",
    )


def _explain_result(message: str, found: Explanation, file: FlowFile) -> ExplainResult:
    flow = file.flow(found.flow_id) if found.flow_id else None
    decision = found.decision
    inputs = dict(found.parameters)
    schema = flow.input_schema if flow is not None else {}
    doubtful = found.match.flows if found.match.kind == "ambiguous" else found.match.hints
    return ExplainResult(
        message=message,
        decided_by=found.decided_by,
        action=found.action,
        flow_id=found.flow_id,
        inputs=inputs,
        missing=missing_inputs(schema, with_defaults(schema, inputs)),
        run_id=found.run_id,
        matches=[
            MatchInfo(
                flow_id=each.flow_id,
                pattern=each.pattern,
                start=each.start,
                end=each.end,
                groups=each.groups,
                doubt=each.negation,
            )
            for each in found.match.matches
        ],
        candidates=[] if flow is not None else [each.flow_id for each in doubtful],
        skills=list(decision.skills) if decision else [],
        tool=decision.target if decision and decision.action == "tool" else "",
        confidence=decision.confidence if decision else None,
        reason=decision.reason if decision else "",
        problem=found.problem,
        timings={name: round(seconds, 6) for name, seconds in found.timings.items()},
    )


def tool_name(flow: FlowConfig) -> str:
    """Return the tool name of a flow; empty if it is no tool."""
    return (flow.tool_name or flow.flow_id) if flow.as_tool else ""
