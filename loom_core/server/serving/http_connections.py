"""HTTP connections that do not wait for ever for a client that says nothing, or very slowly.

uvicorn itself limits how long a connection may be idle between two requests, but not how long the first one,
or the head of any, may take to arrive. Bodies of requests are the gate's, see `http_gate`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["timed_protocol"]

_log = logging.getLogger(__name__)


def timed_protocol(head_seconds: float, on_timeout: Callable[[], None]) -> type[H11Protocol]:
    """The protocol that uvicorn is to speak.

    Args:
        head_seconds: how long the head of a request may take, and what is left of a request that is refused
            already.
        on_timeout: called for each connection that is closed because of it.
    """

    class TimedProtocol(H11Protocol):
        """Closes a connection on which no request is being served, and none arrives in time."""

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
