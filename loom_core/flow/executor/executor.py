"""`FlowExecutor`: start, resume and command runs of flows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from loom_core.agent.attachments import read_files
from loom_core.errors import InvalidInputError
from loom_core.flow.config.flow_file import parse_flow_file
from loom_core.flow.config.localization import localize
from loom_core.flow.config.models import FlowConfig, FlowFile
from loom_core.flow.executor.dependencies import FlowAudit, FlowDependencies, FlowLimits, RequestSender
from loom_core.flow.executor.inputs import check_known, validate_inputs
from loom_core.flow.executor.loop import FlowLoop
from loom_core.flow.responses.phrases import language_of, language_of_run
from loom_core.flow.understanding.language import Language
from loom_core.flow.understanding.moments import situation_in
from loom_core.runs.commands import HumanInputPolicy, Retry
from loom_core.runs.journal import Journal
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.runs.run import Budget, RunRequest, caller_name
from loom_core.tools.execution.pipeline import ToolPipeline
from loom_core.tools.execution.scheduler import Scheduler
from loom_core.tools.permission.permissions import Permissions
from loom_core.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from loom_core.flow.config.flow_file import LoadedFlows
    from loom_core.flow.config.models_endpoint import EndpointConfig
    from loom_core.llm.interface import LLMProvider
    from loom_core.runs.commands import ApproveFunction, Command
    from loom_core.runs.journal import RunLog
    from loom_core.runs.run import Run
    from loom_core.tools.auditing.audit import AuditLog
    from loom_core.tools.interface import Tool

__all__ = ["FlowExecutor"]

_WAIT_SECONDS = 30.0


class _RemoteFlowFile(FlowFile):
    """The flows of an API that knows them by id: any id is valid, and requests go to `flow_url`."""

    def flow(self, flow_id: str) -> FlowConfig | None:
        """Build a flow of any id; see `FlowFile.flow`."""
        return FlowConfig(flow_id=flow_id)

    def endpoint_of(self, flow: FlowConfig) -> EndpointConfig:
        """Return a request to `flow_url`; see `FlowFile.endpoint_of`."""
        return super().endpoint_of(flow).model_copy(update={"url": self.flow_url})


class FlowExecutor:
    """Executor of the flows of a file; each run is in the journal and survives a crash.

    It executes runs itself (`execute`, `send_command`, `resume`), or a `RunHost` does: `RunHost(journal,
    executor.runner)`; both can be combined, also in several processes.

        executor = FlowExecutor("https://flow-api.example", caller, {"tenantId": "acme"})
        run = await executor.execute("leave_request", "我要请三天假", {"days": 3})
        print(run.status, run.output)

    Args:
        flows: the flows; or the address of an API that has them: each flow is posted there with its id, the
            message, the parameters and the context.
        caller: sends requests.
        context: variables of all conversations, such as `tenantId`.
        journal: journal of runs; by default one in memory, until `aclose`.
        tools: tools that steps may call.
        live: tools of servers; see `Toolbox`.
        permissions: whether a tool call is allowed, denied, or needs approval.
        approve: callback for every approval; without it, people respond by commands.
        answer_seconds: timeout for responses of people, after which they count as declined. None for no
            timeout.
        audit: audit log of decisions about tools.
        scheduler: assigns slots to tool calls; by default one of its own.
        limits: limits that prevent endless flows.
        llm: language model of `llm` steps, which fail without one.
    """

    def __init__(
        self,
        flows: LoadedFlows | str,
        caller: RequestSender,
        context: Mapping[str, Any] | None = None,
        *,
        journal: Journal | None = None,
        tools: Iterable[Tool] = (),
        live: Sequence[Callable[[], tuple[Tool, ...]]] = (),
        permissions: Permissions | Literal["allow", "ask", "deny"] = "ask",
        approve: ApproveFunction | None = None,
        answer_seconds: float | None = None,
        audit: AuditLog | None = None,
        scheduler: Scheduler | None = None,
        limits: FlowLimits | None = None,
        llm: LLMProvider | None = None,
    ) -> None:
        self.journal = journal or Journal()
        self._own_journal = journal is None
        self._context = context or {}
        self._permissions = (
            Permissions(otherwise=permissions) if isinstance(permissions, str) else permissions
        )
        self._asking = HumanInputPolicy(approve=approve, accepts_commands=True, seconds=answer_seconds)
        self._audit = audit
        self._scheduler = scheduler or Scheduler()
        self._limits = limits or FlowLimits()
        loaded = _load_remote_flows(flows) if isinstance(flows, str) else flows
        self.parts = self._build_dependencies(loaded, caller, tools, live, llm)

    async def aclose(self) -> None:
        """Close the journal, if the executor owns it."""
        if self._own_journal:
            await self.journal.aclose()

    def reload(
        self,
        loaded: LoadedFlows,
        *,
        caller: RequestSender,
        tools: Iterable[Tool] = (),
        live: Sequence[Callable[[], tuple[Tool, ...]]] = (),
        llm: LLMProvider | None = None,
    ) -> None:
        """Use another file for new runs; active runs keep the file that they use.

        Raises:
            ConfigError: two tools have the same name.
        """
        self.parts = self._build_dependencies(loaded, caller, tools, live, llm)

    def loop(self, log: RunLog) -> FlowLoop:
        """Return the executor of a run; called by a `RunHost`."""
        return FlowLoop(self.parts, log)

    async def runner(self, profile: str) -> FlowExecutor:
        """Return itself for runs of its flows; called by a `RunHost`.

        Raises:
            NotFoundError: no flow has this id.
        """
        self.parts.file.find_flow(profile)
        return self

    def build_request(
        self,
        flow_id: str,
        message: str = "",
        parameters: Mapping[str, Any] | None = None,
        *,
        session_id: str = "",
        context: Mapping[str, Any] | None = None,
        caller: str = "",
        confirm: bool | None = None,
        confirm_reason: str = "",
        route: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        idempotency_key: str = "",
    ) -> RunRequest:
        """Build and validate the request of a run.

        Args:
            flow_id: id of the flow.
            message: the user's message.
            parameters: inputs; required ones that are missing are asked for.
            session_id: the conversation; empty for a new one.
            context: variables of the conversation.
            caller: the caller.
            confirm: whether to ask the user before it starts; None: if the flow says `always`.
            confirm_reason: the question for that.
            route: how the flow was chosen, for the journal.
            seconds: timeout, without the time spent waiting for people; by default that of the flow.
            idempotency_key: see `RunRequest`.

        Raises:
            NotFoundError: there is no such flow.
            InvalidInputError: the parameters are invalid by its schema.
        """
        flow = self.parts.file.find_flow(flow_id)
        variables = {**self._context, **(context or {})}
        language = language_of(message or flow.title, setting=self.parts.file.basic_settings.language)
        given = self._validate(flow, parameters or {}, context=variables, language=language)
        metadata: dict[str, Any] = {
            "kind": "flow",
            "message": message,
            "inputs": given,
            "context": variables,
            "config": self.parts.version,
            "confirm": flow.confirm == "always" if confirm is None else confirm,
            "confirm_reason": confirm_reason,
        }
        if route is not None:
            metadata["route"] = dict(route)
        return RunRequest(
            goal=message.strip() or flow.title,
            session_id=session_id,
            profile=flow_id,
            budget=Budget(seconds=flow.timeout_seconds if seconds is None else seconds),
            idempotency_key=idempotency_key,
            caller=caller,
            metadata=metadata,
        )

    async def execute(
        self,
        flow_id: str,
        message: str = "",
        parameters: Mapping[str, Any] | None = None,
        *,
        session_id: str = "",
        context: Mapping[str, Any] | None = None,
        caller: str = "",
        confirm: bool | None = None,
        confirm_reason: str = "",
        route: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        idempotency_key: str = "",
    ) -> Run:
        """Run a flow until it ends or waits for the user; see `build_request`.

        Returns:
            The run: errors are in `Run.problem`, questions in `Run.pending`.

        Raises:
            NotFoundError: there is no such flow.
            InvalidInputError: the parameters are invalid by its schema, or the session has a run that has not
                ended.
            StoreError: the journal cannot be written.
        """
        request = self.build_request(
            flow_id,
            message,
            parameters,
            session_id=session_id,
            context=context,
            caller=caller,
            confirm=confirm,
            confirm_reason=confirm_reason,
            route=route,
            seconds=seconds,
            idempotency_key=idempotency_key,
        )
        return await self.resume((await self.journal.create(request)).id)

    async def send_command(self, run_id: str, order: Command, *, caller: str | None = None) -> Run:
        """Send a command to a run, and let it continue as far as it can; see `Journal.send_commands`.

        Raises:
            InvalidInputError: the command does not fit the run's state.
            NotFoundError: the caller has no such run.
        """
        await self.journal.send_commands(run_id, order, caller=caller)
        return await self.resume(run_id)

    async def retry(
        self,
        run_id: str,
        step: str = "",
        *,
        inputs: Mapping[str, Any] | None = None,
        by: str = "",
        caller: str | None = None,
    ) -> Run:
        """Continue a failed run from a step, or with other inputs; see `Retry`.

        Raises:
            InvalidInputError: the run has not failed, or the inputs are invalid by its schema.
            NotFoundError: the caller has no such run, or its flow has no such step.
        """
        run = await self.journal.get(run_id, caller=caller)
        if step:
            self._check_step(run, step)
        return await self.send_command(
            run_id, self.build_retry(run, step, inputs=inputs or {}, by=by), caller=caller
        )

    def build_retry(self, run: Run, step: str = "", *, inputs: Mapping[str, Any], by: str = "") -> Retry:
        """Build the command that continues a run with other inputs, and validate these.

        Raises:
            InvalidInputError: they are invalid by the flow's schema.
            NotFoundError: the flow does not exist any more.
        """
        if not inputs:
            return Retry(step=step, by=by)
        flow, request = self.parts.file.find_flow(run.request.profile), run.request
        language = language_of_run(request, setting=self.parts.file.basic_settings.language)
        context: Mapping[str, Any] = request.metadata.get("context") or {}
        return Retry(
            step=step, inputs=self._validate(flow, inputs, context=context, language=language), by=by
        )

    def _validate(
        self, flow: FlowConfig, inputs: Mapping[str, Any], *, context: Mapping[str, Any], language: Language
    ) -> dict[str, Any]:
        """Validate inputs in the time zone of the conversation; without any, nothing is checked."""
        if not inputs:
            return {}
        check_known(flow, list(inputs))
        zones = context.get("timezone"), self.parts.file.basic_settings.timezone
        with situation_in(zones, language):
            return validate_inputs(flow, inputs, whole=False)

    async def resume(self, run_id: str) -> Run:
        """Execute a run until it ends or waits for the user; if another process executes it, wait.

        Raises:
            NotFoundError: no run has this id.
        """
        while True:
            log = await self.journal.claim(run_id)
            if log is not None:
                async with log:
                    await self.loop(log).execute()
                return await self.journal.get(run_id)
            run = await self.journal.get(run_id)
            run = await self.journal.wait_until_idle(run_id, after=run.last_seq, seconds=_WAIT_SECONDS)
            if run.status in FINAL_STATUSES | {"input_required", "paused"}:
                return run

    def _check_step(self, run: Run, step: str) -> None:
        flow = self.parts.file.find_flow(run.request.profile)
        known = [each.step_id for each in flow.steps]
        if known and "/" not in step and step not in known:
            raise InvalidInputError(
                f"{flow.title} has no step {step!r}.", advice=f"It has: {', '.join(known)}."
            )

    def _build_dependencies(
        self,
        loaded: LoadedFlows,
        caller: RequestSender,
        tools: Iterable[Tool],
        live: Sequence[Callable[[], tuple[Tool, ...]]],
        llm: LLMProvider | None,
    ) -> FlowDependencies:
        toolbox = Toolbox(tools, live=live)

        def pipeline(run: Run) -> ToolPipeline:
            return ToolPipeline(
                toolbox,
                permissions=self._permissions.for_run(),
                scheduler=self._scheduler,
                audit=self._audit,
                run_id=run.id,
                source=run.request.caller,
                caller=caller_name(run),
                read_files=read_files,
            )

        return FlowDependencies(
            file=loaded.file,
            localized={language: localize(loaded.file, language) for language in get_args(Language)},
            version=loaded.version,
            caller=caller,
            toolbox=toolbox,
            pipeline=pipeline,
            asking=self._asking,
            limits=self._limits,
            audit=FlowAudit(self._audit),
            llm=llm,
        )


def _load_remote_flows(flow_url: str) -> LoadedFlows:
    loaded = parse_flow_file(json.dumps({"flow_url": flow_url}), name="FlowExecutor")
    return replace(loaded, file=_RemoteFlowFile(flow_url=flow_url))
