"""Remote tools: tools of other MCP servers, which are started on first use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import anyio

from loom_core.errors import ConfigError, LoomError, SourceError
from loom_core.tools.interface import QuestionAnswer

if TYPE_CHECKING:
    from pathlib import Path

    from anyio.abc import TaskGroup

    from loom_core.mcp_client.registry import MCPToolRegistry, ServerStatus
    from loom_core.tools.interface import OutputFile, Question, Tool

__all__ = ["EVERYTHING", "RemoteTools"]

_log = logging.getLogger(__name__)

EVERYTHING = "all"
"""Value instead of a list of names: all enabled servers."""


class RemoteTools:
    """The MCP servers that this process uses, each started once.

    Args:
        home: Loom's folder, with `mcp.json` in it.
        user: the configuration that names servers, for messages.
    """

    def __init__(self, home: Path, *, user: str = "the profile") -> None:
        self._home = home
        self._user = user
        self._registry: MCPToolRegistry | None = None
        self._tasks: TaskGroup | None = None
        self._loading: dict[str, anyio.Event] = {}
        self._failures: dict[str, LoomError] = {}
        self._enabled: list[str] = []
        self._named: set[str] = set()
        self._turn = anyio.Lock()

    def start_in(self, tasks: TaskGroup) -> None:
        """Use the caller's task group for starting servers."""
        self._tasks = tasks

    async def start_servers(self, names: Literal["all"] | Sequence[str]) -> Sequence[str]:
        """Start servers in the background.

        Args:
            names: which ones; `all` for all enabled ones.

        Returns:
            Their names; for `all`, a list that later calls update as the configuration changes.
        """
        assert self._tasks is not None, "servers are started while they are worked for"
        registry = await self._open_registry()
        if names == EVERYTHING:
            found = await registry.discover_local_servers()
            self._enabled[:] = found or self._enabled  # a file that is broken for now lists none
            names = self._enabled
        else:
            self._named |= set(names)
        for name in names:
            if name not in self._loading:
                self._failures.pop(name, None)
                self._loading[name] = anyio.Event()
                self._tasks.start_soon(self._load, registry, name)
        return names

    async def wait_for_servers(self, names: Literal["all"] | Sequence[str], *, seconds: float) -> None:
        """Wait for a limited time until servers are ready.

        A server that is not ready in time is still being started, and its tools appear once it is. It is an
        error only if its entry marks it as required, or if it is named and not configured.

        Args:
            names: as for `start_servers`.
            seconds: maximum wait.

        Raises:
            SourceError: a required server is not ready, or the entry of a named one cannot be used.
            ConfigError: a named server is not configured.
        """
        chosen = tuple(await self.start_servers(names))
        with anyio.move_on_after(seconds):
            for name in chosen:
                if name in self._loading:
                    await self._loading[name].wait()
        for name in self._named.intersection(chosen):
            if name in self._failures:
                error = self._failures[name]
                raise ConfigError(
                    f"The MCP server {name}, which {self._user} names, cannot be started: {error.message}",
                    advice=error.advice,
                ) from error
        for status in (await self._open_registry()).servers():
            named = status.name in self._named and status.state == "misconfigured"
            if status.name in chosen and (status.required or named):
                _check(status, self._user)

    def live(self, names: Sequence[str]) -> Callable[[], tuple[Tool, ...]]:
        """Return a function for the current tools of servers; it returns the same tuple until they change.

        `names` may be the list that `start_servers` returned.
        """
        seen: tuple[object, frozenset[str], tuple[Tool, ...]] = (None, frozenset(), ())

        def tools() -> tuple[Tool, ...]:
            nonlocal seen
            now, chosen = () if self._registry is None else self._registry.tools(), frozenset(names)
            before = seen[2]
            if seen[0] is not now or seen[1] != chosen:
                mine = tuple(each for each in now if each.server in chosen)
                # Another server's tools are no change here.
                same = len(mine) == len(before) and all(a is b for a, b in zip(mine, before, strict=True))
                seen = (now, chosen, before if same else mine)
            return seen[2]

        return tools

    async def read_resource(self, server: str, uri: str) -> list[OutputFile]:
        """Read a resource of a server; see `MCPToolRegistry.read_resource`."""
        return await (await self._open_registry()).read_resource(server, uri)

    def problems(self) -> list[str]:
        """Return the problems of servers that were started, or cannot be."""
        if self._registry is None:
            return []
        return [f"{each.name}: {each.problem}" for each in self._registry.servers() if each.problem]

    async def close(self) -> None:
        """Close all servers."""
        if self._registry is not None:
            await self._registry.close()

    async def _open_registry(self) -> MCPToolRegistry:
        async with self._turn:
            if self._registry is None:
                from loom_core.mcp_client.callbacks import Callbacks
                from loom_core.mcp_client.registry import MCPToolRegistry

                # Questions during a call go to the run that made it; others cannot be answered.
                self._registry = MCPToolRegistry(home=self._home, callbacks=Callbacks(ask=_no_user))
            return self._registry

    async def _load(self, registry: MCPToolRegistry, name: str) -> None:
        tried = self._loading[name]
        try:
            await registry.load_servers([name])
        except LoomError as error:
            if name not in self._named:  # for a named one, `wait_for_servers` raises the error
                _log.warning("the MCP server %s is not available: %s", name, error)
            self._failures[name] = error
            del self._loading[name]  # the next run tries again
        finally:
            tried.set()


def _check(status: ServerStatus, user: str) -> None:
    if status.state == "misconfigured":
        raise SourceError(
            f"The MCP server {status.name} cannot be started: {status.problem}",
            advice=f"Correct its entry, or take it out of {user}.",
        )
    if status.state not in {"ready", "degraded"}:
        raise SourceError(
            f"The required MCP server {status.name} is not ready: it is {status.state}.",
            advice=status.problem or "Try again in a few seconds, when it has started.",
        )


async def _no_user(_question: Question) -> QuestionAnswer:
    return QuestionAnswer("cancel")
