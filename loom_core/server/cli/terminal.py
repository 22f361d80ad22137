"""Interactive terminal: input lines, Ctrl-C, and answers to a run's pending input.

`Keyboard` reads lines concurrently with other tasks; `Interrupts` handles Ctrl-C during a whole command, so
that none is lost and none ends the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import anyio
from anyio.abc import TaskStatus

from loom_core.knowledge.text.control_characters import escape_controls
from loom_core.runs.commands import ApprovalDecision, InputResponse
from loom_core.server.cli.console import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.runs.run import Pending

__all__ = ["Interrupted", "Interrupts", "Keyboard", "ask_at_terminal"]

_PIECE = 65_536  # bytes of what is typed ahead, at a time
T = TypeVar("T")


async def ask_at_terminal(
    keyboard: Keyboard, question: str, pending: Pending, *, by: str
) -> ApprovalDecision | InputResponse | None:
    """Ask the user about a run's pending input; None if they make no choice.

    Args:
        keyboard: reads the answer.
        question: the question.
        pending: the pending input of the run.
        by: name of the user, for the journal.
    """
    say(question)
    if pending.kind == "question":
        return await _read_response(keyboard, pending, by)
    every = "[a]ll of this tool, " if pending.for_run else ""
    choices = f"[y]es, {every}[n]o, [e]dit" if pending.kind == "approval" else "[y]es, [n]o"
    while True:
        said = await keyboard.line(f"{choices}: ")
        if said is None:
            return None
        match said.strip().lower():
            case "y" | "yes" | "是":
                return ApprovalDecision(id=pending.id, action="approve", by=by)
            case "a" | "all" | "全部" if pending.for_run:
                return ApprovalDecision(id=pending.id, action="approve", scope="run", by=by)
            case "n" | "no" | "否":
                reason = await keyboard.line("Why? (may be empty) ") or ""
                return ApprovalDecision(id=pending.id, action="deny", reason=reason.strip(), by=by)
            case "e" | "edit" if pending.kind == "approval":
                if (arguments := await _edit_arguments(keyboard, pending.arguments)) is not None:
                    return ApprovalDecision(id=pending.id, action="edit", arguments=arguments, by=by)
            case _:
                pass


async def _edit_arguments(keyboard: Keyboard, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
    say(json.dumps(dict(arguments), ensure_ascii=False))
    line = await keyboard.line("Arguments as JSON: ")
    return _object(line or "")


async def _read_response(keyboard: Keyboard, pending: Pending, by: str) -> InputResponse | None:
    properties = cast("Mapping[str, Mapping[str, Any]]", pending.schema.get("properties", {}))
    content: dict[str, Any] = {}
    if not properties:
        said = await keyboard.line("[y]es, [n]o: ")
        if said is None:
            return None
        agreed = said.strip().lower() in {"y", "yes", "是"}
        return InputResponse(id=pending.id, action="accept" if agreed else "decline", by=by)
    for name, part in properties.items():
        label = part.get("title") or part.get("description") or name
        choices = f" ({', '.join(map(str, part['enum']))})" if "enum" in part else ""
        said = await keyboard.line(f"{escape_controls(str(label))}{escape_controls(choices)}: ")
        if said is None:
            return None
        if said or name in pending.schema.get("required", ()):
            content[name] = _value(said, str(part.get("type", "string")))
    return InputResponse(id=pending.id, action="accept", content=content, by=by)


def _value(said: str, kind: str) -> object:
    """Convert typed text to the requested type, where possible."""
    if kind == "boolean":
        return said.strip().lower() in {"y", "yes", "true", "1", "是"}
    if kind in {"integer", "number"}:
        try:
            return int(said) if kind == "integer" else float(said)
        except ValueError:
            return said
    return said


def _object(text: str) -> Mapping[str, Any] | None:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        say(f"This is not valid JSON: {error}")
        return None
    if not isinstance(value, dict):
        say("Write an object in braces.")
        return None
    return cast("dict[str, Any]", value)


class Keyboard:
    """Reader of standard input in a daemon thread.

    After a cancelled wait for a line, the next wait gets that line.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: deque[str] = deque()
        self._came = asyncio.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    @property
    def is_interactive(self) -> bool:
        """Whether a person can answer: standard input and standard error are terminals."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    async def line(self, prompt: str = "") -> str | None:
        """Return the next line without its end; None at the end of input."""
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
        """Drop lines that were typed before a question."""
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


class Interrupted(Exception):  # noqa: N818 - nothing has gone wrong
    """The user pressed Ctrl-C during a wait."""


class Interrupts:
    """Handler of Ctrl-C at the terminal: `async with Interrupts.listen() as interrupts:`.

    On Windows there is no such handler: Ctrl-C ends the program.
    """

    def __init__(self) -> None:
        self._count = 0
        self._came = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def listen(cls) -> AsyncGenerator[Self]:
        """Listen for Ctrl-C in the block."""
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
        """Wait for Ctrl-C; return at once if it was pressed earlier and not handled yet."""
        while not self._count:
            self._came = anyio.Event()
            await self._came.wait()
        self._count -= 1

    async def unless(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run something that Ctrl-C cancels.

        Raises:
            Interrupted: Ctrl-C was pressed.
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
