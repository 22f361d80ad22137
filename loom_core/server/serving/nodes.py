"""Nodes behind a load balancer: requests reach the node that holds their session or task.

A session of the handshake era and a task live in the memory of one process. Its id says which: the node's
address is sealed into the id, and a node that gets a request for another one passes it on, and the answer
back. So a balancer may send every request anywhere, and no node needs to know the others.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio

from loom_core.errors import ConfigError
from loom_core.server.auth.refusal import Refusal, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import httpx2
    from mcp.server.request_state import AESGCMRequestStateCodec
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

__all__ = ["Holder", "Nodes", "check_node_url"]

_log = logging.getLogger(__name__)

_SESSION = "mcp-session-id"
_RELAYED = b"loom-relayed"  # a request that another node has passed on
_CLIENT = b"x-forwarded-for"
_TASK_METHODS = "tasks/"
_PURPOSE = "node"
_TIMEOUTS = {"connect": 5.0, "write": 30.0, "read": None, "pool": None}  # nothing may come for hours
_IDLE_SECONDS = 2.0  # of a connection, before the other node closes it: uvicorn does after 5
_RETRY_AFTER = 5
_NOT_PASSED_ON = frozenset(
    {
        b"connection", b"date", b"host", b"keep-alive", b"proxy-connection", b"te", b"trailer",
        b"transfer-encoding", b"upgrade", _CLIENT,
    }
)  # fmt: skip
"""Headers of one connection (RFC 9110, 7.6.1), and those that each node sets itself."""


def check_node_url(url: str) -> str:
    """Return the address of a node without a slash at its end.

    Raises:
        ConfigError: it is not an address such as `http://10.0.0.5:8765`.
    """
    try:
        parts = urlsplit(url)
        is_right = parts.port != 0  # ValueError if it is no number
    except ValueError:
        parts, is_right = urlsplit(""), False
    if (
        not is_right
        or parts.scheme not in {"http", "https"}
        or not parts.hostname
        or parts.path not in {"", "/"}
        or any((parts.query, parts.fragment, parts.username, parts.password))
    ):
        raise ConfigError(
            f"{url!r} cannot be the address of a node.",
            advice="Give scheme, host and port only, as other nodes reach it: http://10.0.0.5:8765.",
        )
    return f"{parts.scheme}://{parts.netloc}"


@dataclass(frozen=True, slots=True)
class Holder:
    """The node that holds what an id names.

    Attributes:
        url: address of the node.
        id: the id in that node.
    """

    url: str
    id: str


class Nodes:
    """This node, and the way to others.

    Args:
        url: address of this node, from `check_node_url`.
        server: name of the server: another one with the same keys does not open its ids.
        keys: returns the keys that all nodes share, of which the first seals.

    Raises:
        ConfigError: there are no keys.
    """

    def __init__(self, url: str, *, server: str, keys: Callable[[], Sequence[str]]) -> None:
        self.url = url
        self._server = server
        self._codec = _codec(keys())

    def seal(self, id_: str) -> str:
        """Return an id that says that this node holds what it names, and does not reveal where that is."""
        return self._codec.seal("\n".join((_PURPOSE, self._server, self.url, id_)).encode())

    def holder(self, request: Request) -> Holder | None:
        """Return the node that holds the session or the task of a request.

        None where it has neither, or an id that no node of this server has given.

        Raises:
            RefusedError: another node has passed the request on to the wrong one.
        """
        named = request.headers.get(_SESSION, "")
        if request.headers.get("mcp-method", "").startswith(_TASK_METHODS):
            from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value

            named = decode_header_value(request.headers.get(MCP_NAME_HEADER)) or ""
        holder = self._open(named) if named else None
        if holder is not None and holder.url != self.url and _RELAYED.decode() in request.headers:
            _log.warning(
                "a request for the node %s was passed on to %s: one --node-url is wrong", holder.url, self.url
            )
            text = "Another node has passed this on to the wrong one. The operator has to look at --node-url."
            raise RefusedError(Refusal(421, "node", text))
        return holder

    async def relay(self, holder: Holder, scope: Scope, receive: Receive, send: Send, *, body: bytes) -> None:
        """Pass a request on to the node that holds its session or task, and the answer back as it comes.

        Raises:
            RefusedError: the node cannot be reached, or went away before it answered.
        """
        import httpx2

        query = scope.get("query_string", b"").decode()
        request = httpx2.Request(
            scope["method"],
            f"{holder.url}{scope['path']}{'?' * bool(query)}{query}",
            headers=[*_end_to_end(scope["headers"]), *_origin(scope)],
            content=body,
            extensions={"timeout": _TIMEOUTS},
        )
        try:
            answer = await self._wire.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            # Sessions end with their node: 404 has the client begin a new one.
            status, reason = 503, "node"
            text = "The process of this task does not answer. If it has ended, so has the task."
            if _SESSION in request.headers:
                text = "The process of this session does not answer. Begin a new one with `initialize`."
                status, reason = 404, "no_session"
            raise RefusedError(Refusal(status, reason, text, retry_after=_RETRY_AFTER)) from error
        except httpx2.HTTPError as error:
            text = "The process that served this went away. What was asked may have been done."
            raise RefusedError(Refusal(502, "node", text)) from error
        try:
            await _pass_back(answer, receive, send)
        finally:
            with anyio.CancelScope(shield=True):
                await answer.aclose()

    async def close(self) -> None:
        """Close the connections to other nodes."""
        if "_wire" in vars(self):
            await self._wire.aclose()

    def _open(self, sealed: str) -> Holder | None:
        from mcp.server.request_state import InvalidRequestState

        try:
            purpose, server, url, id_ = self._codec.unseal(sealed).decode().split("\n")
        except (InvalidRequestState, ValueError):
            return None
        return Holder(url, id_) if (purpose, server) == (_PURPOSE, self._server) else None

    @cached_property
    def _wire(self) -> httpx2.AsyncHTTPTransport:
        import httpx2

        # No client around it: that would keep cookies of one caller for the next one.
        limits = httpx2.Limits(max_connections=None, keepalive_expiry=_IDLE_SECONDS)
        return httpx2.AsyncHTTPTransport(limits=limits, trust_env=False)


def _codec(keys: Sequence[str]) -> AESGCMRequestStateCodec:
    from mcp.server.request_state import AESGCMRequestStateCodec

    if not keys:
        raise ConfigError(
            "Nodes need a key that all of them share, and there is none.",
            advice="Give all of them the same LOOM_STATE_KEYS, or one home that they can write to.",
        )
    return AESGCMRequestStateCodec(keys)


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name.lower() not in _NOT_PASSED_ON]


def _origin(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return headers for the next node: that the request is passed on, and from which client, for its log."""
    place = scope["client"][0] if scope.get("client") else "unknown"
    return [(_RELAYED, b"1"), (_CLIENT, place.encode())]


async def _pass_back(answer: httpx2.Response, receive: Receive, send: Send) -> None:
    """Send the answer of another node to the client, until either of them goes."""
    import httpx2

    headers = _end_to_end(answer.headers.raw)
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        # A stream whose node goes away ends, as it would without a node in between.
        with suppress(httpx2.HTTPError):
            async for part in answer.aiter_raw():
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        tasks.cancel_scope.cancel()
