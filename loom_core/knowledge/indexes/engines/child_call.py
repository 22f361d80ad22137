"""Run a function in a child process with a deadline: for engines that may hang, crash or leak memory."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from loom_core.errors import first_line
from loom_core.knowledge.child_process import child_command, describe_exit, limit_memory, lower_priority

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ChildCall", "ChildError", "Json", "answer", "main", "run_in_child"]

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""Values that can be passed to a child and returned by it."""

_GLANCE_SECONDS = 0.01  # shortest wait for the end of a child


class _Request(TypedDict):
    module: str
    name: str
    arguments: Mapping[str, Json]
    memory: int | None
    background: bool


class ChildError(Exception):
    """The child returned no result; the message is the reason, in one line."""


class ChildCall:
    """A call of a module's function in a fresh Python process, which ends with this one.

    For one thread at a time.

    Args:
        function: a function at the top level of a module that can be imported.
        arguments: its keyword arguments.
        timeout: seconds until the child is killed.
        memory: bytes of address space the child may take, where the system can limit it.
        background: whether the child runs with low priority.

    Raises:
        ChildError: no process can be started.
    """

    def __init__(
        self,
        function: Callable[..., object],
        arguments: Mapping[str, Json],
        *,
        timeout: float,
        memory: int | None = None,
        background: bool = False,
    ) -> None:
        request: _Request = {
            "module": function.__module__,
            "name": function.__name__,
            "arguments": arguments,
            "memory": memory,
            "background": background,
        }
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._overdue = False
        self._output: tuple[bytes, bytes] | None = None
        stdin, held = os.pipe()
        # Not a pipe of `subprocess`, which would close it on waiting: when this pipe closes, the child exits.
        self._held = os.fdopen(held, "wb", buffering=0)
        try:
            self._process = subprocess.Popen(
                child_command(__name__), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            self._held.close()
            raise ChildError(f"no process can be started: {first_line(error)}") from error
        finally:
            os.close(stdin)
        with suppress(BrokenPipeError):  # the child has ended; `result` reports how
            self._held.write(json.dumps(request).encode() + b"\n")

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def has_ended(self, *, wait: float = 0.0) -> bool:
        """Whether the child has ended; after the deadline it is killed.

        Args:
            wait: seconds that this may take.
        """
        if self._output is not None:
            return True
        left = self._deadline - time.monotonic()
        try:
            self._output = self._process.communicate(timeout=max(_GLANCE_SECONDS, min(wait, left)))
        except subprocess.TimeoutExpired:
            if time.monotonic() < self._deadline:
                return False
            self._overdue = True
            self.kill()
        self._held.close()
        return True

    def result(self) -> object:
        """Wait for the function; return its result, as parsed JSON.

        Raises:
            ChildError: the function raised, or the child hung, crashed or was killed.
        """
        while not self.has_ended(wait=self._timeout):
            pass
        output, errors = self._output or (b"", b"")
        if self._overdue:
            raise ChildError(f"no answer within {self._timeout:g} s")
        if self._process.returncode:
            raise ChildError(_describe_exit(self._process.returncode, errors.decode(errors="replace")))
        try:
            reply = json.loads(output)
        except ValueError:
            raise ChildError("the child ended without an answer") from None
        if "error" in reply:
            raise ChildError(reply["error"])
        return reply["result"]

    def kill(self) -> None:
        """End the child now, and wait until it has."""
        if self._output is None:
            self._process.kill()
            self._output = self._process.communicate()
            self._held.close()


def run_in_child(
    function: Callable[..., object],
    arguments: Mapping[str, Json],
    *,
    timeout: float,
    memory: int | None = None,
) -> object:
    """Call a module's function with JSON-serializable arguments in a fresh Python process, and wait.

    Args:
        function: as for `ChildCall`.
        arguments: as for `ChildCall`.
        timeout: seconds until the child is killed.
        memory: as for `ChildCall`.

    Returns:
        The function's result, as parsed JSON.

    Raises:
        ChildError: the function raised, or the child hung, crashed or was killed.
    """
    call = ChildCall(function, arguments, timeout=timeout, memory=memory)
    try:
        return call.result()
    finally:
        call.kill()


def main() -> None:
    """Serve one request from stdin, in the child; exit when the parent does."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    answer(request)


def answer(request: _Request) -> None:
    """Reply to one request on stdout; anything else that is printed goes to stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as reply:
        os.dup2(2, 1)  # output of an engine must not get into the reply
        reply.write(json.dumps(_reply(request)))


def _exit_with_parent() -> None:
    # Not sys.stdin, whose lock the interpreter needs to exit.
    while os.read(0, 1):
        pass
    os._exit(1)


def _reply(request: _Request) -> dict[str, object]:
    try:
        limit_memory(request["memory"])
        if request["background"]:
            lower_priority()
        function = getattr(importlib.import_module(request["module"]), request["name"])
        return {"result": function(**request["arguments"])}
    except BaseException as error:  # noqa: BLE001 - the outermost handler; a Rust panic is a BaseException
        return {"error": f"{type(error).__name__}: {first_line(error)}"}


def _describe_exit(code: int, stderr: str) -> str:
    last = stderr.strip().splitlines()[-1:] if code > 0 else []
    return f"the child {describe_exit(code)}{': ' + last[0][:300] if last else ''}"
