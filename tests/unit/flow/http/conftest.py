"""A stub API on this machine, and callers that may ask it."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from loom_core.flow.config import EndpointConfig, FlowFile, NetConfig
from loom_core.flow.http import EndpointCaller
from loom_core.net.retry import RetryPolicy

if TYPE_CHECKING:
    from tests.fixtures.local_server import Asked, LocalServer

    Reply = Callable[[Asked, socket.socket], None]


class StubApi:
    """Answers each path with a list of replies, one after the other, the last one for ever."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server

    @property
    def asked(self) -> list[Asked]:
        return self.server.asked

    def url(self, path: str) -> str:
        return self.server.url(path)

    def on(self, path: str, *replies: object) -> str:
        """Let a path answer: a number is a status, what is callable does it itself, all else is JSON."""
        waiting = list(replies)

        def answer(asked: Asked, connection: socket.socket) -> None:
            reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            if callable(reply):
                reply(asked, connection)
            elif isinstance(reply, tuple):
                connection.sendall(response(*reply))
            elif isinstance(reply, int):
                connection.sendall(response(reply))
            else:
                connection.sendall(response(200, reply))

        self.server.routes[path] = answer
        return self.url(path)


def response(status: int, body: object = None, headers: dict[str, str] | None = None) -> bytes:
    content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
    lines = [f"HTTP/1.1 {status} Because", f"Content-Length: {len(content)}"]
    lines += ["Content-Type: application/json"] if content else []
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + content


@pytest.fixture
def api(local_servers: Callable[..., LocalServer]) -> StubApi:
    return StubApi(local_servers(keeps=True))


def at_once(**named: Any) -> RetryPolicy:
    """Retries that wait for next to nothing."""
    return RetryPolicy(base=0.001, cap=0.001, **named)


@pytest.fixture
def callers() -> Iterator[Callable[..., EndpointCaller]]:
    """Makes callers that may ask this machine; `net` and `flow_url` as in a flow file."""

    def make(*, flow_url: str = "", net: dict[str, Any] | None = None, **named: Any) -> EndpointCaller:
        file = FlowFile(flow_url=flow_url, net=NetConfig(allow=["127.0.0.1"], **(net or {})))
        return EndpointCaller(file, **{"retry": at_once(), **named})

    return make


@pytest.fixture
async def caller(callers: Callable[..., EndpointCaller]) -> Any:
    async with callers() as made:
        yield made


@pytest.fixture
def endpoint() -> Callable[..., EndpointConfig]:
    """An endpoint as a file writes it."""

    def make(url: str, method: str = "GET", **written: Any) -> EndpointConfig:
        return EndpointConfig.model_validate({"url": url, "method": method, **written})

    return make
