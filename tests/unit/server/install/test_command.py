from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.server.cli.command_line import split_arguments
from loom_core.server.install.clients import CLIENTS, Machine

if TYPE_CHECKING:
    from tests.unit.server.install.conftest import RunInstall

FileOf = Callable[[str], Path]


def _servers(path: Path) -> dict[str, dict[str, object]]:
    return json.loads(path.read_bytes())["mcpServers"]


def test_a_dry_run_shows_the_change_and_makes_none(
    run_install: RunInstall, run_uninstall: RunInstall, file_of: FileOf, shown: list[str]
) -> None:
    report = run_install("cursor", "--dry-run")
    assert (report.action, report.dry_run, report.backup) == ("added", True, None)
    assert "would be added" in report.lines()[0]
    assert '+      "command":' in shown[0]
    assert not file_of("cursor").exists()
    run_install("cursor")
    before = file_of("cursor").read_bytes()
    assert "would be removed" in run_uninstall("cursor", "--dry-run").lines()[0]
    assert '-      "command":' in shown[-1]
    assert file_of("cursor").read_bytes() == before


@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_printed_is_what_would_be_written(
    client: str, run_install: RunInstall, file_of: FileOf
) -> None:
    report = run_install("--print", client)
    assert report.action == "printed"
    assert report.file == str(file_of(client))
    assert not file_of(client).exists()
    run_install(client)
    assert file_of(client).read_text(encoding="utf-8") == report.snippet


def test_without_a_client_the_usual_shape_is_printed(run_install: RunInstall) -> None:
    report = run_install("--print", "--name", "知识库")
    assert (report.client, report.file) == ("", "")
    entry = json.loads(report.snippet)["mcpServers"]["知识库"]
    assert entry["args"] == ["serve", "--root", "/home/me/文档"]
    assert report.lines()[0] == "For any client that reads mcpServers"


def test_without_a_client_nothing_can_be_installed(run_install: RunInstall) -> None:
    with pytest.raises(InvalidInputError, match="Which client") as caught:
        run_install()
    assert "claude-desktop, claude-code" in caught.value.advice


def test_a_project_gets_its_own_file(run_install: RunInstall, machine: Machine) -> None:
    report = run_install("claude-code", "--scope", "project")
    assert _servers(Path(machine.project) / ".mcp.json")["loom-kb"]["type"] == "stdio"
    assert any("this machine's" in note for note in report.notes)


def test_a_client_without_projects_says_so(run_install: RunInstall) -> None:
    with pytest.raises(InvalidInputError, match="Windsurf has no configuration of its own for a project"):
        run_install("windsurf", "--scope", "project")


def test_a_server_may_have_a_chinese_name_where_the_client_takes_one(
    run_install: RunInstall, run_uninstall: RunInstall, file_of: FileOf
) -> None:
    run_install("cursor", "--name", "知识库")
    assert list(_servers(file_of("cursor"))) == ["知识库"]
    assert run_uninstall("cursor", "--name", "知识库").action == "removed"
    with pytest.raises(InvalidInputError, match="does not accept a server called '知识库'"):
        run_install("codex", "--name", "知识库")


def test_two_servers_of_one_program_stand_side_by_side(
    run_install: RunInstall, run_uninstall: RunInstall, file_of: FileOf
) -> None:
    run_install("cursor")
    run_install("cursor", "--name", "notes")
    run_uninstall("cursor")
    assert list(_servers(file_of("cursor"))) == ["notes"]


def test_a_name_that_is_taken_by_something_else_is_refused(
    run_install: RunInstall, run_uninstall: RunInstall, file_of: FileOf
) -> None:
    text = '{"mcpServers": {"loom-kb": {"url": "https://example.com/mcp"}}}'
    file_of("cursor").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="something else that is called 'loom-kb'") as caught:
        run_install("cursor")
    assert "--name" in caught.value.advice
    with pytest.raises(ConfigError, match="is not loom-kb"):
        run_uninstall("cursor", "--force")
    assert file_of("cursor").read_text(encoding="utf-8") == text


def test_taking_out_what_is_not_there_changes_nothing(run_uninstall: RunInstall, file_of: FileOf) -> None:
    for text in (None, "{}", '{"mcpServers": {"other": {}}}'):
        if text is not None:
            file_of("cursor").write_text(text, encoding="utf-8")
        report = run_uninstall("cursor")
        assert (report.action, report.backup) == ("absent", None)
        assert "nothing changes" in report.lines()[0]
    assert file_of("cursor").read_text(encoding="utf-8") == '{"mcpServers": {"other": {}}}'


@pytest.mark.parametrize(
    "text", ['{"mcpServers": []}', '{"mcpServers": {"loom-kb": 1}}', '{"mcpServers": "none"}']
)
def test_a_section_that_holds_no_servers_is_left_alone(
    text: str, run_install: RunInstall, file_of: FileOf
) -> None:
    file_of("cursor").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="was left as it is"):
        run_install("cursor")
    assert file_of("cursor").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("codex", 'mcp_servers = { a = { command = "x" } }\n'),
        ("goose", "extensions: {a: {type: builtin}}\n"),
        ("goose", "a: &x {b: 1}\nextensions:\n  c: *x\n"),
    ],
)
def test_a_file_that_is_written_too_unusually_is_left_alone(
    client: str, text: str, run_install: RunInstall, file_of: FileOf
) -> None:
    file_of(client).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="was left as it is") as caught:
        run_install(client)
    assert "install --print" in caught.value.advice
    assert file_of(client).read_text(encoding="utf-8") == text


def test_a_key_is_referred_to_only_where_it_is_set(run_install: RunInstall, file_of: FileOf) -> None:
    report = run_install("claude-code", variables=("MISSING_API_KEY",))
    assert "env" not in _servers(file_of("claude-code"))["loom-kb"]
    assert any("keyring set loom MISSING_API_KEY" in note for note in report.notes)
    report = run_install("claude-code")
    assert _servers(file_of("claude-code"))["loom-kb"]["env"] == {"DEEPSEEK_API_KEY": "${DEEPSEEK_API_KEY}"}
    assert any("has to be set where Claude Code is started" in note for note in report.notes)
    assert run_install("claude-code", variables=()).action == "updated"
    assert "env" not in _servers(file_of("claude-code"))["loom-kb"]


def test_a_client_that_cannot_refer_to_a_key_gets_a_note(run_install: RunInstall) -> None:
    report = run_install("claude-desktop")
    assert any("keyring set loom DEEPSEEK_API_KEY" in note for note in report.notes)


def test_a_client_that_seems_not_to_be_there_is_told(run_install: RunInstall, file_of: FileOf) -> None:
    assert any("is Zed installed?" in note for note in run_install("zed").notes)
    assert not any("installed?" in note for note in run_install("zed").notes)


def test_without_pyyaml_goose_is_shown_and_not_changed(
    run_install: RunInstall, file_of: FileOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    file_of("goose").write_text("GOOSE_MODE: auto\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="PyYAML is not installed"):
        run_install("goose")
    assert run_install("--print", "goose").snippet.startswith("extensions:\n")


def test_what_stands_behind_two_dashes_is_for_the_server() -> None:
    assert split_arguments(["install", "zed", "--", "--kb", "a", "--", "b"]) == (
        ["install", "zed"],
        ["--kb", "a", "--", "b"],
    )
    assert split_arguments(["install"]) == (["install"], [])
