"""What a run of a flow writes into the audit: what people decide and order, and requests with an effect."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, Any, Literal

from loom_core.errors import LoomError, StoreError
from loom_core.runs.run import caller_name
from loom_core.tools.auditing.audit import AuditEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Run
    from loom_core.tools.auditing.audit import AuditLog
    from loom_core.tools.calls import Verdict

__all__ = ["FlowAudit"]

_VERDICTS: dict[str, Verdict] = {"approve": "allow", "edit": "allow", "deny": "deny"}


class FlowAudit:
    """Looks on at a run (`RunLog.observe`), and is told of requests before they are sent.

    Calls of tools are written by the pipeline.

    Args:
        audit: the file; None for none.
    """

    def __init__(self, audit: AuditLog | None) -> None:
        self._audit = audit

    def on_event(self, event: StreamEvent, run: Run) -> None:
        """Note what people have decided, and that they had the run pause or go on."""
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
        """Note that a user ended the run. A run that a decision ends is not aborted by that."""
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
        """Nothing is left to be noted; what was is written by `write`."""

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
        """Write down that a request is sent which may change something, and then what came of it.

        Args:
            kind: which of the two.
            run: in which run.
            what: method and address, without the query.
            key: of the step, with its visit.
            arguments: what is sent; references to secrets are still references.
            outcome: `success`, `failure` or `unknown`.
            seconds: that it took.

        Raises:
            LoomError: it cannot be written; nothing must be sent then. At the end it is written later.
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
                    f"{what} was not sent, as it could not be put on the audit: {error}"
                ) from error
        else:
            await self._audit.try_write(entry)

    async def write(self) -> None:
        """Write what was noted, if anything."""
        if self._audit is not None and self._audit.has_waiting:
            await self._audit.try_write()
