"""HTTP middleware: host and origin checks, authentication, rate limits and sessions.

The order is: Host and Origin, token, the caller's rate, body (size and time), scope, the caller's slots.
Refusals are counted, and logged without secrets.

uvicorn limits the idle time of a connection between two requests, but not the time until the first request or
the head of any request arrives: `build_protocol` does.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecurityMiddleware
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from loom_core.jsonc import parse_object
from loom_core.observability.families import HTTP_REFUSED, HTTP_RELAYED
from loom_core.server.auth.caller import FULL_ACCESS, SCOPES, use_caller
from loom_core.server.auth.refusal import Refusal, RefusedError
from loom_core.server.calls.task_board import SEAL_KEY
from loom_core.server.middleware.authorization import CALLER_KEY, RUN_KEY, ToolScope, scope_of_request

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from loom_core.observability.metrics import LoomMetrics
    from loom_core.server.auth.authentication import Authentication, Credential, CredentialMonitor
    from loom_core.server.auth.caller import Caller
    from loom_core.server.auth.caller import Scope as CallerScope
    from loom_core.server.middleware.audit import RefusalAudit
    from loom_core.server.serving.limits import CallerLimits, Kind, Limits, SessionCount, Slot
    from loom_core.server.serving.nodes import Holder, Nodes

__all__ = ["HttpMiddleware", "HttpPolicy", "HttpState", "build_protocol"]

_SESSION = "mcp-session-id"
_VERSION = "mcp-protocol-version"
_METHOD = "mcp-method"
_SESSION_RETRY = 60
_END_RETRY = 5  # seconds in which another process may have replaced this one
_SHOWN = 80  # characters of a path in the log
_DISCARDED = 256 * 1024  # bytes of a refused request's body that are read
_DISCARD_SECONDS = 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HttpPolicy:
    """Policy of the HTTP middleware.

    Attributes:
        security: allowed hosts and origins.
        authentication: authenticator; None for no authentication.
        limits: limits of each authenticated caller.
        endpoint: path of the MCP endpoint.
        open_paths: paths without authentication.
        path_scopes: the scopes that other paths require.
        max_body_bytes: maximum size of a body.
        body_seconds: timeout for receiving a body.
        tool_scope: returns the scope that a tool needs.
        nodes: this node of several behind a load balancer; None if it is the only one.
    """

    security: TransportSecuritySettings
    authentication: Authentication | None
    limits: Limits
    endpoint: str
    open_paths: frozenset[str]
    path_scopes: Mapping[str, CallerScope]
    max_body_bytes: int
    body_seconds: float
    tool_scope: ToolScope
    nodes: Nodes | None = None


@dataclass(slots=True)
class HttpState:
    """State of the HTTP server.

    Attributes:
        serving: whether new requests are accepted; `/readyz` reports it to a load balancer.
    """

    serving: bool = True


class HttpMiddleware:
    """ASGI middleware: authenticate a request and admit it, or refuse it.

    Args:
        app: the wrapped application.
        rules: the policy.
        shares: rate and concurrency limits of callers.
        sessions: counts the sessions of the handshake era.
        metrics: counts refusals.
        state: state of the HTTP server.
        refusals: audit of refusals.
        monitor: cancels what runs for credentials that are no longer valid.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        rules: HttpPolicy,
        shares: CallerLimits,
        sessions: SessionCount,
        metrics: LoomMetrics,
        state: HttpState,
        refusals: RefusalAudit,
        monitor: CredentialMonitor,
    ) -> None:
        self._app = app
        self._rules = rules
        self._shares = shares
        self._sessions = sessions
        self._metrics = metrics
        self._state = state
        self._refusals = refusals
        self._monitor = monitor
        self._checks = TransportSecurityMiddleware(rules.security)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body, answer = _Body(receive), _Answer(send)
        request = Request(scope, body.receive)
        try:
            await self._admit(request, answer)
        except RefusedError as error:
            await body.discard()
            await self._refuse(error.refusal, request, answer)
        except anyio.get_cancelled_exc_class():
            # uvicorn cancels requests that still run after its grace period, and no outer handler needs the
            # cancellation: the client gets an answer, and the log no traceback.
            if self._state.serving:
                raise
            text = "The server is shutting down; it stopped this call."
            await self._break_off(Refusal(503, "ending", text, retry_after=_END_RETRY), request, answer)

    async def _admit(self, request: Request, answer: _Answer) -> None:
        """Check a request, and serve it if it is admitted.

        Raises:
            RefusedError: it is not admitted.
        """
        credential = await self._identify(request)
        caller = credential.caller if credential else FULL_ACCESS
        if _path_of(request) != self._rules.endpoint:
            await self._serve_other(request, caller, answer)
            return
        with ExitStack() as running:
            if credential:
                self._check_share(request, credential.caller)
            opened = None
            if _opens_session(request):
                opened = running.enter_context(self._sessions.opening(caller.id))
            with self._shares.slot(caller, "upload") if credential else nullcontext():
                body = await self._body(request.receive)
            if body is None:
                return  # the client has gone
            if credential:
                message = parse_object(body)
                self._check_scope(credential.caller, message)
                if kind := _kind_of(request, message):
                    slot = self._shares.slot(credential.caller, kind)
                    request.scope[RUN_KEY] = partial(self._run, slot, credential)
                    running.enter_context(slot)
            await self._serve(request, credential, body, answer, opened=opened)

    async def _identify(self, request: Request) -> Credential | None:
        """Authenticate a request; None without authentication."""
        wrong = await self._checks.validate_request(request)
        if wrong is not None and wrong.status_code == 421:
            text = (
                "This server does not accept the name in the Host header. Its option --allow-host adds names."
            )
            raise RefusedError(Refusal(421, "host", text))
        if wrong is not None:
            raise RefusedError(
                Refusal(403, "origin", "Web pages of this origin may not send requests to this server.")
            )
        if self._rules.authentication is None or _path_of(request) in self._rules.open_paths:
            return None
        return await self._rules.authentication.authenticate(request.headers.getlist("authorization"))

    async def _serve_other(self, request: Request, caller: Caller, answer: _Answer) -> None:
        """Serve a path other than the MCP endpoint; without authentication, every caller has all scopes."""
        receive: Receive = request.receive
        if needed := self._rules.path_scopes.get(_path_of(request)):  # no other path has a use for a body
            if self._rules.authentication is not None:
                self._shares.count(caller)
                self._rules.authentication.demand(needed, caller)
            body = await self._body(receive)
            if body is None:
                return  # the client has gone
            receive = _replay_body(body, receive)
        with use_caller(caller):
            await self._app(request.scope, receive, answer.send)

    def _check_share(self, request: Request, caller: Caller) -> None:
        self._shares.count(caller)
        most = self._rules.limits.sessions
        if _opens_session(request) and self._sessions.of(caller.id) >= most:
            text = f"{most} sessions of this token are open. End them, or wait until they expire."
            raise RefusedError(Refusal(429, "sessions", text, retry_after=_SESSION_RETRY, caller=caller))

    def _check_scope(self, caller: Caller, message: Mapping[str, object] | None) -> None:
        """Send a challenge if the caller lacks the scope of the call in the body.

        The protocol refuses a body that cannot be parsed here, and `AuthorizationMiddleware` checks all
        calls.
        """
        if caller.scopes >= SCOPES or self._rules.authentication is None or message is None:
            return
        params = message.get("params")
        named = cast("Mapping[str, object]", params) if isinstance(params, dict) else None
        scope = scope_of_request(str(message.get("method")), named, self._rules.tool_scope)
        if scope is not None:
            self._rules.authentication.demand(scope, caller)

    async def _body(self, receive: Receive) -> bytes | None:
        """Read the whole body of a request; None if the client disconnects first."""
        received = bytearray()
        with anyio.move_on_after(self._rules.body_seconds):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                received += message.get("body", b"")
                if len(received) > self._rules.max_body_bytes:
                    text = f"A request may have at most {self._rules.max_body_bytes:,} bytes."
                    raise RefusedError(Refusal(413, "body_size", text))
                if not message.get("more_body", False):
                    return bytes(received)
        text = f"The body took longer than {self._rules.body_seconds:g} seconds."
        raise RefusedError(Refusal(408, "body_time", text))

    async def _serve(
        self,
        request: Request,
        credential: Credential | None,
        body: bytes,
        answer: _Answer,
        *,
        opened: Callable[[str], None] | None,
    ) -> None:
        caller = credential.caller if credential else FULL_ACCESS
        request.scope[CALLER_KEY] = caller
        app, session = self._app, ""
        nodes = self._rules.nodes
        if nodes is not None and (holder := self._find_other(nodes, request, answer)):
            app = partial(self._relay, nodes, holder, body=body, answer=answer)
        else:
            session = self._session_of(request, caller)
        answer.on_start = lambda: self._count_session(request, session, answer, opened)
        self._sessions.begin_request(session)
        try:
            if credential is None:
                await app(request.scope, _replay_body(body, request.receive), answer.send)
                return
            request.scope["user"] = _user(caller)
            with self._monitor.cancelling(credential):
                await app(request.scope, _replay_body(body, request.receive), answer.send)
            if not answer.complete and not credential.holds():
                text = "The token is no longer valid."
                await self._break_off(Refusal(401, "expired_token", text, caller=caller), request, answer)
        finally:
            self._sessions.end_request(session)

    @staticmethod
    def _find_other(nodes: Nodes, request: Request, answer: _Answer) -> Holder | None:
        """Return the other node that holds a request's session or task; None if it is served here.

        Then the session's id is the inner one in the request, and the sealed one in the answer.
        """
        holder = nodes.holder(request)
        if holder is not None and holder.url != nodes.url:
            return holder
        request.scope[SEAL_KEY] = answer.seal = nodes.seal
        if holder is not None and _SESSION in request.headers:
            sealed = request.headers[_SESSION]
            # `request` made this list, so that all that look at the headers see the change.
            MutableHeaders(raw=request.scope["headers"])[_SESSION] = holder.id
            answer.seal = lambda id_: sealed if id_ == holder.id else nodes.seal(id_)
        return None

    async def _relay(
        self,
        nodes: Nodes,
        holder: Holder,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        body: bytes,
        answer: _Answer,
    ) -> None:
        """Serve a request by another node."""
        self._metrics.add(HTTP_RELAYED)
        try:
            await nodes.relay(holder, scope, receive, send, body=body)
        except RefusedError as error:
            await self._refuse(error.refusal, Request(scope), answer)

    def _session_of(self, request: Request, caller: Caller) -> str:
        """Return the session of a request; empty if it has none.

        Raises:
            RefusedError: the caller has no such session. The SDK would refuse it too, but its idle timeout is
                slightly later, and a session that is no longer counted must not continue.
        """
        session = request.headers.get(_SESSION)
        if session is None or not _in_handshake_era(request):
            return ""
        if not self._sessions.has(caller.id, session):
            text = "There is no such session, or it was idle too long. Begin a new one with `initialize`."
            raise RefusedError(Refusal(404, "no_session", text, caller=caller))
        return session

    @contextmanager
    def _run(self, slot: Slot, credential: Credential) -> Generator[None]:
        """Run a call, which in the handshake era may outlive its HTTP request."""
        with slot, self._monitor.cancelling(credential):
            yield

    async def _break_off(self, refusal: Refusal, request: Request, answer: _Answer) -> None:
        """Refuse a request that was cancelled; if its answer has begun, end the stream."""
        who = refusal.caller.name if refusal.caller else "a client"
        _log.warning("what ran for %s was ended (%s)", who, refusal.reason)
        if not answer.status:
            await self._refuse(refusal, request, answer)
        elif answer.streamed and not answer.complete:
            await answer.send({"type": "http.response.body", "body": b"", "more_body": False})

    def _count_session(
        self, request: Request, session: str, answer: _Answer, opened: Callable[[str], None] | None
    ) -> None:
        if opened and answer.session and answer.status < 400:
            opened(answer.session)
        elif session and (answer.status == 404 or (request.method == "DELETE" and answer.status < 300)):
            self._sessions.remove(session)

    async def _refuse(self, refusal: Refusal, request: Request, answer: _Answer) -> None:
        self._metrics.add(HTTP_REFUSED, refusal.reason)
        who = refusal.caller.name if refusal.caller else "an unauthenticated client"
        place = request.client.host if request.client else "nowhere"
        path = _path_of(request)[:_SHOWN]
        _log.warning("refused %s at %s: %s %r (%s)", who, place, request.method, path, refusal.reason)
        start = {"type": "http.response.start", "status": refusal.status, "headers": refusal.headers()}
        await answer.send(start)
        await answer.send({"type": "http.response.body", "body": refusal.body()})
        await self._refusals.note(refusal, source=place, request=f"{request.method} {path}")


class _Body:
    """Wrapper of `receive` that knows whether the body of the request is complete.

    Args:
        receive: the wrapped function.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_complete = False

    async def receive(self) -> Message:
        """Receive the next message."""
        message = await self._receive()
        self._is_complete = message["type"] != "http.request" or not message.get("more_body")
        return message

    async def discard(self) -> None:
        """Read the rest of a refused request, within limits.

        A proxy may still be sending it; if the connection closes meanwhile, some of them (Caddy) drop the
        answer.
        """
        left = _DISCARDED
        with anyio.move_on_after(_DISCARD_SECONDS):
            while left > 0 and not self._is_complete:
                left -= len((await self.receive()).get("body", b""))


class _Answer:
    """Wrapper of `send` that records the status and session of the answer.

    Args:
        send: the wrapped function.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.on_start: Callable[[], None] = lambda: None  # called before its first part is sent
        self.seal: Callable[[str], str] | None = None  # makes the id of a session that the client gets
        self.status = 0
        self.session = ""
        self.streamed = False
        self.complete = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = {name.lower(): value for name, value in message.get("headers", ())}
            self.status = message["status"]
            self.session = headers.get(_SESSION.encode(), b"").decode("latin-1")
            self.streamed = b"content-length" not in headers
            self.on_start()
            if self.seal and self.session:
                sealed = MutableHeaders(raw=list(message["headers"]))
                sealed[_SESSION] = self.seal(self.session)
                message = {**message, "headers": sealed.raw}
        elif message["type"] == "http.response.body":
            self.complete = not message.get("more_body", False)
        await self._send(message)


def _path_of(request: Request) -> str:
    """Return the path as the router matches it: its patterns ignore a final newline.

    `request.url` would not do: the client's `Host` header is a part of it, and may contain another path.
    """
    return request.scope["path"].removesuffix("\n")


def _kind_of(request: Request, message: Mapping[str, object] | None) -> Kind | None:
    """Return the kind of a request; None for what may end a call, which must not wait for a slot.

    In the handshake era, these are notifications, responses and the end of a session; and no header is
    checked against the body.
    """
    if request.method == "GET":
        return "stream"
    if not _in_handshake_era(request):
        named = request.headers.get(_METHOD, "").strip()
        return "stream" if named == "subscriptions/listen" else "call"
    is_call = message is None or ("id" in message and "method" in message)
    return "call" if is_call and request.method == "POST" else None


def _opens_session(request: Request) -> bool:
    return request.method == "POST" and _in_handshake_era(request) and _SESSION not in request.headers


def _in_handshake_era(request: Request) -> bool:
    version = request.headers.get(_VERSION)
    return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Wrap `receive`: replay a body that was read, then pass on further messages."""
    left = [body]

    async def replay() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return replay


def _user(caller: Caller) -> AuthenticatedUser:
    """Convert the caller to the SDK's user, which binds sessions and request states; without the token."""
    return AuthenticatedUser(AccessToken(token="", client_id=caller.id, scopes=sorted(caller.scopes)))


def build_protocol(head_seconds: float, on_timeout: Callable[[], None]) -> type[H11Protocol]:
    """Build the HTTP protocol class for uvicorn, with a timeout for request heads.

    Args:
        head_seconds: timeout for the head of a request, and for the rest of a refused request.
        on_timeout: called for each connection that is closed by the timeout.
    """

    class TimedProtocol(H11Protocol):
        """HTTP/1.1 protocol that closes an idle connection if no request arrives in time."""

        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            super().connection_made(transport)
            self._look()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._look()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def _look(self) -> None:
            cycle = getattr(self, "cycle", None)
            if cycle is not None and not cycle.response_complete:
                self._forget()
            elif self._timer is None and self.timeout_keep_alive_task is None:
                self._timer = self.loop.call_later(head_seconds, self._end)

        def _forget(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _end(self) -> None:
            self._timer = None
            if self.transport.is_closing():
                return
            place = self.client[0] if self.client else "nowhere"
            _log.warning("closed a connection from %s: no request within %g seconds", place, head_seconds)
            on_timeout()
            self.transport.abort()

    return TimedProtocol
