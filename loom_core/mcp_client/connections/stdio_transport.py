"""MCP over the standard input and output of a child process, as a transport of the SDK's client.

The SDK has such a transport; this one bounds what a child can make us keep, knows how the child ended and
what it said, tells who has asked what could not be sent, and needs no task between a call and the pipe.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio

from loom_core.mcp_client.connections.errors import ANSWER_BYTES, Fault, FaultError, Faults
from loom_core.mcp_client.connections.stdio_reader import StdioReader

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from mcp.shared.message import SessionMessage

    from loom_core.mcp_client.connections.process import ChildProcess

__all__ = ["StdioTransport"]

_COURTESY_SECONDS = 0.2  # that a notification waits for a child that does not read


class StdioTransport:
    """A child and the conversation with it. Enter and leave it in the same task.

    Attributes:
        faults: what the errors mean that it answers in the child's place.
        process: the child; None before it is started.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[ChildProcess]],
        *,
        on_end: Callable[[], None],
        server: str = "",
        discover_seconds: float = 2.5,
        answer_bytes: int = ANSWER_BYTES,
    ) -> None:
        """Prepare a conversation.

        Args:
            start: starts the child.
            on_end: called when nothing more will come from it.
            server: the server's id in the configuration, for traces.
            discover_seconds: `server/discover` counts as unknown to it if it is not answered by then. Old
                servers that ignore what they do not know are asked `initialize` next; so is one that is only
                slow to start, and it answers both.
            answer_bytes: the longest line that is kept.
        """
        self.faults = Faults()
        self.process: ChildProcess | None = None
        self._start = start
        self._on_end = on_end
        self._server = server
        self._discover_seconds = discover_seconds
        self._answer_bytes = answer_bytes
        self._tasks: TaskGroup | None = None
        self._reader: StdioReader | None = None

    async def __aenter__(self) -> tuple[Any, Any]:  # the SDK has no public names for its streams
        process = self.process = await self._start()
        # No wait between the start and the task group: a cancellation there would leave the child behind.
        tasks = self._tasks = anyio.create_task_group()
        await tasks.__aenter__()
        tasks.start_soon(process.read_log)
        tasks.start_soon(process.watch, self._on_end)
        reader = self._reader = StdioReader(
            process.output, faults=self.faults, on_end=self._on_end, most=self._answer_bytes
        )
        return reader, _Writer(reader, process, self._discover_seconds, self._server)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self.process is None or self._tasks is None:
            raise AssertionError("it was not entered")
        try:
            with anyio.CancelScope(shield=True):  # every wait in there has a limit
                await self.process.stop()
        finally:
            self._tasks.cancel_scope.cancel()
            ended = await self._tasks.__aexit__(kind, error, trace)
        return ended

    @property
    def pollution(self) -> bytes:
        """The beginning of the first line on standard output that is no message; empty if all are."""
        return self._reader.pollution if self._reader else b""


class _Writer:
    """What the child reads."""

    def __init__(
        self, reader: StdioReader, process: ChildProcess, discover_seconds: float, server: str
    ) -> None:
        self._reader = reader
        self._input = process.input
        self._discover_seconds = discover_seconds
        self._server = server

    async def send(self, item: SessionMessage) -> None:
        """Send a message. Its line is never torn: what is cancelled is the wait for the child to read.

        Raises:
            FaultError: a request cannot be sent any more: the child is gone.
            anyio.BrokenResourceError: another message cannot.
        """
        from mcp_types import JSONRPCNotification, JSONRPCRequest

        from loom_core.mcp_client.connections.tracing import told_stdio

        message = item.message
        line = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if isinstance(message, JSONRPCRequest):
            told_stdio(server=self._server)
            self._reader.expect(message, self._discover_seconds)
            try:
                await self._input.send(line)
            except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                self._reader.forget(message.id)
                raise FaultError(
                    Fault("connection", "has gone", ran="no", lost=True, passing=True)
                ) from error
            return
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._reader.forget((message.params or {}).get("requestId"))
        try:
            with anyio.move_on_after(_COURTESY_SECONDS):
                await self._input.send(line)
        except (OSError, anyio.ClosedResourceError) as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        """Nothing: the pipe is closed with the child."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
