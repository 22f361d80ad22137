"""What tools of other makers think of what loom-kb says of its tools: mcp-contract and mcp-assert."""

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

pytestmark = pytest.mark.slow

CONTRACT = Path(__file__).parents[2] / "servers" / "kb" / "contract.json"
RECORDED = Path(__file__).with_name("recorded_server.py")

# What mcp-assert finds and we do not follow, by its rule.
DISREGARDED = {
    "E105": "takes the `cursor` of one tool for the answer of another",
    "E107": "takes tools that lead to one another for a loop",
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
        return subprocess.run(
            [program, *map(str, arguments)], capture_output=True, encoding="utf-8", timeout=120, check=False
        )

    return run


@pytest.fixture
def server(home: Path) -> Callable[..., list[str]]:
    """The command of loom-kb with further options."""
    return lambda *more: [
        sys.executable,
        "-m",
        "loom_kb",
        "--home",
        str(home),
        "--embedder",
        "hashing",
        *more,
    ]


@pytest.fixture
def promise(run: Run, tmp_path: Path) -> Callable[[str], Path]:
    """What mcp-contract makes of what was accepted of a profile."""

    def promise(profile: str) -> Path:
        file = tmp_path / f"{profile}.json"
        recorded = [sys.executable, RECORDED, CONTRACT, profile]
        assert run("mcp-contract", "snapshot", "--quiet", "-f", file, "--", *recorded).returncode == 0
        return file

    return promise


def test_mcp_contract_finds_the_promise_kept_with_content_or_without(run: Run, server, promise, loom_kb):
    check = ("mcp-contract", "check", "-f", promise("full"))
    kept = run(*check, "--strict", "--", *server())
    assert kept.returncode == 0, kept.stdout
    assert loom_kb("add", "-", stdin="# 青岛港\n\n青岛港的港长是李明。".encode()).returncode == 0
    kept = run(*check, "--", *server())
    assert kept.returncode == 0, kept.stdout


def test_mcp_contract_tells_a_promise_kept_from_one_that_is_broken(run: Run, server, promise):
    check = ("mcp-contract", "check", "-f", promise("chatgpt"))
    assert run(*check, "--strict", "--", *server("--profile", "chatgpt")).returncode == 0
    broken = run(*check, "--", *server())
    assert broken.returncode == 1, broken.stdout
    assert "search" in broken.stdout


@pytest.mark.parametrize("options", [(), ("--allow-urls",), ("--profile", "chatgpt")], ids=" ".join)
def test_mcp_assert_finds_nothing_to_mend(options, run: Run, server):
    rules = ",".join(DISREGARDED)
    command = ("lint", "--json", "--strict", "--skip-rules", rules, "--server", " ".join(server(*options)))
    judged = run("mcp-assert", *command)
    found: dict[str, Any] = json.loads(judged.stdout)
    assert not found["findings"], "\n".join(
        f"{f['tool']}: {f['code']}: {f['message']}" for f in found["findings"]
    )
    assert judged.returncode == 0, judged.stderr
    assert found["tools"] == (2 if "chatgpt" in options else 7)
