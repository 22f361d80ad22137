"""Clients in TypeScript, of both generations of the SDK, that talk with `loom-flow-server` in Chinese."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures import node as nodejs

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="needs npm")]

_FLOWS = [sys.executable, "-m", "loom_flow"]
_HERE = Path(__file__).parent
_SCRIPTS = _HERE / "typescript"
_EXAMPLE = _HERE.parents[1] / "examples" / "flow_company"
_VERSIONS = {"v1": None, "v2": "2026-07-28"}  # the first generation, of 2025-11-25, does not tell


@pytest.fixture
def command(home: Path, company: str) -> list[str]:
    """Return the command that starts a server of the example's flows."""
    home.mkdir()
    text = (_EXAMPLE / "flow.json").read_text(encoding="utf-8").replace("http://127.0.0.1:8787", company)
    (home / "flow.json").write_text(text, encoding="utf-8")
    return [*_FLOWS, "serve", "--home", str(home)]


@pytest.fixture
def seen_by() -> Callable[..., dict[str, Any]]:
    """Return a function that runs a client and returns its observations."""

    def seen(*arguments: str) -> dict[str, Any]:
        folder = nodejs.installed(_SCRIPTS)
        for name in ("connect.mjs", "chat_flow.mjs"):
            shutil.copy(_SCRIPTS / name, folder)
        line = [nodejs.node(least=(20, 0)), str(folder / "chat_flow.mjs"), *arguments]
        done = subprocess.run(line, capture_output=True, encoding="utf-8", timeout=90, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return seen


@pytest.mark.parametrize(("generation", "transport"), [("v1", "http"), ("v2", "stdio")])
def test_a_client_in_typescript_talks_is_asked_and_gets_done_what_it_said(
    generation: str,
    transport: str,
    command: list[str],
    seen_by: Callable[..., dict[str, Any]],
    effects: Callable[[], list[str]],
    served: Callable[..., AbstractContextManager[str]],
    stand_in: Callable[[list[str]], list[str]],
) -> None:
    if transport == "stdio":
        seen = seen_by(generation, transport, *stand_in(command))
    else:
        with served(command, "loom-flow-server") as url:
            seen = seen_by(generation, transport, url)
    assert seen.get("version") == _VERSIONS[generation]
    assert {"flow_chat", "flow_run", "flow_status", "order_status"} <= {*seen["tools"]}
    *before, done = seen["said"]
    assert [each["status"] for each in before] == ["input_required"] * 3
    assert "从哪天开始" in before[0]["text"]
    assert "2027年3月1日（周一） 起 3 天年假" in before[1]["text"]
    assert "2027年3月1日（周一） 起 2 天年假" in before[2]["text"]
    assert done["status"] == "completed"
    assert effects() == ["leave", "notification"], "once, after the last word"
    assert "There is no flow '没有'" in seen["refused"]
    (question,) = seen["asked"]
    assert question
    assert seen["order"]["status"] == "completed"
    assert seen["order"]["structured"] == {"status": "shipped"}
