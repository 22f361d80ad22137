"""The ASGI application of a server: the MCP endpoint, and the routes for operators and OAuth clients."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.routes import create_protected_resource_routes
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl, ConfigDict, TypeAdapter
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from loom_core.observability.families import HTTP_CALLS, HTTP_SESSIONS, HTTP_STREAMS
from loom_core.observability.registry import CONTENT_TYPE
from loom_core.server.auth.authentication import Authentication, CredentialMonitor, metadata_url
from loom_core.server.middleware.audit import FINAL_WRITE_SECONDS, RefusalAudit
from loom_core.server.middleware.tracing import HttpTraceMiddleware
from loom_core.server.serving.http_middleware import HttpMiddleware, HttpPolicy, HttpState
from loom_core.server.serving.limits import CallerLimits, SessionCount
from loom_core.server.serving.nodes import Nodes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable
    from contextlib import AbstractAsyncContextManager

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from loom_core.server.auth.authentication import AuthSettings
    from loom_core.server.protocol.factory import LoomServer
    from loom_core.server.serving.http_settings import HttpSettings

__all__ = ["http_app"]

_URLS = TypeAdapter(AnyHttpUrl, config=ConfigDict(url_preserve_empty_path=True))
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_ANYWHERE = frozenset({"", "0.0.0.0", "::"})  # wildcard addresses
_ALIVE, _READY, _METRICS = "/healthz", "/readyz", "/metrics"


def http_app(server: LoomServer, settings: HttpSettings, *, state: HttpState | None = None) -> Starlette:
    """Build the application, with the middleware around all of it.

    The checks of Host and Origin prevent DNS rebinding, by which web pages make their own name point to this
    machine: a request with a foreign `Host` is answered with 421, one with a foreign `Origin` with 403.

    Args:
        server: the server.
        settings: settings of the HTTP server.
        state: state that `/readyz` reports.
    """
    state = state or HttpState()
    auth = settings.auth
    issuer = auth.issuer if auth else None
    shares, sessions = CallerLimits(settings.limits), SessionCount(settings.session_idle_seconds)
    server.metrics.watch(HTTP_SESSIONS, lambda: [((), len(sessions))])
    server.metrics.watch(HTTP_CALLS, lambda: [((), shares.running("call"))])
    server.metrics.watch(HTTP_STREAMS, lambda: [((), shares.running("stream"))])
    security = _security(_hosts(settings))
    nodes = None
    if settings.node_url:
        nodes = Nodes(settings.node_url, server=server.protocol.name, keys=server.state_keys)
    app = server.protocol.streamable_http_app(
        streamable_http_path=settings.path,
        max_request_body_size=settings.max_body_bytes,
        session_idle_timeout=settings.session_idle_seconds,
        max_sessions=settings.max_sessions,
        transport_security=security,
        custom_starlette_routes=[
            *_operator_routes(server, state),
            *_metadata_routes(server, auth),
            *(Route(hook.path, hook.serve, methods=["POST"]) for hook in server.webhooks),
        ],
    )
    metadata = [urlsplit(metadata_url(issuer.resource)).path] if issuer else []
    rules = HttpPolicy(
        security=security,
        authentication=Authentication(auth, realm=server.protocol.name)
        if auth and auth.is_required
        else None,
        limits=settings.limits,
        endpoint=settings.path,
        open_paths=frozenset({_ALIVE, _READY, *metadata}),
        path_scopes={_METRICS: "admin", **{hook.path: "write" for hook in server.webhooks}},
        max_body_bytes=settings.max_body_bytes,
        body_seconds=settings.body_seconds,
        tool_scope=server.tool_scope,
        nodes=nodes,
    )
    refusals, monitor = RefusalAudit(server.audit), CredentialMonitor()
    app.router.lifespan_context = _with_work(app.router.lifespan_context, refusals, monitor, nodes)
    app.add_middleware(AuthContextMiddleware)
    app.add_middleware(HttpTraceMiddleware)
    app.add_middleware(
        HttpMiddleware,
        rules=rules,
        shares=shares,
        sessions=sessions,
        metrics=server.metrics,
        state=state,
        refusals=refusals,
        monitor=monitor,
    )
    return app


def _with_work(
    lifespan: Callable[[Starlette], AbstractAsyncContextManager[Any]],
    refusals: RefusalAudit,
    monitor: CredentialMonitor,
    nodes: Nodes | None,
) -> Callable[[Starlette], AbstractAsyncContextManager[Any]]:
    """Wrap a lifespan: run the monitor; at its end, write the counts of refusals and leave other nodes."""

    @asynccontextmanager
    async def working(app: Starlette) -> AsyncGenerator[Any]:
        async with lifespan(app) as state, anyio.create_task_group() as tasks:
            tasks.start_soon(monitor.run)
            try:
                yield state
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True, deadline=anyio.current_time() + FINAL_WRITE_SECONDS):
                    await refusals.write_counts()
                    if nodes is not None:
                        await nodes.close()

    return working


def _operator_routes(server: LoomServer, state: HttpState) -> list[Route]:
    protocol = server.protocol

    async def alive(_request: Request) -> Response:
        return JSONResponse({"status": "ok", "name": protocol.name, "version": protocol.version})

    async def ready(_request: Request) -> Response:
        if state.serving:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "ending"}, status_code=503)

    async def metrics(_request: Request) -> Response:
        return PlainTextResponse(server.metrics.text(), headers={"content-type": CONTENT_TYPE})

    return [Route(_ALIVE, alive), Route(_READY, ready), Route(_METRICS, metrics)]


def _metadata_routes(server: LoomServer, auth: AuthSettings | None) -> list[Route]:
    """Build the routes of the protected resource metadata (RFC 9728)."""
    if auth is None or auth.issuer is None:
        return []
    return create_protected_resource_routes(
        resource_url=_url(auth.issuer.resource),
        authorization_servers=[_url(auth.issuer.url)],
        scopes_supported=["read", "write"],
        resource_name=server.protocol.title or server.protocol.name,
    )


def _url(text: str) -> AnyHttpUrl:
    """Keep a URL as it was given: clients compare an issuer character by character (RFC 8414, 3.3)."""
    return _URLS.validate_python(text)


def _hosts(settings: HttpSettings) -> list[str]:
    """Return the allowed `Host` names: this machine's, the configured ones, the public one, the node's."""
    issuer = settings.auth.issuer if settings.auth else None
    public = urlsplit(issuer.resource).netloc if issuer else ""
    host = settings.host.strip("[]")
    bound = "" if host in _ANYWHERE else f"[{host}]" if ":" in host else host
    node = urlsplit(settings.node_url).netloc
    return [*_LOCAL_HOSTS, *settings.allowed_hosts, *filter(None, (public, bound, node))]


def _security(hosts: Iterable[str]) -> TransportSecuritySettings:
    names = list(dict.fromkeys(hosts))
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[form for host in names for form in (host, f"{host}:*")],
        allowed_origins=[
            form
            for host in names
            for scheme in ("http", "https")
            for form in (f"{scheme}://{host}", f"{scheme}://{host}:*")
        ],
    )
