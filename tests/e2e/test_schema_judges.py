"""Tool schemas of each server, checked by third-party linters: mcp-contract and mcp-assert."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.fork_server import starts_quickly

pytestmark = pytest.mark.slow

SERVERS = Path(__file__).parents[2] / "servers"
MODULES = {"agent": "loom_agent", "flow": "loom_flow", "kb": "loom_kb", "query": "loom_query"}
SEARCHES = ("kb", "query")  # what they say depends on what they hold, and they have two profiles
RECORDED = Path(__file__).with_name("recorded_server.py")

# What mcp-assert finds and we do not follow, by its rule.
DISREGARDED = {
    "E105": "takes the `cursor` of one tool for the answer of another",
    "E107": "takes tools that lead to one another for a loop",
    "W102": "wants words for arguments whose names say it: `limit`, `max_tokens`, `wait_seconds`, `action`",
    "W103": "wants an example of every text: each costs tokens at every request, and no mistake was seen",
    "W109": "wants examples of questions, which models do not need",
    "W110": "wants the description to repeat the names of the arguments, which the schema says",
    "W111": "wants descriptions of 500 characters; hosts take 2 KB, and ours carry the one example",
    "W115": "counts the schema of the answer, which no model is shown",
}

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run() -> Run:
    """Runs a script of another maker, from this environment or PATH."""

    def run(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        program = shutil.which(script, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        if program is None:
            pytest.skip(f"{script} is not installed")
        line = [program, *map(str, arguments)]
        if Path(program).parent == Path(sys.executable).parent:  # a script in Python
            line.insert(0, sys.executable)
            starts_quickly(program)
        return subprocess.run(line, capture_output=True, encoding="utf-8", timeout=120, check=False)

    return run


@pytest.fixture
def command(home: Path, stand_in: Callable[[list[str]], list[str]]) -> Callable[..., list[str]]:
    """How a server is started, with further options."""
    return lambda server, *more: stand_in([sys.executable, "-m", MODULES[server], "--home", str(home), *more])


@pytest.fixture
def promise(run: Run, tmp_path: Path) -> Callable[[str, str], Path]:
    """Return a function that gives mcp-contract the accepted contract of a server's profile."""

    def promise(server: str, profile: str) -> Path:
        file = tmp_path / f"{profile}.json"
        recorded = [sys.executable, "-S", RECORDED, SERVERS / server / "contract.json", profile]
        assert run("mcp-contract", "snapshot", "--quiet", "-f", file, "--", *recorded).returncode == 0
        return file

    return promise


@pytest.mark.parametrize("server", SEARCHES)
def test_mcp_contract_finds_the_promise_kept_with_content_or_without(
    server, run: Run, command, promise, loom_kb
):
    check = ("mcp-contract", "check", "-f", promise(server, "full"))
    kept = run(*check, "--strict", "--", *command(server))
    assert kept.returncode == 0, kept.stdout
    assert loom_kb("add", "-", stdin="# 青岛港\n\n青岛港的港长是李明。".encode()).returncode == 0
    kept = run(*check, "--", *command(server))
    assert kept.returncode == 0, kept.stdout


@pytest.mark.parametrize("server", ["agent", "flow"])
def test_mcp_contract_finds_the_promise_kept_that_depends_on_nothing(server, run: Run, command, promise):
    check = ("mcp-contract", "check", "-f", promise(server, "full"))
    kept = run(*check, "--strict", "--", *command(server))
    assert kept.returncode == 0, kept.stdout


@pytest.mark.parametrize("server", SEARCHES)
def test_mcp_contract_tells_a_promise_kept_from_one_that_is_broken(server, run: Run, command, promise):
    check = ("mcp-contract", "check", "-f", promise(server, "chatgpt"))
    kept = run(*check, "--strict", "--", *command(server, "--profile", "chatgpt"))
    assert kept.returncode == 0, kept.stdout
    if server == "query":
        return  # that it finds out what is broken is shown with one server
    broken = run(*check, "--", *command(server))
    assert broken.returncode == 1, broken.stdout
    assert "search" in broken.stdout


@pytest.mark.parametrize(
    ("server", "options", "tools"),
    [
        ("agent", (), 8),
        ("flow", (), 6),
        ("kb", (), 8),
        ("kb", ("--allow-urls",), 8),
        ("kb", ("--profile", "chatgpt"), 2),
        ("query", (), 4),
        ("query", ("--profile", "chatgpt"), 2),
    ],
)
def test_mcp_assert_finds_nothing_to_mend(server, options, tools, run: Run, command):
    rules = ",".join(DISREGARDED)
    lint = ("lint", "--json", "--strict", "--skip-rules", rules)
    judged = run("mcp-assert", *lint, "--server", " ".join(command(server, *options)))
    found: dict[str, Any] = json.loads(judged.stdout)
    assert not found["findings"], "\n".join(
        f"{f['tool']}: {f['code']}: {f['message']}" for f in found["findings"]
    )
    assert judged.returncode == 0, judged.stderr
    assert found["tools"] == tools
