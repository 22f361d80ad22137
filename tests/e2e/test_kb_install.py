"""`loom-kb install`, `uninstall` and `install --print` as a person runs them."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from tests.e2e.conftest import RunCommand
    from tests.e2e.jsonrpc import StdioServer


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """The home of a user with a Chinese name."""
    home = tmp_path / "李明"
    (home / ".cursor").mkdir(parents=True)
    return home


@pytest.fixture
def run(loom_kb: RunCommand, user: Path) -> Callable[..., CompletedProcess[bytes]]:
    """Runs a command of this user."""

    def command(*arguments: str | Path, **environment: str) -> CompletedProcess[bytes]:
        own = {"HOME": str(user), "USERPROFILE": str(user), "APPDATA": str(user), "XDG_CONFIG_HOME": ""}
        return loom_kb(*arguments, env={**own, "PYTHONUTF8": "1", **environment})

    return command


def _entry(user: Path) -> dict[str, Any]:
    return json.loads((user / ".cursor" / "mcp.json").read_bytes())["mcpServers"]["loom-kb"]


@pytest.mark.parametrize(
    ("served", "tools"), [((), 8), (("--", "--profile", "chatgpt"), 2)], ids=["full", "chatgpt"]
)
def test_what_is_installed_starts_the_server(
    served: tuple[str, ...],
    tools: int,
    run: Callable[..., CompletedProcess[bytes]],
    stdio_server: Callable[..., StdioServer],
    user: Path,
    home: Path,
) -> None:
    documents = user / "文档"
    documents.mkdir()
    done = run("install", "cursor", "--root", documents, "--kb", "产品", *served)
    assert done.returncode == 0, done.stderr
    assert f"'loom-kb' added to Cursor: {user / '.cursor' / 'mcp.json'}" in done.stdout.decode()
    entry = _entry(user)
    assert Path(entry["command"]).is_absolute()
    first = entry["args"].index("--kb")
    assert entry["args"][first:] == ["--kb", "产品", "--root", str(documents), *served[1:]]
    assert str(home) in entry["args"]
    # As a host does it: from another folder, and with hardly any environment.
    server = stdio_server(
        [entry["command"], *entry["args"]], env={"PATH": os.defpath}, cwd=os.path.sep, timeout=60.0
    )
    assert len(server.request("tools/list")["tools"]) == tools


def test_a_file_is_changed_once_and_put_back(run: Callable[..., CompletedProcess[bytes]], user: Path) -> None:
    path = user / ".cursor" / "mcp.json"
    path.write_bytes(b'{\r\n\t// \xe6\x88\x91\xe7\x9a\x84\r\n\t"mcpServers": {"other": {}},\r\n}\r\n')
    before = path.read_bytes()
    added = json.loads(run("install", "cursor", "--json").stdout)
    assert (added["action"], added["client"]) == ("added", "cursor")
    assert Path(added["backup"]).read_bytes() == before
    assert json.loads(run("install", "cursor", "--json").stdout)["action"] == "unchanged"
    assert json.loads(run("uninstall", "cursor", "--json").stdout)["action"] == "removed"
    assert path.read_bytes() == before


def test_what_is_to_be_pasted_goes_to_standard_output_alone(
    run: Callable[..., CompletedProcess[bytes]], user: Path
) -> None:
    done = run("install", "--print", "codex", "--llm", "deepseek", DEEPSEEK_API_KEY="not-to-be-shown")
    entry = tomllib.loads(done.stdout.decode())["mcp_servers"]["loom-kb"]
    assert entry["args"][-2:] == ["--llm", "deepseek"]
    assert entry["env_vars"] == ["DEEPSEEK_API_KEY"]
    assert str(user / ".codex" / "config.toml") in done.stderr.decode()
    assert b"not-to-be-shown" not in done.stdout + done.stderr
    assert not (user / ".codex").exists()


def test_a_broken_file_is_told_in_two_lines_and_left_alone(
    run: Callable[..., CompletedProcess[bytes]], user: Path
) -> None:
    path = user / ".cursor" / "mcp.json"
    path.write_text("{\n  mcpServers: {}\n}", encoding="utf-8")
    done = run("install", "cursor")
    assert done.returncode == 1
    cause, advice = done.stderr.decode().splitlines()
    assert cause == f"loom-kb: {path}:2:3: expected a name in double quotes."
    assert advice == "  Correct it there. The file was left as it is."
    assert path.read_text(encoding="utf-8") == "{\n  mcpServers: {}\n}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["install"], "Which client?"),
        (["install", "cursor", "--", "--http"], "standard input and output"),
        (["install", "cursor", "--", "--watch", "notes"], "in another folder, where notes is something else"),
        (["install", "cursor", "--root", "missing"], "is not a folder"),
        (["install", "cursor", "--llm", "{"], "is not valid JSON"),
        (["install", "goose", "--scope", "project"], "no configuration of its own for a project"),
    ],
)
def test_what_cannot_be_installed_is_told(
    arguments: list[str], said: str, run: Callable[..., CompletedProcess[bytes]], user: Path
) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert said in done.stderr.decode()
    assert list((user / ".cursor").iterdir()) == []
