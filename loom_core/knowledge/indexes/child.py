"""A function run in a child process with a deadline: for engines that may hang, crash or eat memory."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from loom_core.knowledge.indexes.damage import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ChildError", "Json", "answer", "run_in_child"]

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""What can go to a child and come back."""

# -I keeps the child from the user's environment; the parent's own path makes it find the same packages.
_BOOTSTRAP = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from loom_core.knowledge.indexes.child import answer; answer()"
)


class _Request(TypedDict):
    module: str
    name: str
    arguments: Mapping[str, Json]
    memory: int | None


class ChildError(Exception):
    """The child gave no result; the message is one line that says why."""


def run_in_child(
    function: Callable[..., object],
    arguments: Mapping[str, Json],
    *,
    timeout: float,
    memory: int | None = None,
) -> object:
    """Call a module's function with JSON-able keyword arguments in a fresh Python process.

    Args:
        function: a function at the top level of a module that can be imported.
        arguments: its keyword arguments.
        timeout: seconds until the child is killed.
        memory: bytes of address space the child may take, where the system can limit it.

    Returns:
        What the function returned, as JSON has it.

    Raises:
        ChildError: the function raised, or the child hung, crashed or was killed.
    """
    request = {
        "module": function.__module__,
        "name": function.__name__,
        "arguments": arguments,
        "memory": memory,
    }
    command = [sys.executable, "-I", "-c", _BOOTSTRAP, json.dumps(sys.path)]
    try:
        done = subprocess.run(
            command, input=json.dumps(request).encode(), capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise ChildError(f"no answer within {timeout:g} s") from None
    if done.returncode:
        raise ChildError(_ending(done.returncode, done.stderr.decode(errors="replace")))
    try:
        reply = json.loads(done.stdout)
    except ValueError:
        raise ChildError("the child ended without an answer") from None
    if "error" in reply:
        raise ChildError(reply["error"])
    return reply["result"]


def answer() -> None:
    """The child's side: one request from stdin, one reply to stdout, anything else to stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as reply:
        os.dup2(2, 1)  # what an engine prints must not get into the reply
        reply.write(json.dumps(_reply(json.load(sys.stdin))))


def _reply(request: _Request) -> dict[str, object]:
    try:
        if request["memory"] is not None:
            _limit_memory(request["memory"])
        function = getattr(importlib.import_module(request["module"]), request["name"])
        return {"result": function(**request["arguments"])}
    except BaseException as error:  # noqa: BLE001 - the outermost handler; a Rust panic is a BaseException
        return {"error": f"{type(error).__name__}: {first_line(error)}"}


def _limit_memory(size: int) -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _ending(code: int, stderr: str) -> str:
    if code < 0:
        return f"the child was killed by {signal.Signals(-code).name}"
    last = stderr.strip().splitlines()[-1:]
    return f"the child ended with exit code {code}{': ' + last[0][:300] if last else ''}"
