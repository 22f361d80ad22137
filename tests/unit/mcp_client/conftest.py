"""Servers to connect to, connections and registries that end with the test, and who logs in."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from loom_core.mcp_client.configuration.server_config import ServerConfig
from loom_core.mcp_client.connections.connection import ServerConnection
from loom_core.mcp_client.connections.lifecycle import ReconnectPolicy
from loom_core.mcp_client.registry import MCPToolRegistry
from tests.fixtures.authorization import Authorization, Person
from tests.fixtures.fork_server import starts_quickly
from tests.unit.mcp_client.asking_server import asking_server

if TYPE_CHECKING:
    from loom_core.server.protocol.factory import LoomServer
    from tests.fixtures.local_server import LocalServer

_HERE = Path(__file__).parent
_LISTED = str(_HERE / "listed_server.py")

READS = {"readOnlyHint": True, "destructiveHint": False}

Opened = Callable[..., AbstractAsyncContextManager[MCPToolRegistry]]


def offered(name: str, description: str = "", **fields: Any) -> dict[str, Any]:
    """A tool as a server of `listed_server.py` lists it."""
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **fields}


class Listed:
    """A server of `listed_server.py`: its entry, and what it says."""

    def __init__(self, folder: Path, name: str, *tools: dict[str, Any], **says: Any) -> None:
        self.file = folder / f"{name}.json"
        self.says: dict[str, Any] = {"tools": [], **says}
        self.offer(*tools)
        self.name = name

    def offer(self, *tools: dict[str, Any]) -> None:
        self.says["tools"] = [*tools]
        self.file.write_text(json.dumps(self.says), encoding="utf-8")

    def config(self, **fields: Any) -> ServerConfig:
        fields = {"era": "legacy", "start_seconds": 40.0, "call_seconds": 40.0, **fields}
        args = ("-S", _LISTED, str(self.file))
        return ServerConfig(name=self.name, transport="stdio", command=sys.executable, args=args, **fields)

    def entry(self, **fields: Any) -> dict[str, Any]:
        loom = {"era": "legacy", "start_seconds": 40.0}
        return {"command": sys.executable, "args": ["-S", _LISTED, str(self.file)], "loom": loom, **fields}


async def until(registry: MCPToolRegistry, holds: Callable[[], bool]) -> None:
    """Wait until something holds that only changes when the registry does."""
    changed = anyio.Event()

    def note() -> None:
        changed.set()

    forget = registry.on_change(note)
    with anyio.fail_after(40):
        while not holds():
            await changed.wait()
            changed = anyio.Event()
    forget()


@pytest.fixture(scope="session")
def raw() -> Callable[..., ServerConfig]:
    """The entry of raw_server.py, which misbehaves as told: `raw("exits", call_seconds=2)`."""

    def entry(how: str = "", **fields: Any) -> ServerConfig:
        script = str(_HERE / "raw_server.py")
        return ServerConfig(
            name="raw", transport="stdio", command=sys.executable, args=("-S", script, how), **fields
        )

    return entry


@pytest.fixture(scope="session")
def asking() -> Callable[..., ServerConfig]:
    """The entry of asking_server.py, which is of both eras."""

    def entry(**fields: Any) -> ServerConfig:
        script = starts_quickly(_HERE / "asking_server.py")
        return ServerConfig(
            name="asking",
            transport="stdio",
            command=sys.executable,
            args=(script,),
            start_seconds=40,
            **fields,
        )

    return entry


@pytest.fixture
def connected() -> Callable[..., AbstractAsyncContextManager[ServerConnection]]:
    """Runs a connection while a block lasts: `async with connected(config) as connection`."""

    @asynccontextmanager
    async def connect(config: ServerConfig, **options: Any) -> AsyncGenerator[ServerConnection]:
        options.setdefault("backoff", ReconnectPolicy(base=0.0))
        connection = ServerConnection(config, **options)
        async with anyio.create_task_group() as tasks:
            await tasks.start(connection.run)
            try:
                yield connection
            finally:
                with anyio.CancelScope(shield=True):
                    await connection.close()

    return connect


@pytest.fixture
def serving() -> Callable[..., AbstractAsyncContextManager[str]]:
    """Serves over HTTP while a block lasts: `async with serving(server, port=…) as url`."""
    from loom_core.server.serving.http import serve_http
    from loom_core.server.serving.http_settings import HttpSettings

    @asynccontextmanager
    async def serve(server: LoomServer, **settings: Any) -> AsyncGenerator[str]:
        ready = anyio.Event()
        urls: list[str] = []

        def on_ready(url: str) -> None:
            urls.append(url)
            ready.set()

        async def run() -> None:
            await serve_http(server, HttpSettings(**{"port": 0, **settings}), on_ready=on_ready)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await ready.wait()
            try:
                yield urls[0]
            finally:
                signal.raise_signal(signal.SIGTERM)

    return serve


@pytest.fixture
def asking_connection(
    serving: Callable[..., AbstractAsyncContextManager[str]],
    connected: Callable[..., AbstractAsyncContextManager[ServerConnection]],
) -> Callable[..., AbstractAsyncContextManager[ServerConnection]]:
    """Connects to asking_server.py over HTTP: `async with asking_connection(callbacks=…, era="legacy")`.

    Takes fields of the entry, and what `ServerConnection` takes.
    """

    @asynccontextmanager
    async def connect(**given: Any) -> AsyncGenerator[ServerConnection]:
        options = {name: given.pop(name) for name in ("callbacks", "on_change") if name in given}
        async with serving(asking_server()) as url:
            entry = ServerConfig(name="asking", transport="http", url=url, **given)
            async with connected(entry, **options) as connection:
                yield connection

    return connect


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """A registry of some servers, loaded."""

    @asynccontextmanager
    async def opening(*servers: ServerConfig) -> AsyncGenerator[MCPToolRegistry]:
        async with MCPToolRegistry(home=tmp_path / "home", servers=servers) as registry:
            await registry.load_servers()
            yield registry

    return opening


@pytest.fixture
def server(local_servers: Callable[..., LocalServer]) -> Authorization:
    """An authorization server, and the endpoint that it guards."""
    return Authorization(local_servers())


@pytest.fixture
def person() -> Person:
    """A person who logs in with a browser."""
    return Person()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Loom's home of one test, which is not there yet."""
    return tmp_path / "home"
