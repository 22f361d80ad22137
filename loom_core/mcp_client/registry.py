"""Tool registry: all tools of all configured servers, live and by name."""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import anyio
import anyio.to_thread

from loom_core.errors import InvalidInputError, NotFoundError, ServerError
from loom_core.mcp_client.callbacks import Callbacks
from loom_core.mcp_client.configuration.servers import ServerProblem, Servers, read_servers
from loom_core.mcp_client.connections.connection import Change, ServerConnection, State
from loom_core.mcp_client.tools.output import resource_file
from loom_core.mcp_client.tools.pins import Approvals
from loom_core.mcp_client.tools.result_cache import ResultCache
from loom_core.mcp_client.tools.server_tools import ServerTools
from loom_core.mcp_client.tools.tool import MCPTool, ServerTool
from loom_core.paths import loom_home
from loom_core.tools.tool_search import ToolSearch

if TYPE_CHECKING:
    import httpx2
    from anyio.abc import TaskGroup

    from loom_core.mcp_client.configuration.server_config import ServerConfig
    from loom_core.mcp_client.configuration.trust import ToolPin
    from loom_core.mcp_client.connections.lifecycle import ServerFacts
    from loom_core.tools.interface import OutputFile

__all__ = ["MCPToolRegistry", "ServerStatus", "ToolSnapshot"]

_STARTING_AT_ONCE = 64  # a file may name hundreds of servers

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """Status of a server, for people.

    Attributes:
        name: its id.
        state: see `State`; `misconfigured` for an entry that cannot be used.
        problem: why it has no tools, or possibly outdated ones, with advice; empty if there is no problem.
        tools: number of tools that can be called.
        left_out: tools that cannot be called, with the reason.
        facts: facts that it reported about itself, or None.
        required: whether its entry marks it as required.
    """

    name: str
    state: State | Literal["misconfigured"]
    problem: str = ""
    tools: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    facts: ServerFacts | None = None
    required: bool = False


class MCPToolRegistry:
    """All tools of all configured servers, live.

    Use it as a context manager, or call `close` at the end, from any task of the same event loop:

        async with MCPToolRegistry() as registry:
            tools = await registry.load_servers(["filesystem", "github"])
            output = await registry.find("filesystem:read_file").call({"path": "README.md"})

    Servers are started, supervised and closed independently: one that hangs, fails or floods does not affect
    the others. When a server changes its tools, they are replaced as a whole; a call of a removed tool is
    refused, even from a caller that still holds it.

    Attributes:
        search: a tool that finds tools, for a model that is not shown all of them.
    """

    def __init__(
        self,
        *,
        home: Path | None = None,
        project: Path | None = None,
        servers: Sequence[ServerConfig] = (),
        callbacks: Callbacks = Callbacks(),  # noqa: B008 - frozen
    ) -> None:
        """Prepare a registry; nothing is read or started yet.

        Args:
            home: Loom's folder, with `mcp.json` in it; by default `$LOOM_HOME` or `~/.loom`.
            project: a project's `.mcp.json`; it counts only once it is trusted.
            servers: more servers, not from a file; they come before one of the same name in a file.
            callbacks: answer the servers' own requests.
        """
        self._home = loom_home(home)
        self._project = project
        self._given = {config.name: config for config in servers}
        self._callbacks = callbacks
        self._approvals = Approvals(self._home)
        self._cache = ResultCache()
        self._problems: dict[str, ServerProblem] = {}
        self._servers: dict[str, ServerTools] = {}
        self._offered: tuple[ServerTool, ...] = ()
        self._snapshot = ToolSnapshot()
        self._listeners: dict[object, Callable[[], None]] = {}
        self._closing = anyio.Event()
        self._running = anyio.Event()
        self._starting = anyio.Semaphore(_STARTING_AT_ONCE)
        self._tasks: TaskGroup
        self._owner: asyncio.Task[None] | None = None
        self.search = ToolSearch(self.tools)

    async def __aenter__(self) -> Self:
        await self._start_task_group()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):  # every wait in there has a limit
            await self.close()

    async def discover_local_servers(self) -> list[str]:
        """Return the names of the configured servers that can be started; `servers` lists the others, too."""
        return list(await self._list_configured(None))

    async def load_servers(self, names: Sequence[str] | None = None) -> list[ServerTool]:
        """Start servers, and return their tools once each server is ready or has failed.

        A server that fails costs its own tools only: `servers` says why. One that is running stays as it is,
        and one that has failed is tried again.

        Args:
            names: which ones, including disabled ones; None for all enabled ones.

        Raises:
            NotFoundError: no server of such a name is configured.
        """
        configs = await self._list_configured(names)
        tasks = await self._start_task_group()
        chosen = [self._servers.get(name) or self._start(config, tasks) for name, config in configs.items()]
        async with anyio.create_task_group() as waiting:
            for server in chosen:
                waiting.start_soon(server.wait_until_tried)
        return [tool for tool in self._snapshot.tools if tool.server in configs]

    def tools(self) -> tuple[ServerTool, ...]:
        """Return all tools that can be called now, as a snapshot."""
        return self._snapshot.tools

    def find(self, name: str) -> ServerTool:
        """Find a tool by its name for people (`server:tool`) or models (`server__tool`).

        Raises:
            NotFoundError: there is none now; the advice names similar ones.
        """
        return self._snapshot.find(name)

    async def read_resource(self, server: str, uri: str) -> list[OutputFile]:
        """Read a resource of a server that was started.

        Returns:
            Its contents, in most cases one; texts are in UTF-8.

        Raises:
            NotFoundError: no such server was started.
            ServerError: see `ServerError.failure`.
        """
        if server not in self._servers:
            raise NotFoundError(f"The MCP server {server!r} is not started.", advice="Load it first.")
        result = await self._servers[server].connection.read_resource(uri)
        try:
            return [resource_file(content) for content in result.contents]
        except ValueError as error:
            raise ServerError(
                f"The server {server} sent a resource that cannot be read: {error}.",
                server=server,
                failure="unreadable",
            ) from error

    def servers(self) -> list[ServerStatus]:
        """Return the status of all servers: those that were started, and entries that cannot be used."""
        running = [
            ServerStatus(
                name,
                server.connection.state,
                server.problem,
                len(server.tools),
                server.left_out,
                server.connection.facts,
                server.connection.config.required,
            )
            for name, server in self._servers.items()
        ]
        wrong = [
            ServerStatus(name, "misconfigured", str(problem))
            for name, problem in self._problems.items()
            if name not in self._servers
        ]
        return [*running, *wrong]

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Subscribe a listener to changes of tools and of servers' states.

        Args:
            listener: must neither wait nor raise.

        Returns:
            A function that unsubscribes the listener.
        """
        key = object()
        self._listeners[key] = listener

        def forget() -> None:
            self._listeners.pop(key, None)

        return forget

    async def approve(self, tools: Iterable[ServerTool]) -> None:
        """Record that the user has reviewed and approved tools in their current definition.

        Raises:
            ConfigError: `trust.json` cannot be read or written.
            StoreBusyError: another process writes it.
        """
        pins: dict[str, dict[str, ToolPin]] = {}
        for tool in tools:
            if isinstance(tool, MCPTool):
                pins.setdefault(tool.server, {})[tool.own_name] = tool.pin
        for server, pinned in pins.items():
            await self._approvals.approve(server, pinned)

    async def close(self) -> None:
        """Close all servers and wait until they are; safe from any task, and twice."""
        self._closing.set()
        if self._owner is not None:
            await asyncio.wait([self._owner])
            await self._owner

    async def _list_configured(self, names: Sequence[str] | None) -> dict[str, ServerConfig]:
        """Read the configurations that can be started, and note the problems of the others."""
        asked = None if names is None else [name for name in names if name not in self._given]
        found = Servers()
        if asked is None or asked:
            found = await anyio.to_thread.run_sync(
                lambda: read_servers(self._home, project=self._project, names=asked)
            )
        for problem in found.problems.values():
            if asked is not None and not problem.where:
                raise NotFoundError(problem.message, advice=problem.advice)
        kept = (
            {}
            if asked is None
            else {name: self._problems[name] for name in self._problems.keys() - set(asked)}
        )
        for name, problem in found.problems.items():
            if self._problems.get(name) != problem:  # the configuration is read many times
                _log.warning("%s", problem)
        self._problems = kept | dict(found.problems)
        configs = {config.name: config for config in found.ready} | self._given
        return configs if names is None else {name: configs[name] for name in names if name in configs}

    async def _start_task_group(self) -> TaskGroup:
        """Start the task group, in its own task, so that any task may close it; once."""
        if self._closing.is_set():
            raise InvalidInputError("The registry of MCP servers is closed.", advice="Make a new one.")
        if self._owner is None:
            self._owner = asyncio.create_task(self._serve(), name="MCP servers")
        await self._running.wait()
        return self._tasks

    async def _serve(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            self._running.set()
            await self._closing.wait()
            async with anyio.create_task_group() as closing:
                for server in self._servers.values():
                    closing.start_soon(server.connection.close)
            self._tasks.cancel_scope.cancel()

    def _start(self, config: ServerConfig, tasks: TaskGroup) -> ServerTools:
        server = ServerTools(
            lambda changed: self._connection(config, changed),
            approvals=self._approvals,
            cache=self._cache,
            starting=self._starting,
            on_change=self._notify_change,
        )
        self._servers[config.name] = server
        tasks.start_soon(server.run)
        return server

    def _connection(self, config: ServerConfig, changed: Callable[[Change], None]) -> ServerConnection:
        return ServerConnection(
            config, callbacks=self._callbacks, on_change=changed, auth=partial(_create_auth, self._home)
        )

    def _notify_change(self) -> None:
        tools = tuple(tool for server in self._servers.values() for tool in server.tools)
        if tools != self._offered:
            self._offered = tools
            self._snapshot = ToolSnapshot.of(tools)
        for listener in tuple(self._listeners.values()):
            listener()


def _create_auth(home: Path, config: ServerConfig) -> httpx2.Auth | None:
    """Return the authentication of a server with a login; it never asks the user to log in."""
    if config.auth == "none":
        return None
    from loom_core.mcp_client.oauth.authentication import oauth_auth

    return oauth_auth(config, home)


_NEAREST = 3


@dataclass(frozen=True, slots=True)
class ToolSnapshot:
    """Snapshot of all tools, by name. Created by `ToolSnapshot.of`.

    Attributes:
        tools: those that can be called, in the order in which they were offered.
    """

    tools: tuple[ServerTool, ...] = ()
    _by_name: Mapping[str, ServerTool] = field(default_factory=dict[str, ServerTool])

    @classmethod
    def of(cls, tools: Iterable[ServerTool]) -> Self:
        """Create a snapshot of some tools; a tool with a repeated name is left out."""
        by_name: dict[str, ServerTool] = {}
        usable: list[ServerTool] = []
        for tool in tools:
            if {tool.name, tool.wire_name} & by_name.keys():
                _log.warning("the tool %s is left out: another one has its name", tool.name)
                continue
            usable.append(tool)
            by_name[tool.name] = by_name[tool.wire_name] = tool
        return cls(tuple(usable), by_name)

    def find(self, name: str) -> ServerTool:
        """Find a tool by its name for people (`server:tool`) or models (`server__tool`).

        Raises:
            NotFoundError: there is none; the advice names similar ones.
        """
        tool = self._by_name.get(name)
        if tool is None:
            raise self._unknown(name)
        return tool

    def _unknown(self, name: str) -> NotFoundError:
        names = [tool.name for tool in self.tools]
        ending = [each for each in names if each.endswith(f":{name}")]
        near = [*ending, *difflib.get_close_matches(name, names, n=_NEAREST, cutoff=0.4)]
        shown = ", ".join(dict.fromkeys(near[:_NEAREST]))
        return NotFoundError(
            f"There is no tool {name[:100]!r}.",
            advice=f"Did you mean {shown}?" if shown else "Look for another one.",
        )
