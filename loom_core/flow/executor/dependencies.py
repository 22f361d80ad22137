"""Dependencies of the execution of flows, and its audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Any, Literal, Protocol

from loom_core.errors import LoomError, StoreError
from loom_core.runs.run import caller_name
from loom_core.tools.auditing.audit import AuditEntry

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.config.models_endpoint import EndpointConfig
    from loom_core.flow.expressions import ExpressionValues
    from loom_core.flow.http.response import EndpointResult
    from loom_core.flow.understanding.language import Language
    from loom_core.llm.interface import LLMProvider
    from loom_core.runs.commands import HumanInputPolicy
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Run
    from loom_core.tools.auditing.audit import AuditLog
    from loom_core.tools.calls import Verdict
    from loom_core.tools.execution.pipeline import ToolPipeline
    from loom_core.tools.toolbox import Toolbox

__all__ = ["FlowAudit", "FlowDependencies", "FlowLimits", "RequestSender"]

_VERDICTS: dict[str, Verdict] = {"approve": "allow", "edit": "allow", "deny": "deny"}


class FlowAudit:
    """Observer of runs (`RunLog.observe`) that writes audit entries, also before requests are sent.

    The tool pipeline audits tool calls.
    """

    def __init__(self, audit: AuditLog | None) -> None:
        self._audit = audit

    def on_event(self, event: StreamEvent, run: Run) -> None:
        """Record decisions, pauses and resumptions by users."""
        by, step = str(event.payload.get("by", "")), str(event.payload.get("step_id", ""))
        match event.type:
            case "approval_decided":
                if verdict := _VERDICTS.get(str(event.payload.get("action", ""))):
                    call = str(event.payload.get("call_id", ""))
                    self._record("decision", run, call=call, decision=verdict, by=by, at=event.at)
            case "paused":
                self._record("order", run, outcome="paused", by=by, at=event.at)
            case "resumed":
                outcome = "retried" if "step_id" in event.payload else "resumed"
                self._record("order", run, call=step, outcome=outcome, by=by, at=event.at)
            case _:
                pass

    def record_abort(self, run: Run, *, by: str) -> None:
        """Record that a user aborted the run; a run that ends by a decision is not aborted."""
        self._record("order", run, outcome="aborted", by=by, at=time())

    def _record(
        self,
        kind: Literal["decision", "order"],
        run: Run,
        *,
        by: str,
        at: float,
        call: str = "",
        decision: Verdict | Literal[""] = "",
        outcome: str = "",
    ) -> None:
        if self._audit is None:
            return
        entry = AuditEntry(
            kind=kind,
            run=run.id,
            call=call,
            tool=run.request.profile,
            decision=decision,
            outcome=outcome,
            by=by or "a person",
            caller=caller_name(run),
            caller_id=run.request.caller,
            at=at,
        )
        self._audit.note(entry)

    def on_detach(self, run: Run) -> None:
        """Do nothing: `write` writes what was recorded."""

    async def record_request(
        self,
        kind: Literal["start", "end"],
        run: Run,
        what: str,
        *,
        key: str,
        arguments: Mapping[str, Any] | None = None,
        outcome: str = "",
        seconds: float = 0.0,
    ) -> None:
        """Record a request that may have side effects, before it is sent and with its outcome.

        Args:
            kind: start or end of the request.
            run: the run.
            what: method and address, without the query.
            key: of the step's visit.
            arguments: the payload; references to secrets are not resolved.
            outcome: `success`, `failure` or `unknown`.
            seconds: duration.

        Raises:
            LoomError: it cannot be written, so the request must not be sent. At its end, it is written later.
        """
        if self._audit is None:
            return
        entry = AuditEntry(
            kind=kind,
            run=run.id,
            call=key,
            tool=what,
            arguments=arguments or {},
            outcome=outcome,
            seconds=seconds,
            caller=caller_name(run),
            caller_id=run.request.caller,
        )
        if kind == "start":
            try:
                await self._audit.write(entry)
            except StoreError as error:
                raise LoomError(
                    f"{what} was not sent, because the audit log could not be written: {error}"
                ) from error
        else:
            await self._audit.try_write(entry)

    async def write(self) -> None:
        """Write the recorded entries, if there are any."""
        if self._audit is not None and self._audit.has_waiting:
            await self._audit.try_write()


class RequestSender(Protocol):
    """Sender of requests; see `EndpointCaller`."""

    async def call(
        self,
        endpoint: EndpointConfig,
        values: ExpressionValues,
        *,
        run_id: str = "",
        step_id: str = "",
        seconds: float | None = None,
    ) -> EndpointResult:
        """Send a request; see `EndpointCaller.call`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """Limits that prevent endless flows.

    Attributes:
        visits: maximum number of visits to a step, in a run or since a person last acted.
        depth: maximum depth of nested flows.
        settle_seconds: time for steps with side effects to end when their run is cancelled.
    """

    visits: int = 50
    depth: int = 8
    settle_seconds: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDependencies:
    """Dependencies that all runs of flows share.

    Attributes:
        file: the flows.
        localized: the flows localized in each language.
        version: version of the configuration.
        caller: sender of requests.
        toolbox: the tools.
        pipeline: returns the tool pipeline of a run.
        asking: human input policy; at least, people can respond by commands.
        limits: limits of runs.
        audit: audit of decisions, and of requests with side effects.
        llm: the language model of `llm` steps; None if they fail.
    """

    file: FlowFile
    localized: Mapping[Language, FlowFile]
    version: str
    caller: RequestSender
    toolbox: Toolbox
    pipeline: Callable[[Run], ToolPipeline]
    asking: HumanInputPolicy
    limits: FlowLimits
    audit: FlowAudit
    llm: LLMProvider | None = None
