"""Listener for commits in a PostgreSQL database, by LISTEN and NOTIFY."""

from __future__ import annotations

import logging
import secrets
import selectors
import socket
import threading
from typing import TYPE_CHECKING

from loom_core.errors import LoomError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom_core.storage.postgres_pool import PostgresLine

__all__ = ["CommitListener"]

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 5.0


class CommitListener:
    """Thread that listens on a channel, over a connection of its own, until `close`.

    Notifications are no more than hints: they are lost with the connection, and a pooler such as PgBouncer in
    its transaction mode lets none through. So who waits for them has to look from time to time.

    Args:
        connect: returns a new connection.
        notify: sends a notification to the channel over another connection: in a pooler, the same one could
            get it although it gets no others.
        channel: the channel.
        heard: called after one or more notifications, and after a lost connection was replaced.

    Attributes:
        hears: whether notifications arrive now: the listener has got one that it had sent itself.
    """

    def __init__(
        self,
        connect: Callable[[], PostgresLine],
        notify: Callable[[str], object],
        channel: str,
        heard: Callable[[], None],
    ) -> None:
        self.hears = False
        self._connect = connect
        self._notify = notify
        self._channel = channel
        self._heard = heard
        self._stopped, self._stop = socket.socketpair()
        threading.Thread(target=self._run, name="loom-listen", daemon=True).start()

    def close(self) -> None:
        """End soon, and close the connection."""
        self._stop.close()

    def _run(self) -> None:
        with self._stopped:
            while not self._is_stopped_within(0):
                try:
                    self._listen()
                except LoomError as error:
                    _log.info("no notifications of %s for now: %s", self._channel, error)
                self.hears = False
                if self._is_stopped_within(_RETRY_SECONDS):
                    return

    def _listen(self) -> None:
        import psycopg

        line = self._connect()
        connection, own = line.connection, secrets.token_hex(8)
        try:
            connection.execute(f'LISTEN "{self._channel}"'.encode())
            self._notify(own)
            while True:
                payloads = {notice.payload for notice in connection.notifies(timeout=0)}
                self.hears = self.hears or own in payloads
                if payloads:
                    self._heard()
                if self._is_stopped_within(None, connection.fileno()):
                    return
        except psycopg.Error as error:
            _log.info("no notifications of %s for now: %s", self._channel, first_line(error))
        finally:
            line.close()

    def _is_stopped_within(self, seconds: float | None, *others: int) -> bool:
        """Wait for the end, for something to read elsewhere, or a time; return whether it is the end."""
        with selectors.DefaultSelector() as selector:
            for each in (self._stopped, *others):
                selector.register(each, selectors.EVENT_READ)
            return any(key.fileobj is self._stopped for key, _ in selector.select(seconds))
