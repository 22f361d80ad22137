from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.unit.server.mcp_cli.verbs import Terminal

pytestmark = pytest.mark.slow


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def test_what_answers_and_what_does_not_is_told_with_a_remedy(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    servers = {
        "kb": {
            "command": sys.executable,
            "args": ["-m", "loom_kb", "serve", "--home", str(terminal.home)],
            "loom": {"start_seconds": 60},
        },
        "gone": {"command": str(terminal.folder / "no-such-program")},
        "dies": {"command": sys.executable, "args": ["-c", "import sys; sys.exit('没有数据库')"]},
        "unset": {"command": "x", "env": {"K": "${NOT_SET}"}},
        "off": {"command": "x", "disabled": True},
    }
    terminal.home.mkdir(parents=True)
    terminal.file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    report = terminal.mcp("test", "--all")
    assert report.code == 1
    found = {each["name"]: each for each in report.data["servers"]}
    assert found.keys() == {"kb", "gone", "dies", "unset"}
    assert {name: each["state"] for name, each in found.items()} == {
        "kb": "ready", "gone": "failed", "dies": "failed", "unset": "failed",
    }  # fmt: skip
    assert found["kb"]["tools"] == 8
    assert (found["kb"]["protocol"], found["kb"]["era"]) == ("2026-07-28", "modern")
    assert "没有数据库" in found["dies"]["problem"] + found["dies"]["advice"]
    assert "NOT_SET" in found["unset"]["problem"]
    assert found["gone"]["advice"]
    line = next(line for line in report.lines if line.startswith("kb  ready in "))
    assert "8 tools  MCP 2026-07-28 (modern)  loom-kb" in line

    report = terminal.mcp("test", "kb")
    assert (report.code, [each["name"] for each in report.data["servers"]]) == (0, ["kb"])


def test_a_project_that_is_not_trusted_is_no_failure_but_is_told(terminal: Terminal) -> None:
    terminal.project.mkdir()
    (terminal.project / ".mcp.json").write_text('{"mcpServers": {"p": {"command": "x"}}}', encoding="utf-8")
    report = terminal.mcp("test", "--all")
    assert (report.code, report.lines) == (0, [])
    assert "'p' was not tested" in report.notes[0]
    assert terminal.mcp("test", "p").code == 1


def test_a_server_that_does_not_exist_is_a_failure(terminal: Terminal) -> None:
    report = terminal.mcp("test", "nothing")
    assert (report.code, report.lines[0]) == (1, "nothing  FAILED  There is no server 'nothing'.")
