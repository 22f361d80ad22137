"""Connection lifecycle: one connection to a server from start to loss, its facts, and reconnecting."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal

import anyio

from loom_core.keys import redact
from loom_core.mcp_client.connections.errors import Fault, FaultError, leaf
from loom_core.mcp_client.connections.http_transport import HttpTransport
from loom_core.mcp_client.connections.process import ChildProcess
from loom_core.mcp_client.connections.sanitization import plain, plain_line
from loom_core.mcp_client.connections.stdio_transport import StdioTransport
from loom_core.net.retry import Backoff
from loom_core.tools.environment import child_environment

if TYPE_CHECKING:
    import httpx2
    import mcp_types
    from mcp import MCPError
    from mcp.client import IncomingMessage
    from mcp_types import CallToolResult

    from loom_core.mcp_client.configuration.server_config import ServerConfig
    from loom_core.mcp_client.connections.client_features import ClientFeatures
    from loom_core.mcp_client.connections.depth import Lineage

__all__ = ["Mode", "OpenConnection", "ReconnectPolicy", "ServerFacts"]

_log = logging.getLogger(__name__)

Mode = Literal["auto", "legacy"]

_Changed = Literal["tools", "resources", "prompts"]

_SHOWN = 500  # bytes of a server's own error
_DISCOVER_SECONDS = 5.0  # a cold start takes seconds; servers that ignore unknown requests are rare
_LISTEN_SECONDS = 30.0  # for the server to confirm the subscription


class OpenConnection:
    """One connection, while it lasts. Its `client` is entered and left by the owner's task.

    Attributes:
        client: the SDK's client.
        opened: whether it was usable at some time.
        broken: whether a child was started and failed, other than by a timeout, before it was opened.
        lost: set when it can no longer be used.
        fault: the reason, once it is lost.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        answering: ClientFeatures,
        on_change: Callable[[_Changed], None],
        auth: httpx2.Auth | None,
        lineage: Lineage,
        mode: Mode,
    ) -> None:
        """Prepare a connection.

        Args:
            config: the server.
            answering: answers the server's requests.
            on_change: called with the kind of change that the server reports.
            auth: authenticates requests over HTTP.
            lineage: the chain of parent programs, for a child.
            mode: `auto` negotiates the era; `legacy` uses the old one.
        """
        from mcp import Client
        from mcp_types import Implementation

        from loom_core.mcp_client.connections.tasks import TasksExtension

        self.opened = False
        self.broken = False
        self.lost = anyio.Event()
        self.fault: Fault | None = None
        self._config = config
        self._on_change = on_change
        self._stdio: StdioTransport | None = None
        if config.transport == "stdio":
            environment = child_environment({**config.env, **lineage.environment_of(config)})
            self._stdio = transport = StdioTransport(
                partial(ChildProcess.start, config, environment),
                on_end=self._describe_exit,
                server=config.name,
                discover_seconds=min(config.start_seconds / 4, _DISCOVER_SECONDS),
            )
        else:
            transport = HttpTransport(config, auth=auth, on_end=self.mark_lost)
        self._transport = transport
        self.client = Client(
            transport,
            mode=mode,
            cache=None,
            client_info=Implementation(name="loom", version=_version()),
            message_handler=self._handle_change,
            extensions=[TasksExtension()],
            **answering.options(),
        )

    def mark_lost(self, fault: Fault) -> None:
        """Mark the connection as lost, with its fault."""
        if not self.lost.is_set():
            self.fault = fault
            self.lost.set()

    def facts(self, seconds: float) -> ServerFacts:
        """Return the facts of the server that was just opened; `seconds` is how long that took."""
        info = self.client.server_info
        return ServerFacts(
            name=plain_line(info.name) if info else "",
            version=plain_line(info.version) if info else "",
            instructions=plain(self.client.instructions or ""),
            protocol_version=self.client.protocol_version,
            modern=self._modern,
            capabilities=self.client.server_capabilities,
            seconds=seconds,
        )

    def leave_results_unchecked(self) -> None:
        """Turn off the SDK's validation of structured results; call it once the connection is open.

        The SDK's validation takes unbounded time, so a server could block this process with a schema and a
        value. `MCPTool` validates in bounded time.
        """
        self.client.session.validate_tool_result = _skip_validation

    async def listen(self, backoff: Backoff) -> None:
        """Subscribe to changes of a modern-era server, and resubscribe after a loss, until cancelled."""
        from mcp import MCPError
        from mcp.client.subscriptions import SubscriptionLost

        wanted = self._subscribable_changes()
        if not self._modern or not wanted:
            return
        failures = 0
        while True:
            with anyio.CancelScope(deadline=anyio.current_time() + _LISTEN_SECONDS) as scope:
                try:
                    async with self.client.listen(
                        tools_list_changed="tools" in wanted,
                        resources_list_changed="resources" in wanted,
                        prompts_list_changed="prompts" in wanted,
                    ) as events:
                        scope.deadline = float("inf")
                        if failures:  # changes meanwhile were not reported
                            for change in wanted:
                                self._on_change(change)
                        failures = 0
                        async for _event in events:
                            pass  # `_handle_change` gets it, too
                except MCPError as error:
                    if error.code == _METHOD_NOT_FOUND:
                        return
                except SubscriptionLost:
                    pass
            failures += 1
            await anyio.sleep(backoff.pause(failures))

    async def fault_of(self, error: BaseException) -> Fault:
        """Convert an error of the SDK to a `Fault`."""
        import httpx2
        from mcp import MCPError
        from pydantic import ValidationError

        match error := leaf(error):
            case FaultError(fault=fault):
                return fault
            case MCPError():
                return await self._fault_of_answer(error)
            case ValidationError():
                first = error.errors(include_url=False, include_input=False)[0]
                place = self._quote_server(".".join(map(str, first["loc"])))
                what = f"violated the protocol: {place}: {first['msg']}"
                return Fault("unreadable", what, "Update the server.")
            case httpx2.HTTPError():
                from loom_core.mcp_client.connections.http_client import fault_of

                return fault_of(error, self._config.url)
            case OSError():
                return Fault("connection", f"cannot be reached: {error.strerror}", lost=True, passing=True)
            case _:
                what = f"sent an unusable response: {self._quote_server(str(error))}"
                return Fault("unreadable", what, "Update the server.")

    async def conclude(self, error: BaseException | None, seconds: float) -> None:
        """Determine why it was lost or could not be opened, after it was closed.

        Args:
            error: the error that the SDK raised, or None.
            seconds: timeout of the opening.
        """
        self.broken = self._process is not None and error is not None and not self.opened
        if not self.opened:
            self.fault = await self._fault_of_start(error, seconds)
        elif self._process and self.fault is _GONE:
            said = await self._process.describe_exit()
            self.fault = Fault("connection", said, lost=True, passing=True)
        elif self.fault is None:
            self.fault = await self.fault_of(error) if error else _GONE
        self.lost.set()

    async def _fault_of_start(self, error: BaseException | None, seconds: float) -> Fault:
        """Return why it could not be opened; no error means a timeout."""
        if isinstance(self._transport, HttpTransport) and self._transport.unauthorized:
            return self._transport.unauthorized
        if error is not None:
            fault = await self.fault_of(error)
            if fault.lost and self._process:
                said = await self._process.describe_exit()
                return Fault("start", said, self._advice(), ran="no", lost=True, passing=True)
            return replace(fault, advice=fault.advice or self._advice()) if self._process else fault
        what = f"did not answer within {seconds:g} s when it was opened"
        if self._stdio and self._stdio.pollution:
            shown = self._quote_server(self._stdio.pollution.decode("utf-8", "replace"))
            what = f"{what}; its standard output has something that is not a message: {shown!r}"
        if self._process and (said := self._process.log.tail()):
            what = f"{what}; it said: {said}"
        advice = "Run its command in a terminal, or give it longer with `start_seconds`."
        return Fault(
            "start", what, advice if self._process else "Check that it runs.", ran="no", passing=True
        )

    @property
    def _modern(self) -> bool:
        return self.client.session.discover_result is not None

    @property
    def _process(self) -> ChildProcess | None:
        return self._stdio.process if self._stdio else None

    def _advice(self) -> str:
        if self._stdio and self._stdio.pollution:
            shown = self._quote_server(self._stdio.pollution.decode("utf-8", "replace"))
            return f"It may be no server of MCP, or need other `args`: it wrote {shown!r}."
        return "Run its command in a terminal, and check `args` and `env` of its entry."

    async def _fault_of_answer(self, error: MCPError) -> Fault:
        from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS

        if (fault := self._transport.faults.take(error.data)) is not None:
            return fault
        broken = error.message == "Connection closed" or error.message.startswith("SSE stream")
        if self.lost.is_set() or (error.code == CONNECTION_CLOSED and broken):
            if self.fault and self.fault.failure == "closed":
                return replace(self.fault, ran="unknown")
            if self._process:
                return Fault("interrupted", await self._process.describe_exit(), lost=True, passing=True)
            if self.fault:  # another request found it; whether this one ran is not known
                return replace(self.fault, failure="interrupted", ran="unknown")
            if "exceeded" in error.message:
                what = "sent a response that is too large"
                return Fault("too_large", what, "Ask it for less at once.")
            return Fault(
                "interrupted",
                "ended its response early",
                lost=error.message == "Connection closed",
                passing=True,
            )
        if error.message.startswith("Failed to parse JSON"):
            what = "sent something that is not an MCP message"
            return Fault("unreadable", what, "Check its `url`, and update it.")
        ran = "no" if error.code in {_METHOD_NOT_FOUND, INVALID_PARAMS} else "unknown"
        what = f"answers with error {error.code}: {self._quote_server(error.message) or 'no words'}"
        return Fault("refused", what, code=error.code, ran=ran)

    def _subscribable_changes(self) -> list[_Changed]:
        """Return the lists whose changes the server announces."""
        said = self.client.server_capabilities
        told: dict[_Changed, bool | None] = {
            "tools": said.tools and said.tools.list_changed,
            "resources": said.resources and said.resources.list_changed,
            "prompts": said.prompts and said.prompts.list_changed,
        }
        return [change for change, is_told in told.items() if is_told]

    async def _handle_change(self, message: IncomingMessage) -> None:
        import mcp_types

        match message:
            case mcp_types.ToolListChangedNotification():
                self._on_change("tools")
            case mcp_types.ResourceListChangedNotification():
                self._on_change("resources")
            case mcp_types.PromptListChangedNotification():
                self._on_change("prompts")
            case _:
                pass

    def _quote_server(self, text: str) -> str:
        """Format a server's text as part of a sentence, with secrets redacted before it is cut."""
        return plain_line(redact(text, self._config.secrets), most=_SHOWN)

    def _describe_exit(self) -> None:
        self.mark_lost(_GONE)


_GONE = Fault("connection", "has gone", ran="no", lost=True, passing=True)
_METHOD_NOT_FOUND = -32601


@cache
def _version() -> str:
    return version("loom-mcp-core")  # which reads a file


async def _skip_validation(name: str, result: CallToolResult) -> None:
    """See `OpenConnection.leave_results_unchecked`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconnectPolicy(Backoff):
    """Policy for reconnecting to a lost server.

    Attributes:
        attempts: consecutive failures after which it is given up until a caller asks for it.
        settled: a connection that lasts for these seconds resets the failure count; without this, a server
            that dies soon after each start would be restarted for ever.
    """

    base: float = 0.25
    cap: float = 10.0
    attempts: int = 4
    settled: float = 10.0


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts that a server reported about itself when it was connected; untrusted.

    Its texts are sanitized, and truncated at 2 KB.

    Attributes:
        name: its own name; may be empty.
        version: its own version; may be empty.
        instructions: how its tools are to be used, for a model; may be empty.
        protocol_version: the revision spoken, such as `2026-07-28`.
        modern: whether that revision has no handshake and no sessions.
        capabilities: its capabilities.
        seconds: how long it took to connect.
    """

    name: str
    version: str
    instructions: str
    protocol_version: str
    modern: bool
    capabilities: mcp_types.ServerCapabilities
    seconds: float
