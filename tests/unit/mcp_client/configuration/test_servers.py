from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import ConfigError
from loom_core.mcp_client.configuration.config_file import ServerFile, project_file
from loom_core.mcp_client.configuration.servers import Servers, read_servers
from loom_core.mcp_client.configuration.trust import TrustedFiles

_SERVER = {"command": "server"}


def _write(path: Path, entries: dict[str, Any] | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = entries if isinstance(entries, str) else json.dumps({"mcpServers": entries}, ensure_ascii=False)
    path.write_text(text, encoding="utf-8")
    return path


def _read(home: Path, **options: Any) -> Servers:
    return read_servers(home, environment={"TOKEN": "tok-123456"}, **options)


def _names(servers: Servers) -> list[str]:
    return [config.name for config in servers.ready]


def test_without_a_file_there_are_no_servers(tmp_path: Path) -> None:
    assert _read(tmp_path) == Servers()


def test_a_bad_entry_costs_that_entry_only_and_is_told_with_its_place(tmp_path: Path) -> None:
    path = _write(
        tmp_path / "mcp.json",
        """// 我的服务器
{
  "mcpServers": {
    "文件": {"command": "server", "args": ["文档"]},
    "broken": {
      "command": "server",
      "env": {"KEY": "${NOT_SET}"},
    },
    "list": [],
    "a:b": {"command": "server"},
    "web": {"url": "https://host/mcp"},
  },
}
""",
    )
    servers = _read(tmp_path)
    assert _names(servers) == ["文件", "web"]
    assert servers.ready[0].where == f"{path}:4:5"
    places = {name: problem.where for name, problem in servers.problems.items()}
    assert places == {"broken": f"{path}:7:15", "list": f"{path}:9:5", "a:b": f"{path}:10:5"}
    assert "The variable NOT_SET is not set." in servers.problems["broken"].message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"mcpServers": {\n  "a" {}}}', "mcp.json:2:7: expected a colon"),
        ('{"mcpServers": []}', "mcp.json:1:2: mcpServers is not an object"),
        (
            '{"servers": {"a": {"command": "x"}}}',
            "mcp.json:1:2: the servers are called 'servers' here, as in VS",
        ),
        ('{"mcpservers": {"a": {}}}', "the servers are called 'mcpservers' here."),
        ('{"a": {"command": "x"}}', "the server 'a' stands outside mcpServers"),
        ("[]", "mcp.json:1:1: expected an object"),
    ],
)
def test_a_broken_file_is_a_problem_of_its_own(text: str, told: str, tmp_path: Path) -> None:
    path = _write(tmp_path / "mcp.json", text)
    servers = _read(tmp_path)
    assert list(servers.problems) == [str(path)]
    assert told in servers.problems[str(path)].message


@pytest.mark.parametrize(
    "text", ["{}", '{"mcpServers": null}', "// nothing yet\n", '{"theme": "dark"}', "\ufeff{}"]
)
def test_a_file_that_names_no_server_is_no_problem(text: str, tmp_path: Path) -> None:
    _write(tmp_path / "mcp.json", text)
    assert _read(tmp_path) == Servers()


def test_a_file_in_another_encoding_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes('{"mcpServers":\n {"服务": {}}}'.encode("gbk"))
    assert f"{path}:2: this is not UTF-8" in _read(tmp_path).problems[str(path)].message


def test_what_is_no_file_is_a_problem_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").mkdir()
    assert "cannot be read" in _read(tmp_path).problems[str(tmp_path / "mcp.json")].message


@pytest.mark.hostile("MCP servers")
def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path) -> None:
    path = _write(tmp_path / "mcp.json", " " * 10_000_001)
    assert "more than 10,000,000 bytes" in _read(tmp_path).problems[str(path)].message


def test_of_two_entries_with_one_name_the_last_counts_and_that_is_said(tmp_path: Path) -> None:
    path = _write(
        tmp_path / "mcp.json", '{"mcpServers": {"a": {"command": "one"},\n "a": {"command": "two"}}}'
    )
    servers = _read(tmp_path)
    assert [config.command for config in servers.ready] == ["two"]
    assert servers.notes == (f"{path}:1:17: the name 'a' is repeated at {path}:2:2, which takes precedence.",)


def test_what_is_switched_off_is_left_alone_unless_it_is_asked_for(tmp_path: Path) -> None:
    _write(tmp_path / "mcp.json", {"on": _SERVER, "off": {**_SERVER, "disabled": True, "cwd": "${NOT_SET}"}})
    servers = _read(tmp_path)
    assert (_names(servers), servers.disabled, servers.problems) == (["on"], ("off",), {})
    assert "NOT_SET" in _read(tmp_path, names=["off"]).problems["off"].message
    _write(tmp_path / "mcp.json", {"off": {**_SERVER, "disabled": True}})
    (config,) = _read(tmp_path, names=["off"]).ready
    assert not config.enabled


def test_only_what_is_asked_for_is_read_and_what_is_not_there_is_told_with_what_is_near(
    tmp_path: Path,
) -> None:
    _write(tmp_path / "mcp.json", {"github": _SERVER, "broken": {}})
    servers = _read(tmp_path, names=["github", "gihtub", "数据库"])
    assert _names(servers) == ["github"]
    assert servers.problems["gihtub"].advice == "Did you mean github?"
    assert servers.problems["数据库"].message == "There is no server '数据库'."


def test_a_project_is_used_once_it_is_trusted_and_no_longer_when_it_changes(tmp_path: Path) -> None:
    home, project = tmp_path / "home", _write(tmp_path / "项目" / ".mcp.json", {"a": _SERVER})
    before = _read(home, project=project)
    assert not before.ready
    assert before.problems["a"].untrusted
    assert "is a project's, and not trusted" in before.problems["a"].message
    typed = f"mcp trust '{project}' --home {home}"  # as a shell needs it, and of the home that is meant
    assert before.problems["a"].advice.endswith(f"trust it: `loom-query-server {typed}`.")
    TrustedFiles(home).trust(project, project.read_bytes())
    (config,) = _read(home, project=project).ready
    assert config.cwd == tmp_path / "项目"
    _write(project, {"a": {"command": "other"}})
    after = _read(home, project=project)
    assert not after.ready
    assert "was changed after you trusted it" in after.problems["a"].message


def test_nothing_of_a_file_that_is_not_trusted_is_expanded(tmp_path: Path) -> None:
    project = _write(tmp_path / "p" / ".mcp.json", {"a": {"url": "https://evil/${TOKEN}"}})
    servers = _read(tmp_path / "home", project=project)
    assert "tok-123456" not in repr(servers)
    assert servers.problems["a"].untrusted


def test_of_a_user_and_a_project_with_one_name_the_user_counts(tmp_path: Path) -> None:
    home = tmp_path / "home"
    _write(home / "mcp.json", {"a": {"command": "mine"}})
    project = _write(tmp_path / "p" / ".mcp.json", {"a": {"command": "theirs"}, "b": _SERVER})
    TrustedFiles(home).trust(project, project.read_bytes())
    servers = _read(home, project=project)
    assert [(config.name, config.command) for config in servers.ready] == [("a", "mine"), ("b", "server")]
    assert "'a' is also in" in servers.notes[0]


def test_a_broken_trust_file_means_that_nothing_is_trusted_and_costs_no_server_of_the_user(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    _write(home / "mcp.json", {"mine": _SERVER})
    project = _write(tmp_path / "p" / ".mcp.json", {"a": _SERVER})
    (home / "trust.json").write_text("{", encoding="utf-8")
    servers = _read(home, project=project)
    assert _names(servers) == ["mine"]
    assert "trust.json, cannot be read" in servers.problems[str(project)].message


def test_five_hundred_servers_are_read_in_a_moment(tmp_path: Path) -> None:
    entries = {
        f"服务-{i}": {"command": "npx", "args": ["-y", f"package-{i}"], "env": {"KEY": "${TOKEN}"}}
        for i in range(500)
    }
    text = json.dumps({"mcpServers": entries}, ensure_ascii=False, indent=2)
    _write(tmp_path / "mcp.json", text.replace('"args"', '// what it is given\n"args"'))
    began = time.process_time()
    servers = _read(tmp_path)
    assert len(servers.ready) == 500
    assert time.process_time() - began < 2


def test_the_project_of_a_folder_is_the_nearest_in_its_repository(tmp_path: Path) -> None:
    _write(tmp_path / ".mcp.json", {})
    inner = tmp_path / "repository" / "src"
    inner.mkdir(parents=True)
    assert project_file(inner) == tmp_path / ".mcp.json"
    (tmp_path / "repository" / ".git").mkdir()
    assert project_file(inner) is None
    nearest = _write(tmp_path / "repository" / ".mcp.json", {})
    assert project_file(inner) == nearest


def test_the_file_of_a_user_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    _write(tmp_path / ".mcp.json", {})
    (tmp_path / "src").mkdir()
    assert project_file(tmp_path / "src") is None


@pytest.mark.hostile("MCP servers")
@given(raw=st.binary(max_size=60) | st.text(alphabet='{}[]",: /*\nmcpServers', max_size=60).map(str.encode))
def test_whatever_is_in_a_file_it_has_entries_or_an_error(raw: bytes) -> None:
    try:
        told = [
            ServerFile(Path("mcp.json"), raw).where(name)
            for name in ServerFile(Path("mcp.json"), raw).entries
        ]
    except ConfigError as error:
        told = [str(error)]
    assert all(each.startswith("mcp.json:") for each in told)


def test_of_a_broken_file_it_is_said_of_each_server_that_is_asked_for(tmp_path: Path) -> None:
    path = _write(tmp_path / "mcp.json", '{"mcpServers": {"文件": }}')
    problems = _read(tmp_path, names=["文件"]).problems
    assert list(problems) == ["文件"]
    assert str(problems["文件"]) == f"{path}:1:23: expecting value. Correct it there."
    assert list(_read(tmp_path).problems) == [str(path)]
