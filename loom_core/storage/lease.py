"""Leases in a database: who holds one has to renew it, and who is not heard of for its length has lost it."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from loom_core.errors import LoomError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["IS_HELD", "LEASE_SECONDS", "SERVER_TIME", "LeaseRenewal"]

_log = logging.getLogger(__name__)

LEASE_SECONDS = 10.0
"""Default length: a holder that is not heard of for so long counts as dead."""

SERVER_TIME = "EXTRACT(EPOCH FROM clock_timestamp())"
"""The time by the clock of a PostgreSQL server, which is the same for all, in SQL."""

IS_HELD = f"expires BETWEEN {SERVER_TIME} AND {SERVER_TIME} + 2 * ?"
"""Whether a lease of a length, the parameter, is held, in SQL: one with more time left than any lease has was
renewed before the clock was put back, and its holder may be dead."""

_RENEWALS = 4  # within a lease


class LeaseRenewal:
    """Thread that renews a lease until `stop`.

    Args:
        renew: renews it; returns False once it is lost, and raises LoomError where that cannot be known. It
            must not wait for the turns of other writers.
        seconds: the length of the lease.
        what: the lease, for people, as the beginning of a sentence.
    """

    def __init__(self, renew: Callable[[], bool], *, seconds: float, what: str) -> None:
        self._renew = renew
        self._seconds = seconds
        self._what = what
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loom-lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing, and wait for a renewal that is under way."""
        self._stopping.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        failure = ""
        while not self._stopping.wait(self._seconds / _RENEWALS):
            try:
                if not self._renew():
                    return
            except LoomError as error:
                if failure != str(error):  # it is retried many times
                    _log.warning("%s is not renewed: %s", self._what, error)
                failure = str(error)
            else:
                failure = ""
