"""The pieces of an answer as events: not one for each piece, but some twenty a second."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from loom_core.errors import RecordError

if TYPE_CHECKING:
    from loom_core.agent.record import RunRecord

__all__ = ["Deltas"]

_SECONDS = 0.05
_LONGEST = 4000  # characters after which is not waited


class Deltas:
    """Gathers what a model writes, and writes it down at most every 50 ms, and at the end.

    Attributes:
        text: all of the answer's text until now.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._kind: Literal["text", "reasoning"] = "text"
        self._pieces: list[str] = []
        self._length = 0
        self._timer: asyncio.TimerHandle | None = None
        self._all: list[str] = []

    @property
    def text(self) -> str:
        """All of the answer's text until now."""
        return "".join(self._all)

    def add(self, kind: Literal["text", "reasoning"], piece: str) -> None:
        """The model writes more."""
        if kind != self._kind:
            self.flush()
            self._kind = kind
        if kind == "text":
            self._all.append(piece)
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length > _LONGEST:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SECONDS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        with suppress(RecordError):  # the loop meets it with the next thing that it writes down
            self.flush()

    def flush(self) -> None:
        """Write down what is gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pieces:
            written = "".join(self._pieces)
            self._pieces.clear()
            self._length = 0
            (self._record.text if self._kind == "text" else self._record.reasoning)(written)
