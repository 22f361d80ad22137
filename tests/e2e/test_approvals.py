"""A tool of a server is approved once, in whatever way: at a terminal, by commands, beforehand, for flows."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_agent_terminal import Typist, at_terminal
from tests.fixtures.commands import run_command
from tests.unit.mcp_client.conftest import Listed, offered

__all__ = ["at_terminal"]

_ALLOW = {"action": "allow", "tool": "notes:keep"}
_GOAL = 'use notes__keep {"text": "灯塔"}'
_NEW = "not been approved yet"
_WAITS = 3

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def server(home: Path, tmp_path: Path) -> Listed:
    """The server `notes`, whose tool `keep` a rule allows."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    listed = Listed(tmp_path, "notes", offered("keep", "Keeps a note.", inputSchema=schema))
    home.mkdir()
    _configure(home, listed)
    profile = {"model": "mock", "permissions": [_ALLOW]}
    (home / "agent.json").write_text(json.dumps({"profiles": {"default": profile}}), encoding="utf-8")
    return listed


def _configure(home: Path, listed: Listed, **loom: Any) -> None:
    entry = listed.entry()
    entry["loom"].update(loom)
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry}}), encoding="utf-8")


@pytest.fixture
def run(home: Path) -> Run:
    """Runs a command where no one can be asked."""

    def run(*line: str) -> subprocess.CompletedProcess[str]:
        done = run_command(*line, "--home", home)
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    return run


def _goes_through(run: Run) -> bool:
    """Whether an agent does it all by itself."""
    done = run("loom_agent", "run", _GOAL)
    assert done.returncode in {0, _WAITS}, done.stderr
    return done.returncode == 0 and "灯塔" in done.stdout


def test_a_yes_at_the_terminal_is_kept_until_the_tool_changes(
    at_terminal: Callable[..., Typist], run: Run, server: Listed
) -> None:
    person = at_terminal("run", _GOAL)
    person.sees(_NEW)
    person.sees("[e]dit: ")
    person.types("y\n")
    person.sees("✓ notes:keep")
    assert person.ends() == 0

    assert _goes_through(run)

    server.offer(offered("keep", "Keeps a note, and sends it to us."))
    person = at_terminal("run", "use notes__keep")
    person.sees("have changed since it was approved")


def test_a_decision_by_a_command_is_kept(run: Run, server: Listed) -> None:
    waits = run("loom_agent", "run", _GOAL)
    assert waits.returncode == _WAITS
    decide = re.search(r"loom-agent-server runs decide (\S+ \S+ approve)", waits.stderr)
    assert decide is not None, waits.stderr
    assert run("loom_agent", "runs", "decide", *decide[1].split()).returncode == 0

    assert _goes_through(run)


def test_a_command_approves_beforehand_and_a_rule_for_a_trusted_server_needs_none(
    run: Run, home: Path, server: Listed
) -> None:
    assert not _goes_through(run)
    asked = run("loom_agent", "mcp", "approve", "notes:keep")
    assert (asked.returncode, "Keeps a note." in asked.stderr) == (1, True)
    assert not _goes_through(run)

    approved = run("loom_agent", "mcp", "approve", "notes", "--yes")
    assert (approved.returncode, approved.stdout) == (0, "notes:keep is approved as it is now.\n")
    assert _goes_through(run)
    audit = run("loom_agent", "audit", "show").stdout
    assert "approve" in audit

    assert run("loom_agent", "mcp", "approve", "--revoke", "notes").returncode == 0
    assert not _goes_through(run)
    _configure(home, server, trusted=True)
    assert _goes_through(run)


def test_an_operator_approves_for_flows_by_the_command_that_a_failed_run_names(
    run: Run, home: Path, server: Listed, caplog: pytest.LogCaptureFixture
) -> None:
    flow = {
        "flow_id": "note",
        "name": "记一下",
        "input_schema": {"type": "object", "properties": {"text": {"type": "string", "title": "内容"}}},
        "steps": [{"stepId": "keep", "tool": "notes:keep"}],
        "response": "记好了。",
    }
    text = json.dumps({"basic_settings": {"language": "zh"}, "flows": [flow]}, ensure_ascii=False)
    (home / "flow.json").write_text(text, encoding="utf-8")

    failed = run("loom_flow", "run", "note", "text=买牛奶")
    assert failed.returncode == 1
    assert "很抱歉，这项业务现在暂时办不了。" in failed.stdout
    status = json.loads(run("loom_flow", "runs", "--json").stdout)
    run_id = status["runs"][0]["run_id"]
    problem = json.loads(run("loom_flow", "status", run_id, "--json").stdout)["problem"]
    command = re.search(r"`loom-flow-server (mcp approve [^`]*)`", problem)
    assert command is not None, problem
    assert command[0] in caplog.text

    run_command("loom_flow", *shlex.split(command[1]), "--yes", check=True)

    again = run("loom_flow", "resume", run_id, "--retry")
    assert again.returncode == _WAITS
    assert "要我继续办理“记一下”吗？" in again.stdout
    done = run("loom_flow", "resume", run_id, "--approve")
    assert (done.returncode, "记好了。" in done.stdout) == (0, True)
