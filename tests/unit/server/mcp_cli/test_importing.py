from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loom_core.errors import ConfigError, InvalidInputError, NotFoundError
from tests.unit.server.mcp_cli.verbs import Terminal

_FILES = {
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "claude-code": ".claude.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "gemini-cli": ".gemini/settings.json",
}


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def _configured(terminal: Terminal, client: str, configuration: dict[str, Any] | str) -> Path:
    path = terminal.folder / "home" / _FILES[client]
    path.parent.mkdir(parents=True)
    text = configuration if isinstance(configuration, str) else json.dumps(configuration, ensure_ascii=False)
    path.write_text(text, encoding="utf-8")
    return path


def _taken(terminal: Terminal) -> dict[str, Any]:
    return json.loads(terminal.file.read_text(encoding="utf-8"))["mcpServers"]


def test_servers_of_claude_desktop_are_taken_over_and_their_file_is_not_touched(terminal: Terminal) -> None:
    servers = {
        "My Files": {"command": "npx", "args": ["-y", "fs", "/文档"], "env": {"API_KEY": "very-secret"}},
        "文件": {"command": "uvx", "args": ["fs"]},
    }
    path = _configured(terminal, "claude-desktop", {"mcpServers": servers})
    before = path.read_bytes()
    report = terminal.mcp("import", "claude-desktop")
    assert _taken(terminal) == {"My-Files": servers["My Files"], "文件": servers["文件"]}
    assert path.read_bytes() == before
    said = "\n".join([*report.lines, *report.notes, json.dumps(report.data)])
    assert "very-secret" not in said
    assert "'My Files' is called 'My-Files' here." in said
    assert "env.API_KEY of 'My-Files' holds a secret as it is" in said
    assert "2 servers taken over from Claude Desktop" in said


def test_of_claude_code_the_servers_of_the_current_project_are_taken_too(terminal: Terminal) -> None:
    configuration = {
        "mcpServers": {"everywhere": {"type": "http", "url": "https://host/mcp"}},
        "projects": {
            str(terminal.project): {"mcpServers": {"here": {"type": "stdio", "command": "x"}}},
            "/elsewhere": {"mcpServers": {"there": {"command": "x"}}},
        },
    }
    _configured(terminal, "claude-code", configuration)
    terminal.mcp("import", "claude-code")
    assert sorted(_taken(terminal)) == ["everywhere", "here"]


def test_what_vs_code_asks_for_becomes_a_variable(terminal: Terminal) -> None:
    _configured(
        terminal,
        "vscode",
        """{
  // 输入
  "inputs": [{"type": "promptString", "id": "github-token", "description": "GitHub token", "password": true}],
  "servers": {
    "gh": {"type": "http", "url": "https://h/", "headers": {"Authorization": "Bearer ${input:github-token}"}},
    "fs": {"type": "stdio", "command": "fs", "args": ["${userHome}/x", "${env:DIR}", "${workspaceFolder}"],
           "envFile": "${workspaceFolder}/.env",},
  },
}""",
    )
    report = terminal.mcp("import", "vscode")
    assert _taken(terminal)["gh"]["headers"] == {"Authorization": "Bearer ${GITHUB_TOKEN}"}
    assert _taken(terminal)["fs"]["args"][:2] == ["${HOME}/x", "${DIR}"]
    notes = "\n".join(report.notes)
    assert "VS Code asks for 'github-token' (GitHub token)" in notes
    assert "set the variable GITHUB_TOKEN" in notes
    assert "The variable GITHUB_TOKEN is not set here" in notes
    assert "Of 'fs' this is left out, as Loom does not know it: envFile." in notes
    assert "'fs' refers to the folder that VS Code has open" in notes


def test_gemini_s_own_ways_of_writing_are_translated(terminal: Terminal) -> None:
    servers = {
        "stream": {"httpUrl": "https://h/mcp", "headers": {"X-Key": "$MY_KEY"}, "timeout": 3_000},
        "events": {"url": "https://h/sse"},
        "local": {
            "command": "x", "includeTools": ["read"], "excludeTools": ["write"], "trust": True, "env": {},
        },
    }  # fmt: skip
    _configured(terminal, "gemini-cli", {"mcpServers": servers, "theme": "x"})
    report = terminal.mcp("import", "gemini-cli")
    assert _taken(terminal) == {
        "stream": {
            "type": "http",
            "url": "https://h/mcp",
            "headers": {"X-Key": "${MY_KEY}"},
            "timeout": 3.0,
        },
        "events": {"type": "sse", "url": "https://h/sse"},
        "local": {"command": "x", "loom": {"allow": ["read"], "deny": ["write"]}},
    }
    assert any("left out" in note and "trust" in note for note in report.notes)


def test_ourselves_and_what_is_there_already_are_not_taken(terminal: Terminal) -> None:
    terminal.mcp("add", "mine", "--", "other")
    terminal.mcp("add", "same", "--", "x", "y")
    servers = {
        "loom": {"command": "/opt/bin/loom-query-server", "args": ["serve"]},
        "by-uvx": {"command": "uvx", "args": ["loom-query-server@1.0"]},
        "by-python": {"command": "python", "args": ["-m", "loom_query"]},
        "mine": {"command": "theirs"},
        "same": {"command": "x", "args": ["y"]},
        "new": {"command": "x"},
        "nothing": {},
    }
    _configured(terminal, "cursor", {"mcpServers": servers})
    report = terminal.mcp("import", "cursor")
    assert list(_taken(terminal)) == ["mine", "same", "new"]
    assert _taken(terminal)["mine"]["command"] == "other"
    notes = "\n".join(report.notes)
    assert notes.count("is loom-query-server itself") == 3
    assert "There is another server 'mine' already" in notes
    assert "'same' is there already." in notes
    assert "'nothing' is not taken over: It has neither a command nor a url." in notes


def test_only_the_named_ones_are_taken_and_a_dry_run_changes_nothing(terminal: Terminal) -> None:
    _configured(terminal, "cursor", {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}})
    report = terminal.mcp("import", "cursor", "--name", "b", "--dry-run")
    assert list(report.data["servers"]) == ["b"]
    assert "1 server would be taken over" in report.lines[-1]
    assert not terminal.file.exists()
    terminal.mcp("import", "cursor", "--name", "b")
    assert list(_taken(terminal)) == ["b"]
    with pytest.raises(NotFoundError, match="has no server 'c'") as caught:
        terminal.mcp("import", "cursor", "--name", "c")
    assert caught.value.advice == "It has: 'a', 'b'."


def test_a_project_s_own_servers_are_taken_after_they_were_shown(terminal: Terminal) -> None:
    folder = terminal.project / ".cursor"
    folder.mkdir(parents=True)
    entry = '{"command": "x", "args": ["${env:TOKEN}"]}'
    (folder / "mcp.json").write_text(f'{{"mcpServers": {{"p": {entry}}}}}', encoding="utf-8")
    terminal.mcp("import", "cursor", "--scope", "project", "--dry-run")
    assert terminal.shown == []
    declined = terminal.mcp("import", "cursor", "--scope", "project")
    assert (declined.code, declined.notes, terminal.file.exists()) == (1, ["Nothing was changed."], False)
    assert terminal.shown == [
        f"{folder / 'mcp.json'} would start or ask these servers whenever they are wanted:",
        'p: {"command": "x", "args": ["${TOKEN}"]}',
        "They would be given these of your variables: TOKEN",
        "Take these servers over?",
    ]
    terminal.mcp("import", "cursor", "--scope", "project", "--yes")
    assert (list(_taken(terminal)), len(terminal.shown)) == (["p"], 4)
    with pytest.raises(InvalidInputError, match="no configuration of its own for a project"):
        terminal.mcp("import", "claude-desktop", "--scope", "project")


def test_a_client_without_configuration_and_a_broken_one_are_told(terminal: Terminal) -> None:
    with pytest.raises(NotFoundError, match="Cursor has no configuration here"):
        terminal.mcp("import", "cursor")
    path = _configured(terminal, "cursor", '{"mcpServers": \n {]}')
    with pytest.raises(ConfigError, match=f"{path}:2:3: "):
        terminal.mcp("import", "cursor")
