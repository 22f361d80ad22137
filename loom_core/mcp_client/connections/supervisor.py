"""Connection supervisor: open, keep, reopen and close the connection to one server."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import anyio

from loom_core.errors import ServerError
from loom_core.keys import redact
from loom_core.mcp_client.connections.errors import Fault, FaultError
from loom_core.observability.propagation import detach_context

if TYPE_CHECKING:
    import httpx2
    from anyio.abc import TaskStatus

    from loom_core.mcp_client.configuration.server_config import ServerConfig
    from loom_core.mcp_client.connections.client_features import ClientFeatures
    from loom_core.mcp_client.connections.depth import Lineage
    from loom_core.mcp_client.connections.lifecycle import Mode, OpenConnection, ReconnectPolicy, ServerFacts

__all__ = ["Change", "ConnectionSupervisor", "State"]

_log = logging.getLogger(__name__)

State = Literal["configured", "connecting", "ready", "degraded", "failed", "closed"]
"""Not started; being opened; usable; lost and being reopened; given up until the next request; closed."""

Change = Literal["tools", "resources", "prompts", "state"]
"""Kind of change; `tools`, `resources` and `prompts` also after the server was connected again."""

_LISTS: tuple[Change, ...] = ("tools", "resources", "prompts")
_PERHAPS_OLD = frozenset({"start", "refused", "unreadable"})
_CLOSE_SECONDS = 10.0
_CLOSED = Fault("closed", "is not connected any more: the connection was closed", ran="no", lost=True)


class ConnectionSupervisor:
    """Supervisor of one connection. Only the task of `run` opens and closes it; callers use the open one.

    Attributes:
        state: see `State`.
        failure: why it is not ready, for people; empty if it is ready or was never tried.
        facts: facts that the server reported about itself at the last connection.
        closing: whether it is closed, or being closed.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        answering: ClientFeatures,
        on_change: Callable[[Change], None],
        auth: Callable[[ServerConfig], httpx2.Auth | None] | None,
        lineage: Lineage,
        backoff: ReconnectPolicy,
    ) -> None:
        """Prepare a supervisor; see `ServerConnection`."""
        self.state: State = "configured"
        self.failure = ""
        self.facts: ServerFacts | None = None
        self._config = config
        self._answering = answering
        self._on_change = on_change
        self._auth = auth
        self._lineage = lineage
        self._backoff = backoff
        self._link: OpenConnection | None = None
        self._opening: anyio.CancelScope | None = None
        self._legacy = config.era == "legacy"
        self._fault: Fault | None = None
        self._openings = 0
        self._since: float | None = None  # time of the latest change of state
        self._running = False
        self._closing = anyio.Event()
        self._wanted = anyio.Event()
        self._changed = anyio.Event()

    @property
    def state_seconds(self) -> float:
        """Seconds since the latest change of state; 0 before `run`."""
        return 0.0 if self._since is None else anyio.current_time() - self._since

    @property
    def closing(self) -> bool:
        """Whether it is closed, or being closed."""
        return self._closing.is_set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Supervise the connection: start this once, in a task group. It ends after `close`, or cancelled."""
        self._running = True
        task_status.started()
        with detach_context():  # it outlives the request that started it
            await self._supervise()

    async def _supervise(self) -> None:
        failures = 0
        try:
            while not self.closing:
                began = anyio.current_time()
                reopening = self.state == "degraded"
                link = await self._hold(reopening=reopening)
                settled = link.opened and anyio.current_time() - began >= self._backoff.settled
                failures = 1 if settled else failures + 1
                fault = link.fault or _CLOSED
                in_vain = not link.opened and not (reopening and fault.passing)
                if self.closing:
                    break
                if in_vain or failures > self._backoff.attempts:
                    failures = 0
                    await self._give_up(fault)
                else:
                    self._set_state("degraded", fault)
                    await self._pause(self._backoff.pause(failures - 1) if failures > 1 else 0.0)
        finally:
            self._running = False
            self._set_state("closed", _CLOSED)

    async def wait_until_open(self) -> OpenConnection:
        """Wait until there is an open connection, and return it.

        Raises:
            ServerError: the server was given up, or the connection is closed.
        """
        openings = self._openings - (
            self.state in {"connecting", "degraded"}
        )  # an opening in progress counts
        while self._link is None or self._link.lost.is_set():
            if self.state == "closed" or (self.state == "failed" and self._openings > openings):
                raise self.to_error(self._fault or _CLOSED)
            self._wanted.set()
            await self._changed.wait()
        return self._link

    def timeout_error(self, seconds: float) -> ServerError:
        """Build the error for a connection that did not open within these seconds."""
        waited = Fault("connection", f"is not connected after {seconds:g} s", "Give it longer.", ran="no")
        return self.to_error(self._fault or waited)

    def to_error(self, fault: Fault, what: str = "", *, doubt: bool = False) -> ServerError:
        """Convert a fault to an error.

        Args:
            fault: the fault.
            what: the request.
            doubt: whether the message says that the request may have been executed.
        """
        message = f"Server {self._config.name!r} {fault.what.rstrip('.')}."
        advice = fault.advice
        if doubt and fault.failure in {"interrupted", "timeout", "busy", "closed"}:
            message = f"{message} It is not known whether {what} was carried out."
            advice = f"{advice} Find that out before you ask for it again.".lstrip()
        return ServerError(
            redact(message, self._config.secrets),
            advice=redact(advice, self._config.secrets),
            server=self._config.name,
            failure=fault.failure,
            code=fault.code,
            status=fault.status,
            retry_after=fault.retry_after,
            not_run=fault.ran == "no",
        )

    async def close(self) -> None:
        """Close it and wait until it is; may be called by any task, and again."""
        self._closing.set()
        self._wanted.set()
        if self._link:
            self._link.mark_lost(_CLOSED)
        elif self._opening:
            self._opening.cancel()
        while self._running:
            await self._changed.wait()
        if self.state != "closed":
            self._set_state("closed", _CLOSED)

    async def _hold(self, *, reopening: bool) -> OpenConnection:
        """Open a connection and keep it until it is lost or closed; its `fault` is the reason."""
        self._openings += 1
        if not reopening:
            self._set_state("connecting", self._fault)
        legacy = self._legacy
        link = await self._open_as("legacy" if legacy else "auto")
        perhaps_old = link.broken and link.fault is not None and link.fault.failure in _PERHAPS_OLD
        may_be = not legacy and self._config.era == "auto" and self._config.transport == "stdio"
        if perhaps_old and may_be and not self.closing:
            # Some old servers end, or answer nonsense, when the first message is not the one they know.
            _log.info("%s is opened again, as a legacy server", self._config.name)
            link = await self._open_as("legacy")
        if not link.opened:
            self._legacy = self._config.era == "legacy"
        return link

    async def _open_as(self, mode: Mode) -> OpenConnection:
        from loom_core.mcp_client.connections.lifecycle import OpenConnection

        link = OpenConnection(
            self._config,
            answering=self._answering,
            on_change=self._on_change,
            auth=self._auth(self._config) if self._auth else None,
            lineage=self._lineage,
            mode=mode,
        )
        seconds = self._config.start_seconds
        began = anyio.current_time()
        error: BaseException | None = None
        with anyio.CancelScope(deadline=began + seconds) as scope:
            self._opening = scope
            try:
                self._lineage.check(self._config)
                async with link.client:
                    scope.deadline = math.inf
                    self._opening = None
                    try:
                        await self._serve(link, anyio.current_time() - began)
                    finally:
                        self._link = None
                        scope.deadline = anyio.current_time() + _CLOSE_SECONDS
            except Exception as caught:  # noqa: BLE001 - whatever a server provokes in the SDK is its failure
                error = caught
        self._opening = None
        await link.conclude(error, seconds)
        return link

    async def _serve(self, link: OpenConnection, seconds: float) -> None:
        """Offer the open connection to callers until it is lost."""
        facts = link.facts(seconds)
        if self._config.era == "modern" and not facts.modern:
            what = f"speaks {facts.protocol_version} only, and `era` of its entry is `modern`"
            raise FaultError(Fault("refused", what, "Leave `era` out.", ran="no"))
        link.opened = True
        link.leave_results_unchecked()
        self.facts = facts
        self._legacy = not facts.modern
        self._link = link
        if self.closing:
            return
        reopened = self._openings > 1
        self._set_state("ready")
        for change in _LISTS if reopened else ():
            self._on_change(change)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.listen, self._backoff)
            await link.lost.wait()
            if not self.closing:
                self._set_state("degraded", link.fault)
            tasks.cancel_scope.cancel()

    async def _give_up(self, fault: Fault) -> None:
        """Give the server up until the next request, or until it is closed."""
        self._wanted = anyio.Event()
        self._set_state("failed", fault)
        await self._wanted.wait()

    async def _pause(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._closing.wait()

    def _set_state(self, state: State, fault: Fault | None = None) -> None:
        if self.state != state:
            self._since = anyio.current_time()
        self.state = state
        self._fault = fault
        self.failure = str(self.to_error(fault)) if fault else ""
        if state == "failed":
            _log.warning("%s", self.failure)
        else:
            _log.debug("%s is %s. %s", self._config.name, state, self.failure)
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
        self._on_change("state")
