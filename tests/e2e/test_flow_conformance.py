"""loom-flow-server passes what the official suite and the Inspector ask of every server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals"),
]

_HERE = Path(__file__).parent
_COMMAND = [sys.executable, "-m", "loom_flow"]

# They call diagnostic tools of the suite, which only a server of fixtures has.
_OF_FIXTURES = frozenset(
    {
        "sep-2575-server-rejects-undeclared-capability",
        "sep-2575-missing-capability-http-400",
        "sep-2575-server-sends-tools-list-changed-on-subscription",
        "sep-2575-server-sends-prompts-list-changed-on-subscription",
    }
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    command = [*_COMMAND, "serve", "--http", "--port", "0", "--home", str(home)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8")
    assert process.stderr is not None
    try:
        yield next(line for line in process.stderr if line.startswith("loom-flow-server serves ")).split()[2]
    finally:
        process.terminate()
        rest = process.stderr.read()
        process.stderr.close()
        assert process.wait(30) == 0, rest


@pytest.fixture
def generic(load: Callable[[Path], ModuleType]):
    return load(_HERE.parent / "fixtures" / "conformance.py").GENERIC


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_it_passes_the_scenarios_that_need_no_fixture(url, suite, generic, revision, tmp_path):
    _, found = suite.run(url, revision, tmp_path)
    objections = {name: found[name].objections(without=_OF_FIXTURES) for name in generic[revision]}
    assert {name: lines for name, lines in objections.items() if lines} == {}
    assert [name for name in generic[revision] if not found[name].passed] == []


def test_every_host_can_use_the_schemas(home, load):
    nodejs = load(_HERE.parent / "fixtures" / "node.py")
    program = nodejs.node(least=(22, 19))
    inspector = nodejs.installed(_HERE / "typescript") / "node_modules" / ".bin" / "mcp-inspector"
    command = [*_COMMAND, "serve", "--home", str(home)]
    options = ["--method", "tools/list", "--strict", "--protocol-era", "modern", "--format", "json", "-q"]
    done = subprocess.run(
        [program, str(inspector), "--cli", *command, *options],
        capture_output=True, encoding="utf-8", env={**os.environ, "HOME": str(home)}, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = [tool["name"] for tool in json.loads(done.stdout)["result"]["tools"]]
    assert names == ["flow_chat", "flow_run", "flow_resume", "flow_list", "flow_explain", "flow_status"]
    assert "Warning: tool" not in done.stderr
    assert "Error: tool" not in done.stderr
