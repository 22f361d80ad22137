"""A raw JSON-RPC client for servers that speak MCP over stdio: no SDK between a test and the wire.

Tests get it as the fixture `stdio_server` (tests/conftest.py), which ends every process with the test.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias, cast

__all__ = ["Era", "JsonRpcError", "StdioServer"]

Era: TypeAlias = Literal["legacy", "modern"]

_VERSIONS: dict[Era, str] = {"legacy": "2025-11-25", "modern": "2026-07-28"}
_CLIENT = {"name": "loom-tests", "version": "1"}


class JsonRpcError(Exception):
    """The server answered a request with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: object = error.get("data")


class StdioServer:
    """A server process and the connection to it.

    Every line on its standard output must be a JSON-RPC message: the first one that is not is raised as an
    AssertionError by whatever is called next.

    Attributes:
        process: the child; its standard error is read all the time.
        notifications: those received so far, oldest first.
        initialized: the result of `initialize`, or of `server/discover` for the modern era.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        era: Era = "legacy",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        connect: bool = True,
        timeout: float = 30.0,
    ) -> None:
        """Start a server.

        Args:
            command: program and arguments.
            era: which of the two protocols to open with.
            env: the whole environment, or None for that of the test.
            cwd: working directory.
            connect: open the connection right away.
            timeout: seconds that any wait may take.
        """
        self.era: Era = era
        self.timeout = timeout
        self.notifications: list[dict[str, Any]] = []
        self.initialized: dict[str, Any] = {}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=cwd
        )
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._answers: dict[int | str, dict[str, Any]] = {}
        self._violations: list[str] = []
        self._stderr: list[str] = []
        self._next_id = 0
        self._readers = [
            threading.Thread(target=read, daemon=True) for read in (self._read, self._read_stderr)
        ]
        for reader in self._readers:
            reader.start()
        if connect:
            self.connect()

    @property
    def stderr(self) -> str:
        """Return the server's log so far; complete once it has ended."""
        return "".join(self._stderr)

    def connect(self) -> dict[str, Any]:
        """Open the connection in the chosen era."""
        if self.era == "modern":
            self.initialized = self.request("server/discover")
        else:
            params = {"protocolVersion": _VERSIONS["legacy"], "capabilities": {}, "clientInfo": _CLIENT}
            self.initialized = self.request("initialize", params)
            self.notify("notifications/initialized")
        return self.initialized

    def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Send a request and wait for its result.

        Raises:
            JsonRpcError: the server answered with an error.
            AssertionError: no answer came in time, the server ended, or it wrote something else.
        """
        return self.wait(self.send_request(method, params), timeout=timeout)

    def send_request(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a request and return its id without waiting."""
        self._next_id += 1
        body = dict(params or {})
        if self.era == "modern":
            envelope = {
                "io.modelcontextprotocol/protocolVersion": _VERSIONS["modern"],
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": _CLIENT,
            }
            body["_meta"] = {**envelope, **body.get("_meta", {})}
        self._send({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": body})
        return self._next_id

    def wait(self, request_id: int | str, *, timeout: float | None = None) -> dict[str, Any]:
        """The result of a request sent before; raises as `request` does."""
        self._pump(lambda: request_id in self._answers, f"answer to request {request_id}", timeout)
        answer = self._answers.pop(request_id)
        if "error" in answer:
            raise JsonRpcError(answer["error"])
        return answer["result"]

    def wait_for_notification(self, method: str, *, timeout: float | None = None) -> dict[str, Any]:
        """The first notification of a method, received already or soon."""

        def matching() -> list[dict[str, Any]]:
            return [message for message in self.notifications if message["method"] == method]

        self._pump(lambda: bool(matching()), f"notification {method}", timeout)
        return matching()[0]

    def call(self, tool: str, timeout: float | None = None, /, **arguments: object) -> dict[str, Any]:
        """Call a tool; the result may be one with `isError`."""
        return self.request("tools/call", {"name": tool, "arguments": arguments}, timeout=timeout)

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        self._send(message if params is None else {**message, "params": dict(params)})

    def send_raw(self, data: bytes) -> None:
        """Write bytes as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def close_input(self) -> int:
        """End the server's input, as a client does to stop it, and return its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.wait_for_exit()

    def terminate(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, leaving the input open, and return the exit code."""
        self.process.send_signal(number)
        return self.wait_for_exit()

    def wait_for_exit(self, *, timeout: float | None = None) -> int:
        """The exit code, once all that the server has written is read and found valid."""
        code = self.process.wait(timeout or self.timeout)
        for reader in self._readers:
            reader.join(timeout or self.timeout)
        self._check()
        return code

    def close(self) -> None:
        """End the server in any case."""
        assert self.process.stdin is not None
        self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join(self.timeout)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):  # what was not written any more is of no interest
                pipe.close()

    def _send(self, message: dict[str, Any]) -> None:
        self.send_raw(json.dumps(message, ensure_ascii=False).encode() + b"\n")

    def _pump(self, done: Callable[[], bool], awaited: str, timeout: float | None) -> None:
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while not done():
            try:
                message = self._messages.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {awaited} in time; the server's log:\n{self.stderr}") from None
            self._check()
            if message is None:
                self._messages.put(None)
                raise AssertionError(f"the server ended before the {awaited}; its log:\n{self.stderr}")
            if "method" in message:
                self.notifications.append(message)
            else:
                self._answers[message["id"]] = message
        self._check()

    def _check(self) -> None:
        assert not self._violations, f"not JSON-RPC on standard output: {self._violations}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = _message(line)
            if message is None:
                self._violations.append(repr(line))
                self._messages.put({"method": "violation"})
            else:
                self._messages.put(message)
        self._messages.put(None)

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._stderr.append(line.decode("utf-8", "replace"))


def _message(line: bytes) -> dict[str, Any] | None:
    """A notification, request or answer as JSON-RPC 2.0 defines them, or None."""
    try:
        value: object = json.loads(line.decode("utf-8"))
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    message = cast("dict[str, Any]", value)
    if message.get("jsonrpc") != "2.0":
        return None
    if "method" in message:
        return message if isinstance(message["method"], str) else None
    answered = ("result" in message) != ("error" in message)
    return message if answered and isinstance(message.get("id"), int | str) else None
