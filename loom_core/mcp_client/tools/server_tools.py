"""Live tools of one server, kept up to date while it is connected."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from loom_core.errors import LoomError
from loom_core.mcp_client.connections.sanitization import plain_line
from loom_core.mcp_client.tools.meta_tools import MetaTool, meta_tools
from loom_core.mcp_client.tools.pins import Approvals, definition_hash
from loom_core.mcp_client.tools.tool import MCPTool, ServerTool
from loom_core.tools.schemas.form import schema_problem

if TYPE_CHECKING:
    import mcp_types

    from loom_core.mcp_client.connections.connection import Change, ServerConnection
    from loom_core.mcp_client.tools.result_cache import ResultCache

__all__ = ["ServerTools"]

_QUIET_SECONDS = 0.3  # quiet time after a change before the list is fetched again
_MAX_QUIET_SECONDS = 3.0  # maximum delay if changes never stop
_MIN_TTL_SECONDS = 30.0
_RETRY_SECONDS = 30.0
_MAX_TOOLS = 5000
_CONCURRENCY = 50  # tools read before other tasks run

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _ToolList:
    """The tools of one list, which is replaced as a whole.

    Attributes:
        tools: usable tools, in the server's order, followed by Loom's own.
        left_out: reason for each unusable tool, by its name; without those that the configuration denies.
    """

    tools: tuple[ServerTool, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])


class ServerTools:
    """The live tools of one server; implements `ToolEnvironment`.

    Args:
        make_connection: creates the connection, given the callback for changes.
        approvals: what the user has approved.
        cache: cache of results.
        starting: limits the number of servers that start at once.
        on_change: called after a change of the tools or of the server's state; must neither wait nor raise.
    """

    def __init__(
        self,
        make_connection: Callable[[Callable[[Change], None]], ServerConnection],
        *,
        approvals: Approvals,
        cache: ResultCache,
        starting: anyio.Semaphore,
        on_change: Callable[[], None],
    ) -> None:
        self.approvals = approvals
        self.cache = cache
        self._starting = starting
        self._on_change = on_change
        self._stale = anyio.Event()
        self._hurry = False
        self._tried = anyio.Event()
        self._ended = False
        self._offer = _ToolList()
        self._current: Mapping[str, ServerTool] = {}
        self._problem = ""
        self.connection = make_connection(self._notify_change)

    @property
    def tools(self) -> tuple[ServerTool, ...]:
        """Tools that can be called now."""
        return self._offer.tools

    @property
    def left_out(self) -> Mapping[str, str]:
        """Tools of the server that cannot be used, with the reason."""
        return self._offer.left_out

    @property
    def problem(self) -> str:
        """Reason why the tools are missing or out of date; empty if they are current."""
        return self._problem or self.connection.failure

    async def run(self) -> None:
        """Connect to the server, and fetch its tools whenever they may have changed.

        An error here does not affect other servers.
        """
        try:
            async with anyio.create_task_group() as tasks:
                async with self._starting:
                    tasks.start_soon(self.connection.run)
                    seconds = await self._fetch()
                await self._refresh_forever(seconds)
        except Exception:  # noqa: BLE001 - one server must not end the others
            _log.exception("the tools of %s are disabled after an internal error", self.connection.name)
            self._problem = "It is disabled after an internal error of Loom; see its log."
        finally:
            self._ended = True
            self._tried.set()

    async def wait_until_tried(self) -> None:
        """Wait until fetching the tools has succeeded or failed; after an earlier failure, retry first."""
        if self._tried.is_set() and self.problem and not self._ended:
            self._tried = anyio.Event()
            self._hurry = True
            self._stale.set()
        await self._tried.wait()

    async def _refresh_forever(self, seconds: float) -> None:
        while True:
            self._tried.set()
            await self._until_stale(seconds)
            seconds = await self._fetch()

    def refusal(self, tool: ServerTool) -> str:
        """Say why a tool must not be called now, with advice; empty if it may."""
        current = self._current.get(tool.own_name)
        if current is tool:
            return ""
        if not self.connection.config.allows(tool.own_name):
            return f"The configuration of {tool.server} does not allow the tool {tool.name}."
        if current is None:
            return f"The server {tool.server} no longer has the tool {tool.name}. Look for another one."
        return f"The tool {tool.name} has changed since it was listed. Look at it again before you call it."

    def _notify_change(self, change: Change) -> None:
        if change == "tools" or (change == "state" and self.connection.state == "ready"):
            self._stale.set()
        if change == "state":
            self._on_change()

    async def _fetch(self) -> float:
        """Fetch the server's tools and replace the current ones; return the seconds until they are stale."""
        try:
            await self.connection.ready()
            self._stale = anyio.Event()  # changes from now on may not be in the list
            facts = self.connection.facts
            listing = await self.connection.list_tools() if facts and facts.capabilities.tools else None
            offer = await self._read(listing.tools if listing else ())
        except LoomError as error:
            self._problem = str(error)
            ready = self.connection.state == "ready"
            # The supervisor has reported why there is no connection.
            level = logging.WARNING if ready else logging.DEBUG
            _log.log(level, "the tools of %s are not known: %s", self.connection.name, error)
            return _RETRY_SECONDS if ready else math.inf
        self._problem = ""
        if offer != self._offer:
            self._offer = offer
            self._current = {tool.own_name: tool for tool in offer.tools}
            self._on_change()
        ttl = listing.ttl_ms if listing else None
        return max(ttl / 1000, _MIN_TTL_SECONDS) if ttl else math.inf

    async def _until_stale(self, seconds: float) -> None:
        """Wait until the list may be stale; several changes in a row count as one."""
        with anyio.move_on_after(seconds):
            await self._stale.wait()
        with anyio.move_on_after(_MAX_QUIET_SECONDS):
            while self._stale.is_set() and not self._hurry:
                self._stale = anyio.Event()
                with anyio.move_on_after(_QUIET_SECONDS):
                    await self._stale.wait()
        self._hurry = False
        self._stale = anyio.Event()

    async def _read(self, definitions: Sequence[mcp_types.Tool]) -> _ToolList:
        """Return the usable tools of a list; an unchanged tool stays the same object."""
        tools: dict[str, ServerTool] = {}
        left_out: dict[str, str] = {}
        called: set[str] = set()
        for number, definition in enumerate(definitions):
            if number % _CONCURRENCY == 0:
                await anyio.lowlevel.checkpoint()
            name = definition.name
            shown = plain_line(name)
            if not self.connection.config.allows(name):
                continue
            if len(tools) == _MAX_TOOLS:
                left_out[shown] = f"the server has more than {_MAX_TOOLS:,} tools"
                break
            if shown in called or shown in left_out:
                left_out[shown] = "the server gives the same name to several tools"
            elif problem := schema_problem(definition.input_schema):
                left_out[shown] = f"its schema {problem}"
            else:
                tools[name] = self._tool(definition)
                called.add(shown)
        for shown, reason in left_out.items():
            _log.warning("the tool %s:%s is left out: %s", self.connection.name, shown, reason)
        if facts := self.connection.facts:
            for tool in meta_tools(self, facts.capabilities, taken=tools):
                if self.connection.config.allows(tool.own_name):
                    known = self._current.get(tool.own_name)
                    tools[tool.own_name] = known if isinstance(known, MetaTool) else tool
        return _ToolList(tuple(tools.values()), left_out)

    def _tool(self, definition: mcp_types.Tool) -> MCPTool:
        digest = definition_hash(definition)
        known = self._current.get(definition.name)
        if isinstance(known, MCPTool) and known.digest == digest:
            return known
        return MCPTool(definition, self, digest=digest)
