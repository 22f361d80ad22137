"""What a person types at the terminal, while other things go on."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque

__all__ = ["Keyboard"]

_PIECE = 65_536


class Keyboard:
    """Reads lines of standard input in a thread that ends with the process.

    A line is read when one is wanted, also if the last wait for one was given up: then it is that line.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: deque[str] = deque()
        self._came = asyncio.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    @property
    def attended(self) -> bool:
        """Whether there is a person: both what they type and what they are shown is a terminal's."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    async def line(self, prompt: str = "") -> str | None:
        """The next line without its end; None when there is no more."""
        if self._thread is None:
            # Not by anyio: a thread that waits for a key must not keep the program from ending.
            self._thread = threading.Thread(target=self._read, name="keyboard", daemon=True)
            self._thread.start()
        if prompt:
            sys.stderr.write(prompt)
            sys.stderr.flush()
        while not self._lines and not self._ended:
            self._came.clear()
            await self._came.wait()
        return self._lines.popleft() if self._lines else None

    def forget(self) -> None:
        """Drop what was typed before it was asked for."""
        self._lines.clear()

    def _read(self) -> None:
        # Not by sys.stdin: its lock would be held when the interpreter ends.
        rest = b""
        while piece := _read_some():
            *lines, rest = (rest + piece).split(b"\n")
            self._tell([line.decode("utf-8", "replace").rstrip("\r") for line in lines], ended=False)
        self._tell([rest.decode("utf-8", "replace")] if rest else [], ended=True)

    def _tell(self, lines: list[str], *, ended: bool) -> None:
        def take() -> None:
            self._lines += lines
            self._ended = self._ended or ended
            self._came.set()

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(take)


def _read_some() -> bytes:
    try:
        return os.read(sys.stdin.fileno(), _PIECE)
    except OSError:
        return b""
