"""Clients of a single MCP server, without a configuration file or a registry."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio

from loom_core.mcp_client.configuration.server_config import ServerConfig
from loom_core.mcp_client.connections.connection import ServerConnection
from loom_core.mcp_client.tools.output import call_output

if TYPE_CHECKING:
    import httpx2
    import mcp_types

    from loom_core.mcp_client.callbacks import Callbacks
    from loom_core.mcp_client.configuration.server_config import Transport
    from loom_core.mcp_client.connections.lifecycle import ServerFacts
    from loom_core.tools.interface import ProgressFunction, ToolOutput

__all__ = ["HttpClient", "MCPClient", "StdioClient"]


class MCPClient:
    """A client of one server: use `async with`, or `connect` and `close`, in any task.

    A request connects it if it is not connected. If the server goes away, the client reconnects.
    """

    def __init__(
        self, config: ServerConfig, *, callbacks: Callbacks | None = None, auth: httpx2.Auth | None = None
    ) -> None:
        """Prepare a client.

        Args:
            config: the server.
            callbacks: answer the server's own requests.
            auth: authenticates requests over HTTP.
        """
        self._connection = ServerConnection(config, callbacks=callbacks, auth=lambda _config: auth)
        self._owner: asyncio.Task[None] | None = None

    async def connect(self) -> Self:
        """Connect, if it is not connected.

        Raises:
            ServerError: it cannot be connected to; the client is closed then.
        """
        if self._owner is None:
            # Its own task, and no task group: that could be left only by the task that entered it.
            self._owner = asyncio.create_task(self._connection.run(), name=f"MCP {self._connection.name}")
            try:
                await self._connection.ready()
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self.close()
                raise
        return self

    async def close(self) -> None:
        """Close the connection, which ends a child process. It may be called again."""
        await self._connection.close()
        if self._owner is not None:
            await asyncio.wait([self._owner])

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):  # every wait in there has a limit
            await self.close()

    @property
    def facts(self) -> ServerFacts | None:
        """Facts that the server reported about itself; None before it is connected."""
        return self._connection.facts

    async def list_tools(self) -> list[mcp_types.Tool]:
        """List all tools, as the server defines them.

        Raises:
            ServerError: see `ServerError.failure`.
        """
        await self.connect()
        return (await self._connection.list_tools()).tools

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        seconds: float | None = None,
        progress: ProgressFunction | None = None,
    ) -> ToolOutput:
        """Call a tool.

        Args:
            name: the tool.
            arguments: as its schema wants them.
            seconds: timeout without progress; 120 if not given.
            progress: called with the progress.

        Returns:
            The tool's output; `is_error` if the tool reports a failure.

        Raises:
            ServerError: see `ServerError.failure`.
        """
        await self.connect()
        return call_output(
            await self._connection.call_tool(name, arguments or {}, seconds=seconds, progress=progress)
        )

    async def list_resources(self) -> list[mcp_types.Resource]:
        """List all resources; none if the server offers none.

        Raises:
            ServerError: see `ServerError.failure`.
        """
        await self.connect()
        return await self._connection.list_resources()

    async def read_resource(self, uri: str) -> mcp_types.ReadResourceResult:
        """Read a resource.

        Raises:
            ServerError: see `ServerError.failure`.
        """
        await self.connect()
        return await self._connection.read_resource(uri)

    async def list_prompts(self) -> list[mcp_types.Prompt]:
        """List all prompts; none if the server offers none.

        Raises:
            ServerError: see `ServerError.failure`.
        """
        await self.connect()
        return await self._connection.list_prompts()

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None
    ) -> mcp_types.GetPromptResult:
        """Get the messages of a prompt.

        Raises:
            ServerError: see `ServerError.failure`.
        """
        await self.connect()
        return await self._connection.get_prompt(name, arguments)


class StdioClient(MCPClient):
    """A client of a server that it starts as a child: `StdioClient("npx", ["-y", "mcp-server"])`."""

    def __init__(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        name: str = "server",
        callbacks: Callbacks | None = None,
    ) -> None:
        """Prepare a client.

        Args:
            command: the program.
            args: its arguments.
            env: environment variables in addition to the few that every child gets; keys of this process are
                not among those.
            cwd: its working directory.
            name: its name in messages.
            callbacks: answer the server's own requests.
        """
        config = ServerConfig(
            name=name, transport="stdio", command=command, args=tuple(args), env=env or {}, cwd=cwd
        )
        super().__init__(config, callbacks=callbacks)


class HttpClient(MCPClient):
    """A client of a server that is running: `HttpClient("http://localhost:3000/mcp")`."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        bearer: str = "",
        auth: httpx2.Auth | None = None,
        transport: Transport = "http",
        name: str = "server",
        callbacks: Callbacks | None = None,
    ) -> None:
        """Prepare a client.

        Args:
            url: the address.
            headers: sent with every request.
            bearer: a token, sent as `Authorization: Bearer …`.
            auth: authenticates the requests, instead of `bearer`.
            transport: `sse` for servers with the older transport.
            name: its name in messages.
            callbacks: answer the server's own requests.
        """
        sent = {**(headers or {}), **({"Authorization": f"Bearer {bearer}"} if bearer else {})}
        config = ServerConfig(name=name, transport=transport, url=url, headers=sent)
        super().__init__(config, callbacks=callbacks, auth=auth)
