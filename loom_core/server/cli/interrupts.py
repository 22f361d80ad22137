"""Ctrl-C, heard from the beginning of a command to its end: none is lost, and none ends it unasked."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Self, TypeVar

import anyio
from anyio.abc import TaskStatus

__all__ = ["Interrupted", "Interrupts"]

T = TypeVar("T")


class Interrupted(Exception):  # noqa: N818 - nothing has gone wrong
    """The person pressed Ctrl-C while something else was waited for."""


class Interrupts:
    """Those of the person at the terminal: `async with Interrupts.heard() as interrupts:`.

    Where the system knows no signals (Windows), there are none: Ctrl-C ends the program.
    """

    def __init__(self) -> None:
        self._count = 0
        self._came = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def heard(cls) -> AsyncGenerator[Self]:
        """Hear them while the block lasts."""
        interrupts = cls()
        error: Exception | None = None
        async with anyio.create_task_group() as tasks:
            await tasks.start(interrupts._hear)
            try:
                yield interrupts
            except Exception as raised:  # noqa: BLE001 - the group would wrap it; it is raised below
                error = raised
            tasks.cancel_scope.cancel()
        if error is not None:
            raise error

    async def next(self) -> None:
        """Returns when Ctrl-C is pressed, or was and nobody has heeded it."""
        while not self._count:
            self._came = anyio.Event()
            await self._came.wait()
        self._count -= 1

    async def unless(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something that Ctrl-C breaks off.

        Raises:
            Interrupted: it did.
        """
        done: list[T] = []
        error: Exception | None = None
        async with anyio.create_task_group() as tasks:

            async def end() -> None:
                await self.next()
                tasks.cancel_scope.cancel()

            tasks.start_soon(end)
            try:
                done.append(await work())
            except Exception as raised:  # noqa: BLE001 - the group would wrap it; it is raised below
                error = raised
            tasks.cancel_scope.cancel()
        if error is not None:
            raise error
        if not done:
            raise Interrupted
        return done[0]

    async def _hear(self, *, task_status: TaskStatus[None]) -> None:
        try:
            receiver = anyio.open_signal_receiver(signal.SIGINT)
            with receiver as signals:
                task_status.started()
                async for _ in signals:
                    self._count += 1
                    self._came.set()
        except NotImplementedError:
            task_status.started()
