"""Audit middleware: records calls that may change something, and refused requests."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import anyio
from mcp_types import CallToolResult, TextContent

from loom_core.errors import LoomError
from loom_core.server.auth.caller import current_caller
from loom_core.server.middleware.tracing import client_of
from loom_core.tools.auditing.audit import AuditEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp.server import ServerRequestContext
    from mcp.server.context import CallNext, HandlerResult

    from loom_core.server.auth.refusal import Refusal
    from loom_core.server.middleware.authorization import ToolScope
    from loom_core.tools.auditing.audit import AuditLog

__all__ = ["FINAL_WRITE_SECONDS", "AuditMiddleware", "RefusalAudit"]

FINAL_WRITE_SECONDS = 5.0
"""Timeout for writing an outcome, in seconds, while everything else is stopped."""

_PAUSE_SECONDS = 60.0  # between two lines about refusals of one kind, from one address
_MOST_SOURCES = 1000  # that have their own counts
_OTHERS = "others"
_AUTHENTICATION = frozenset({"no_token", "bad_token", "expired_token", "scope", "host", "origin", "issuer"})
_OUTCOMES = {"input_required": "input_required", "task": "task"}  # by the type of the result


class AuditMiddleware:
    """Audit middleware of the SDK: record every call of a tool that is not read-only.

    The start of a call is recorded before it runs, and its outcome afterwards; if the start cannot be
    recorded, the call is refused.

    Args:
        audit: the audit log; None for none.
        tool_scope: returns the scope that a tool needs; `read` for a read-only tool.
    """

    def __init__(self, audit: AuditLog | None, tool_scope: ToolScope) -> None:
        self._audit = audit
        self._tool_scope = tool_scope

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve a request."""
        audit = self._audit
        name: object = (ctx.params or {}).get("name") if ctx.method == "tools/call" else None
        if audit is None or not isinstance(name, str) or self._tool_scope(name) in {None, "read"}:
            return await call_next(ctx)
        try:
            await audit.write(self._entry(ctx, name))
        except LoomError as error:
            text = f"`{name}` was not run, as it could not be written to the audit log: {error}"
            return CallToolResult(content=[TextContent(text=text)], is_error=True)
        except RecursionError:
            text = f"`{name}` was not run: its arguments are nested too deeply. Send flatter ones."
            return CallToolResult(content=[TextContent(text=text)], is_error=True)
        began, outcome, run = time.perf_counter(), "refused", ""
        try:
            result = await call_next(ctx)
            outcome, run = _outcome(result), _run_of(result)
            return result
        except anyio.get_cancelled_exc_class():
            outcome = "cancelled"
            raise
        finally:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + FINAL_WRITE_SECONDS):
                seconds = time.perf_counter() - began
                await audit.try_write(self._entry(ctx, name, outcome=outcome, run=run, seconds=seconds))

    def _entry(
        self,
        ctx: ServerRequestContext[Any, Any],
        tool: str,
        *,
        outcome: str = "",
        run: str = "",
        seconds: float = 0.0,
    ) -> AuditEntry:
        caller = current_caller()
        arguments: object = (ctx.params or {}).get("arguments")
        given: Mapping[str, Any] = cast("Mapping[str, Any]", arguments) if isinstance(arguments, dict) else {}
        return AuditEntry(
            kind="end" if outcome else "start",
            run=run,
            call="" if ctx.request_id is None else str(ctx.request_id),
            tool=tool,
            caller=caller.name,
            caller_id=caller.id,
            client=client_of(ctx),
            source=_source_of(ctx),
            arguments=given,
            outcome=outcome,
            seconds=seconds,
        )


class RefusalAudit:
    """Audit of refused HTTP requests: at most one entry a minute for each kind and address, with a count.

    Counts are written with the next refusal from any address after the minute is over, and by `write_counts`
    at the end.

    Args:
        audit: the audit log; None for none.
        pause: seconds between two entries of one kind and address.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        audit: AuditLog | None,
        *,
        pause: float = _PAUSE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._audit = audit
        self._pause = pause
        self._clock = clock
        self._seen: dict[tuple[str, str], _Counted] = {}
        self._due = 0.0  # when one of them may be written

    async def note(self, refusal: Refusal, *, source: str, request: str) -> None:
        """Count a refusal that concerns the sender's identity, and write its entry if that is due.

        Args:
            refusal: the refusal, with the caller if known.
            source: the address that the request came from.
            request: method and path.
        """
        if self._audit is None or refusal.reason not in _AUTHENTICATION:
            return
        key = (refusal.reason, source)
        if key not in self._seen and len(self._seen) >= _MOST_SOURCES:
            key = (refusal.reason, _OTHERS)
        caller = refusal.caller
        counted = self._seen.setdefault(key, _Counted(-self._pause))
        counted.latest = AuditEntry(
            kind="refused",
            tool=request,
            caller=caller.name if caller else "",
            caller_id=caller.id if caller else "",
            source=key[1],
            outcome=refusal.reason,
            times=counted.times + 1,
        )
        now = self._clock()
        if now >= min(self._due, counted.written + self._pause):
            await self._audit.try_write(*self._take_due(now))

    async def write_counts(self) -> None:
        """Write the counts since the last entries, as no further request may come."""
        if self._audit is not None and (entries := self._take_due(self._clock(), all_of_them=True)):
            await self._audit.try_write(*entries)

    def _take_due(self, now: float, *, all_of_them: bool = False) -> list[AuditEntry]:
        """Return the entries that are due, and forget addresses without new refusals."""
        counted = self._seen.items()
        due = {key: each for key, each in counted if all_of_them or now - each.written >= self._pause}
        entries = [each.latest for each in due.values() if each.latest is not None]
        for key, each in due.items():
            if each.latest is None:
                del self._seen[key]
            each.written, each.latest = now, None
        self._due = min((each.written for each in self._seen.values()), default=now) + self._pause
        return entries


@dataclass(slots=True)
class _Counted:
    """Refusals of one kind and address.

    Attributes:
        written: time of the last entry about them.
        latest: the next entry, about those since then; None for none.
    """

    written: float
    latest: AuditEntry | None = None

    @property
    def times(self) -> int:
        return 0 if self.latest is None else self.latest.times


def _outcome(result: HandlerResult) -> str:
    if isinstance(result, dict):
        told = cast("Mapping[str, object]", result)
        kind = told.get("resultType")
        return _OUTCOMES.get(str(kind)) or ("error" if told.get("isError") else "success")
    kind = getattr(result, "result_type", "")
    return _OUTCOMES.get(str(kind)) or ("error" if getattr(result, "is_error", False) else "success")


def _run_of(result: HandlerResult) -> str:
    """Return the run that a call started or is about, from its answer; empty for none."""
    name = "structuredContent" if isinstance(result, dict) else "structured_content"
    told: object = result.get(name) if isinstance(result, dict) else getattr(result, name, None)
    run: object = cast("Mapping[str, object]", told).get("run_id") if isinstance(told, dict) else None
    return run if isinstance(run, str) else ""


def _source_of(ctx: ServerRequestContext[Any, Any]) -> str:
    if ctx.request is None:
        return "stdio"
    client = getattr(ctx.request, "client", None)
    return client.host if client is not None else "http"
