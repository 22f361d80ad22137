"""Runs flows: begins them, goes on with them, tells them what people say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from loom_core.errors import InvalidInputError
from loom_core.flow.config.flow_file import parse_flow_file
from loom_core.flow.config.localization import localize
from loom_core.flow.config.models import FlowConfig, FlowFile
from loom_core.flow.executor.audit import FlowAudit
from loom_core.flow.executor.dependencies import FlowDependencies, FlowLimits, RequestSender
from loom_core.flow.executor.inputs import check_known, validate_inputs
from loom_core.flow.executor.loop import FlowLoop
from loom_core.flow.understanding.language import Language
from loom_core.runs.commands import Retry
from loom_core.runs.human_broker import HumanInputPolicy
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
    from loom_core.runs.commands import Command
    from loom_core.runs.human_broker import ApproveFunction
    from loom_core.runs.journal import RunLog
    from loom_core.runs.run import Run
    from loom_core.tools.auditing.audit import AuditLog
    from loom_core.tools.interface import Tool

__all__ = ["FlowExecutor"]

_WAIT_SECONDS = 30.0


class _RemoteFlowFile(FlowFile):
    """The flows of an API that knows them by their ids: any id is one, and is posted to `flow_url`."""

    def flow(self, flow_id: str) -> FlowConfig | None:
        """See `FlowFile.flow`."""
        return FlowConfig(flow_id=flow_id)

    def endpoint_of(self, flow: FlowConfig) -> EndpointConfig:
        """See `FlowFile.endpoint_of`."""
        return super().endpoint_of(flow).model_copy(update={"url": self.flow_url})


class FlowExecutor:
    """Runs the flows of a file; each run is in the journal, and goes on after a crash.

    It drives runs by itself (`execute`, `order`, `go_on`), or has a `RunHost` do it:
    `RunHost(journal, executor.runner)`; both may be, also in several processes.

        executor = FlowExecutor("https://flow-api.example", caller, {"tenantId": "acme"})
        run = await executor.execute("leave_request", "我要请三天假", {"days": 3})
        print(run.status, run.output)

    Args:
        flows: the flows; or the address of an API that has them: each flow that is executed is posted there
            with its id, the message, the parameters and the context.
        caller: sends requests.
        context: variables of all conversations, such as `tenantId`.
        journal: keeps the runs; by default one in memory, until `aclose`.
        tools: what steps may call.
        live: tools of servers; see `Toolbox`.
        permissions: whether a tool may be called, must not be, or people are asked.
        approve: is called with everything that has to be asked; without it, people answer by orders.
        answer_seconds: how long people are waited for; who has not answered by then has refused. None for as
            long as it takes.
        audit: has every decision about tools on file.
        scheduler: gives places to calls of tools; by default one of its own.
        limits: what keeps a flow from going on for ever.
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
        self.parts = self._build_dependencies(loaded, caller, tools, live)

    async def aclose(self) -> None:
        """Close the journal, if it is the executor's own."""
        if self._own_journal:
            await self.journal.aclose()

    def reload(
        self,
        loaded: LoadedFlows,
        *,
        caller: RequestSender,
        tools: Iterable[Tool] = (),
        live: Sequence[Callable[[], tuple[Tool, ...]]] = (),
    ) -> None:
        """Take another file from now on; runs that are driven go on with what they were taken up with.

        Raises:
            ConfigError: two of the tools have the same name.
        """
        self.parts = self._build_dependencies(loaded, caller, tools, live)

    def loop(self, log: RunLog) -> FlowLoop:
        """Take a run up: what a `RunHost` calls."""
        return FlowLoop(self.parts, log)

    async def runner(self, profile: str) -> FlowExecutor:
        """Itself, for the runs of its flows: what a `RunHost` takes.

        Raises:
            NotFoundError: there is no flow of that id.
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
        """What the journal is to hold of a run, checked.

        Args:
            flow_id: which flow.
            message: what the user said.
            parameters: inputs; what is required and not there is asked for.
            session_id: the conversation; empty for a new one.
            context: variables of it.
            caller: who asks.
            confirm: whether the user is asked before it begins; None: if the flow says `always`.
            confirm_reason: what they are asked.
            route: how the flow was chosen, for the journal.
            seconds: how long it may take, without the time in which people are waited for; by default what
                the flow says.
            idempotency_key: see `RunRequest`.

        Raises:
            NotFoundError: there is no such flow.
            InvalidInputError: the parameters do not fit its schema.
        """
        flow = self.parts.file.find_flow(flow_id)
        given = dict(parameters or {})
        if given:
            check_known(flow, list(given))
            given = validate_inputs(flow, given, whole=False)
        metadata: dict[str, Any] = {
            "kind": "flow",
            "message": message,
            "inputs": given,
            "context": {**self._context, **(context or {})},
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
        """Run a flow, to its end or until people have to say something; see `request`.

        Returns:
            How it stands then: what went wrong is in `Run.problem`, what is asked in `Run.pending`.

        Raises:
            NotFoundError: there is no such flow.
            InvalidInputError: the parameters do not fit its schema, or the session has a run that is not at
                its end.
            RecordError: the journal cannot be written.
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
        """Tell a run something, and have it go on as far as it can; see `Journal.order`.

        Raises:
            InvalidInputError: it does not fit how the run stands.
            NotFoundError: there is no such run of this caller.
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
        """Go on with a run that has failed, from a step, or with other inputs; see `Retry`.

        Raises:
            InvalidInputError: it has not failed, or the inputs do not fit its schema.
            NotFoundError: there is no such run of this caller, or its flow has no such step.
        """
        run = await self.journal.get(run_id, caller=caller)
        if step:
            self._check_step(run, step)
        return await self.send_command(
            run_id, self.build_retry(run, step, inputs=inputs or {}, by=by), caller=caller
        )

    def build_retry(self, run: Run, step: str = "", *, inputs: Mapping[str, Any], by: str = "") -> Retry:
        """The order that has a run go on with other inputs, which are checked.

        Raises:
            InvalidInputError: they do not fit the schema of its flow.
            NotFoundError: its flow is gone.
        """
        if not inputs:
            return Retry(step=step, by=by)
        flow = self.parts.file.find_flow(run.request.profile)
        check_known(flow, list(inputs))
        return Retry(step=step, inputs=validate_inputs(flow, inputs, whole=False), by=by)

    async def resume(self, run_id: str) -> Run:
        """Drive a run to its end or until people have to say something; wait, where another drives it.

        Raises:
            NotFoundError: there is no such run.
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
        )


def _load_remote_flows(flow_url: str) -> LoadedFlows:
    loaded = parse_flow_file(json.dumps({"flow_url": flow_url}), name="FlowExecutor")
    return replace(loaded, file=_RemoteFlowFile(flow_url=flow_url))
