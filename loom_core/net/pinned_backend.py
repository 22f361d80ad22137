"""Connect to the validated IP addresses, to prevent DNS rebinding."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import anyio
import httpcore2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom_core.net.ssrf_guard import SsrfGuard

__all__ = ["PinnedBackend"]

_SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]


class PinnedBackend(httpcore2.AsyncNetworkBackend):
    """Network backend with IP pinning: resolve once, check all addresses, connect to one of them.

    TLS and the `Host` header keep the host name. Nothing resolves it again.
    """

    def __init__(self, gate: SsrfGuard) -> None:
        self._gate = gate
        self._sockets = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - required by the interface
        local_address: str | None = None,
        socket_options: Iterable[_SocketOption] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to a host.

        Raises:
            NetError: it is not allowed.
            httpcore2.ConnectError: none of its addresses accepts a connection.
            httpcore2.ConnectTimeout: the connection timed out.
        """
        until = None if timeout is None else anyio.current_time() + timeout
        try:
            with anyio.fail_after(timeout):
                addresses = await self._gate.addresses(host, port)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout("looking up the name takes too long") from error
        failure: Exception | None = None
        for tried, address in enumerate(addresses):
            rest = None if until is None else (until - anyio.current_time()) / (len(addresses) - tried)
            try:
                return await self._sockets.connect_tcp(
                    str(address), port, rest, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore2.ConnectError("it has no address")
