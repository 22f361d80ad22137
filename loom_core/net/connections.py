"""Connection pools of the HTTP client: one-time or keep-alive; and trusted certificates."""

from __future__ import annotations

import logging
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator

    import httpcore2

    from loom_core.net.policy import NetPolicy
    from loom_core.net.ssrf_guard import SsrfGuard

__all__ = ["Connections", "system_trust"]

_MOST = 1000
_MOST_IDLE = 16


@dataclass(slots=True, eq=False)
class _PoolInUse:
    """A pool of keep-alive connections, and the number of requests that use it."""

    pool: httpcore2.AsyncConnectionPool
    users: int = 0

    async def retire(self) -> None:
        """Close the pool, unless a request is in progress: then its end calls this."""
        if not self.users:
            with anyio.CancelScope(shield=True):
                await self.pool.aclose()


class Connections:
    """Gives pools whose connections go to checked addresses only.

    A keep-alive connection stays at the address that was checked when it was opened, whatever its name
    resolves to later.

    Args:
        policy: the proxy, if there is one.
        gate: the SSRF guard.
        tls: trusted certificates; None for those of the system.
        keep_seconds: keep-alive of an idle connection; 0: one request per connection.
    """

    def __init__(
        self, policy: NetPolicy, gate: SsrfGuard, *, tls: ssl.SSLContext | None, keep_seconds: float
    ) -> None:
        self._policy = policy
        self._gate = gate
        self._tls = tls
        self._keep_seconds = keep_seconds
        self._kept: _PoolInUse | None = None

    @asynccontextmanager
    async def pool(self, *, fresh: bool) -> AsyncGenerator[httpcore2.AsyncConnectionPool]:
        """Return the pool for one request; with `fresh`, a new one without keep-alive."""
        if fresh or not self._keep_seconds:
            async with self._create_pool() as pool:
                yield pool
            return
        kept = self._kept = self._kept or _PoolInUse(self._create_pool())
        kept.users += 1
        try:
            yield kept.pool
        finally:
            kept.users -= 1
            if kept is not self._kept:
                await kept.retire()

    async def aclose(self) -> None:
        """Close idle connections; those in use close when their requests end."""
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.retire()

    def _create_pool(self) -> httpcore2.AsyncConnectionPool:
        import httpcore2
        import httpx2

        from loom_core.net.pinned_backend import PinnedBackend

        _hide_headers()
        tls = self._tls or system_trust()
        if not self._policy.proxy:
            return httpcore2.AsyncConnectionPool(
                ssl_context=tls,
                network_backend=PinnedBackend(self._gate),
                max_connections=_MOST,
                max_keepalive_connections=_MOST_IDLE,
                keepalive_expiry=self._keep_seconds,
            )
        proxy = httpx2.Proxy(self._policy.proxy)
        return httpcore2.AsyncHTTPProxy(
            str(proxy.url),
            proxy_auth=proxy.raw_auth,
            ssl_context=tls,
            max_connections=_MOST,
            max_keepalive_connections=_MOST_IDLE,
            keepalive_expiry=self._keep_seconds,
        )


@lru_cache(maxsize=1)
def _hide_headers() -> None:
    """Keep response headers out of the debug log: they may have cookies and echoes of our headers."""
    for name in ("httpcore2.http11", "httpcore2.http2"):
        logging.getLogger(name).addFilter(lambda record: record.levelno > logging.DEBUG)


def system_trust() -> ssl.SSLContext:
    """Return the TLS context that trusts the system's certificate authorities.

    All connections share it, as its creation takes a tenth of a second. `SSL_CERT_FILE` and `SSL_CERT_DIR`
    name other certificates.
    """
    return _context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(maxsize=4)
def _context(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()  # which reads the two variables
