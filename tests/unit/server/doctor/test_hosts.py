"""What the files of MCP clients say of a server: broken ones, wrong ones, and the same server twice."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom_core.server.cli.health import Section
from loom_core.server.doctor.checks import hosts_section
from loom_core.server.install.clients import Machine

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file of a client, under the home or the project folder of the test."""

    def put(path: str, content: str | dict[str, Any]) -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return file

    return put


@pytest.fixture
def looked(tmp_path: Path) -> Callable[[], Section]:
    def look() -> Section:
        machine = Machine("linux", tmp_path / "家", tmp_path / "project", {})
        return hosts_section("loom-kb", "loom_kb", machine=machine)

    return look


def starting(*arguments: str, command: str = sys.executable) -> dict[str, Any]:
    return {"command": command, "args": ["-m", "loom_kb", *arguments], "env": {"X_API_KEY": "geheim123"}}


CURSOR = "家/.cursor/mcp.json"
CODE = "家/.claude.json"


def test_without_any_client_nothing_is_found(looked: Callable[[], Section]):
    section = looked()
    assert section.findings == []
    assert len(section.facts["without_configuration"]) == 9


def test_a_server_that_can_be_started_is_fine_and_its_settings_are_not_shown(
    write: Write, looked: Callable[[], Section]
):
    write(CURSOR, {"mcpServers": {"知识": starting(), "other": {"command": "nowhere"}}})
    write(CODE, {"mcpServers": {"other": {"type": "http", "url": "https://x"}}, "projects": {}})
    section = looked()
    assert [found.severity for found in section.findings] == ["ok"]
    assert section.facts["Cursor"] == "starts it as '知识'"
    assert section.facts["Claude Code"] == "does not start it"
    assert "geheim" not in section.model_dump_json()


@pytest.mark.parametrize(
    ("path", "content", "place"),
    [
        (CURSOR, '{"mcpServers": {\n  "知识" {}\n}}', ":2:"),
        (CURSOR, '{\n  "mcpServers": {"a": {},\n   "a": {}}}', ":3:4: the name 'a' is there twice"),
        ("家/.codex/config.toml", "[mcp_servers.a]\ncommand = \n", ":2:"),
        ("project/.vscode/mcp.json", '// 注释\n{"servers": {"a": }}', ":2:"),
        ("家/.config/goose/config.yaml", "extensions:\n  a: [\n", ":"),
    ],
)
def test_a_broken_file_is_told_with_line_and_column(
    write: Write, looked: Callable[[], Section], path: str, content: str, place: str
):
    file = write(path, content)
    [found] = looked().findings
    assert (found.code, found.severity) == ("broken-config", "problem")
    assert f"{file}{place}" in found.message
    assert found.remedy


def test_a_file_that_is_no_text_is_told(write: Write, looked: Callable[[], Section]):
    write(CURSOR, "").write_bytes(b"\xff\xfe{}")
    [found] = looked().findings
    assert (found.code, "UTF-8" in found.message) == ("broken-config", True)


def test_a_command_that_is_not_there_is_a_problem(
    write: Write, looked: Callable[[], Section], tmp_path: Path
):
    gone = tmp_path / "gone" / "bin" / "loom-kb"
    write(CODE, {"mcpServers": {"kb": {"command": str(gone), "args": ["serve"]}}})
    [found] = looked().findings
    assert (found.code, found.severity) == ("command-missing", "problem")
    assert f"'kb' by {gone}" in found.message
    assert found.remedy == "Write the entry anew: loom-kb install claude-code"


def test_the_same_server_twice_is_told_and_how_the_entries_differ(
    write: Write, looked: Callable[[], Section]
):
    write(CURSOR, {"mcpServers": {"kb": starting(), "笔记": starting()}})
    [found] = looked().findings
    assert (found.code, found.severity) == ("duplicate-entries", "warning")
    assert "2 times, as 'kb', '笔记', in the same way" in found.message
    write("project/.cursor/mcp.json", {"mcpServers": {"third": starting("--home", "/data")}})
    [found] = looked().findings
    assert "3 times, as 'kb', '笔记', 'third', with other options" in found.message
    assert "loom-kb uninstall cursor --name NAME" in found.remedy


def test_a_project_takes_the_place_of_an_entry_of_the_user(write: Write, looked: Callable[[], Section]):
    write(CURSOR, {"mcpServers": {"kb": starting(command="/nowhere/python")}})
    write("project/.cursor/mcp.json", {"mcpServers": {"kb": starting()}})
    assert [found.severity for found in looked().findings] == ["ok"]


def test_the_section_of_another_client_is_told(write: Write, looked: Callable[[], Section]):
    write("project/.vscode/mcp.json", {"mcpServers": {"kb": starting()}})
    [found] = looked().findings
    assert (found.code, found.severity) == ("wrong-section", "warning")
    assert found.remedy == "Call it 'servers'."


def test_a_name_that_a_client_refuses_is_told(write: Write, looked: Callable[[], Section]):
    write(CODE, {"mcpServers": {"知识库": starting()}})
    [found] = looked().findings
    assert (found.code, found.severity) == ("host-name", "warning")
    assert "'知识库'" in found.message
