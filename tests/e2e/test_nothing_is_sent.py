"""Loom by default, in an empty home and outside CI: it writes to its own folder only and reaches no network.

Some dependencies report to their makers unless `CI` or a variable of theirs is set, so none is set here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.fixtures.network_guard import AuditHook, NetworkGuard, Strace, network_guard

if TYPE_CHECKING:
    from tests.e2e.jsonrpc import StdioServer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="servers are stopped by POSIX signals here")

_PASSED_ON = ("LANG", "LC_ALL", "PATH", "TMPDIR")
_QUESTION = "谁批准了预算？"
_OUTSIDE = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(server.getsockname()).close()
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9))  # which sends nothing
except OSError:
    pass
"""


class _User:
    """A user who has just installed Loom: an empty home, and a few variables."""

    def __init__(self, folder: Path, guard: NetworkGuard) -> None:
        self.home = folder / "安娜"
        self.home.mkdir()
        self.guard = guard
        self.environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        self.environment |= {"HOME": str(self.home), "PYTHONIOENCODING": "utf-8", **guard.environment}

    def guarded(self, module: str, *arguments: str | Path) -> list[str]:
        return self.guard.command([sys.executable, "-m", module, *map(str, arguments)])

    def runs(self, module: str, *arguments: str | Path, said: str = "") -> str:
        done = subprocess.run(
            self.guarded(module, *arguments),
            input=said, env=self.environment, cwd=self.home,
            capture_output=True, text=True, encoding="utf-8", timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def starts(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.guarded(module, *arguments),
            env=self.environment, cwd=self.home,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, encoding="utf-8",
        )  # fmt: skip

    def files_outside_loom(self) -> set[str]:
        files = {path.relative_to(self.home) for path in self.home.rglob("*") if not path.is_dir()}
        return {str(file) for file in files if file.parts[0] != ".loom"}


def _called_over_http(url: str, call: dict[str, Any]) -> str:
    capabilities = {"io.modelcontextprotocol/clientCapabilities": {}}
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", **capabilities}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**call, "_meta": meta}}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28"}
    headers |= {"Mcp-Method": "tools/call", "Mcp-Name": call["name"]}
    answer = httpx2.post(url, json=body, headers=headers, timeout=60.0)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]["content"][0]["text"]


@pytest.mark.parametrize("kind", [Strace, AuditHook])
def test_a_guard_records_what_leaves_the_machine_and_nothing_else(
    kind: type[NetworkGuard], tmp_path: Path
) -> None:
    if kind is Strace and not Strace.is_usable():
        pytest.skip("strace is not installed, or may not trace")
    guard = kind(tmp_path)
    subprocess.run(
        guard.command([sys.executable, "-c", _OUTSIDE]), env={**os.environ, **guard.environment}, check=True
    )
    [attempt] = guard.attempts()
    assert "192.0.2.1" in attempt


@pytest.mark.slow
def test_a_new_user_s_first_hour_sends_nothing_and_leaves_nothing_outside_loom_s_folder(
    tmp_path: Path,
    stdio_server: Callable[..., StdioServer],
    record_property: Callable[[str, object], None],
) -> None:
    (tmp_path / "trace").mkdir()
    (tmp_path / "笔记").mkdir()
    (tmp_path / "笔记" / "预算.md").write_text("预算由安娜·贝格于三月三日批准。", encoding="utf-8")
    user = _User(tmp_path, network_guard(tmp_path / "trace"))
    record_property("guard", user.guard.name)
    user.runs("loom_kb", "add", "--kb", "notes", tmp_path / "笔记")
    # Both servers stay up while the commands run: a dependency may wait before it reports.
    stdio = stdio_server(user.guarded("loom_kb"), era="modern", env=user.environment, timeout=60.0)
    question = {"name": "query", "arguments": {"query": _QUESTION}}
    assert "安娜" in stdio.request("tools/call", question)["content"][0]["text"]
    http = user.starts("loom_kb", "serve", "--http", "--port", "0")
    assert http.stderr is not None
    try:
        ready = next((line for line in http.stderr if line.startswith("loom-kb serves ")), "")
        assert ready, "the server ended before it served"
        assert "安娜" in _called_over_http(ready.split()[2], question)
        assert "安娜" in user.runs("loom_kb", "query", "--kb", "notes", _QUESTION)
        assert "Ada Lovelace" in user.runs("loom_kb", "demo")
        user.runs("loom_agent", "run", "--provider", "mock", "What time is it?")
        user.runs("loom_flow", "init")
        assert "回电" in user.runs("loom_flow", "chat", said="我想请三天假\n")
        assert stdio.close_input() == 0
    finally:
        if http.poll() is None:
            os.kill(user.guard.process_of(http), signal.SIGTERM)
        rest = http.stderr.read()
        http.stderr.close()
    assert http.wait(30) == 0, rest
    assert (user.files_outside_loom(), user.guard.attempts()) == (set(), []), f"seen by {user.guard.name}"
