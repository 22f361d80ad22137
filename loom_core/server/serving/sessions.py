"""Which sessions of the handshake era are open, and whose they are.

The SDK keeps the sessions themselves, refuses another caller's, limits all together and ends idle ones; but
it does not tell how many one caller has. Here they are counted by what is seen of them from outside.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["SessionCount"]


@dataclass(slots=True)
class _Session:
    owner: str
    seen: float
    running: int = 0


class SessionCount:
    """Counts sessions.

    Args:
        idle_seconds: a session in which nothing has run for so long is over, by the SDK's rule.
        clock: monotonic seconds.
    """

    def __init__(self, idle_seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._idle = idle_seconds
        self._clock = clock
        self._sessions: dict[str, _Session] = {}
        self._opening = Counter[str]()

    def __len__(self) -> int:
        self._drop_idle()
        return len(self._sessions)

    def of(self, owner: str) -> int:
        """How many sessions somebody has."""
        self._drop_idle()
        open_now = sum(session.owner == owner for session in self._sessions.values())
        return open_now + self._opening[owner]

    def has(self, owner: str, id_: str) -> bool:
        """Whether a session is open and somebody's own."""
        self._drop_idle()
        session = self._sessions.get(id_)
        return session is not None and session.owner == owner

    @contextmanager
    def opening(self, owner: str) -> Generator[Callable[[str], None]]:
        """The time in which somebody may be opening a session, which counts as one.

        Yields:
            What to call with the session's id as soon as it has begun: from then on it counts by itself.
        """
        self._opening[owner] += 1
        waiting = [owner]

        def begun(id_: str) -> None:
            self._opening[waiting.pop()] -= 1
            self._sessions[id_] = _Session(owner, self._clock())

        try:
            yield begun
        finally:
            for each in waiting:
                self._opening[each] -= 1
            self._opening += Counter()  # drops what is zero

    def began(self, id_: str) -> None:
        """A request of a session has begun."""
        if session := self._sessions.get(id_):
            session.running += 1

    def ended(self, id_: str) -> None:
        """A request of a session has ended."""
        if session := self._sessions.get(id_):
            session.running -= 1
            session.seen = self._clock()

    def closed(self, id_: str) -> None:
        """A session is over."""
        self._sessions.pop(id_, None)

    def _drop_idle(self) -> None:
        last = self._clock() - self._idle
        self._sessions = {
            id_: session for id_, session in self._sessions.items() if session.running or session.seen > last
        }
