from __future__ import annotations

import argparse
import io
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from loom_core.errors import ConfigError, InvalidInputError, LoomError, NotFoundError
from loom_core.mcp_client.configuration.command_names import verb
from loom_core.mcp_client.configuration.trust import ToolPin, ToolPins
from loom_core.server.cli.standard_commands import add_mcp_options
from loom_core.server.install.clients import Machine
from loom_core.server.install.command import Program
from loom_core.server.mcp_cli.terminal import run_mcp
from tests.unit.server.mcp_cli.verbs import Terminal


def _run(folder: Path, *line: str, served: tuple[str, ...] = (), program: str = "loom-query-server") -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path)
    for option in ("--json", "--debug"):
        parser.add_argument(option, action="store_true")
    add_mcp_options(parser)
    machine = Machine("linux", folder, folder, {})
    runs = Program(name=program, module="loom_query", description="", machine=machine)
    return run_mcp(runs, parser.parse_args(["--home", str(folder / "home"), *line]), served)


def test_answers_go_to_standard_output_and_the_rest_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(tmp_path, "add", "文件", served=("fs", "/文档")) == 0
    said = capsys.readouterr()
    assert '"command": "fs"' in said.out
    assert "mcp test 文件" in said.err
    assert _run(tmp_path, "list") == 0
    assert capsys.readouterr().out == "文件  stdio  fs /文档  (user)\n"


@pytest.mark.parametrize("line", [("--json", "list"), ("list", "--json")])
def test_json_can_be_asked_for_before_and_behind_the_verb(
    line: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run(tmp_path, *line)
    assert json.loads(capsys.readouterr().out)["servers"] == []


def test_who_does_not_agree_ends_with_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"a": {"command": "x"}}}', encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert _run(tmp_path, "trust") == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "Trust this file as it is? [y/N]" in said.err
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert _run(tmp_path, "trust") == 0


@pytest.mark.parametrize("line", [("add", "a", "--env", "no-sign"), ("import", "notepad"), ("nothing",), ()])
def test_wrong_usage_is_told_by_the_parser(
    line: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        _run(tmp_path, *line)
    assert "usage:" in capsys.readouterr().err


def test_the_content_of_the_answer_is_not_logged_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    program = "import sys; sys.exit('没有数据库')"
    _run(tmp_path, "add", "a", served=(sys.executable, "-c", program))
    capsys.readouterr()
    assert _run(tmp_path, "test", "a") == 1
    said = capsys.readouterr()
    assert said.out.count("没有数据库") == 1
    assert said.err == "Asking 1 server; one that does not answer times out after 30 s.\n"
    assert not caplog.records
    assert _run(tmp_path, "test", "a", "--debug") == 1
    assert "没有数据库" in caplog.text


def test_only_a_test_loads_the_sdk() -> None:
    program = (
        "import sys\n"
        "from loom_core.server.mcp_cli import client_import, terminal, trust\n"
        "from loom_core.mcp_client.configuration.servers import read_servers\n"
        "print([name for name in ('mcp', 'httpx2', 'starlette') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        (("remove", "文件"), "`loom-other-server mcp list`"),
        (("login", "文件"), "`loom-other-server mcp list`"),
        (("test",), "`loom-other-server mcp test NAME`, or `loom-other-server mcp test --all`"),
        (("trust",), "`loom-other-server mcp trust FILE`"),
    ],
)
def test_verbs_are_told_as_they_are_typed_for_the_program_that_runs(
    line: tuple[str, ...], typed: str, tmp_path: Path
) -> None:
    with pytest.raises(LoomError) as told:
        _run(tmp_path, *line, program="loom-other-server")
    assert typed in told.value.advice
    assert verb("list") == "`loom-query-server mcp list`", "whose verbs they are in any other program"


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def _entry(terminal: Terminal, name: str) -> dict[str, object]:
    return json.loads(terminal.file.read_text(encoding="utf-8"))["mcpServers"][name]


def test_a_command_is_added_as_it_is_typed(terminal: Terminal) -> None:
    report = terminal.mcp(
        "add", "文件", "--env", "LEVEL=a=b", "--", "npx", "-y", "server", "--env", "X=1", "/文档"
    )
    assert _entry(terminal, "文件") == {
        "command": "npx",
        "args": ["-y", "server", "--env", "X=1", "/文档"],
        "env": {"LEVEL": "a=b"},
    }
    assert report.data["name"] == "文件"
    assert report.notes[-1] == "See whether it answers: loom-query-server mcp test 文件"


def test_a_url_is_added_with_headers_written_either_way(terminal: Terminal) -> None:
    terminal.mcp(
        "add", "web", "https://host/mcp", "--header", "X-A=1", "--header", "Authorization: Bearer ${HOME}"
    )
    assert _entry(terminal, "web") == {
        "type": "http",
        "url": "https://host/mcp",
        "headers": {"X-A": "1", "Authorization": "Bearer ${HOME}"},
    }
    terminal.mcp("add", "old", "https://host/sse", "--transport", "sse")
    assert _entry(terminal, "old") == {"type": "sse", "url": "https://host/sse"}


def test_a_secret_that_is_typed_is_written_and_hidden_and_the_better_way_is_told(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTHER_TOKEN", raising=False)
    report = terminal.mcp(
        "add",
        "a",
        "--env",
        "API_KEY=very-secret-1",
        "--env",
        "T=${OTHER_TOKEN}",
        "--",
        "x",
        "--token",
        "very-secret-2",
    )
    assert "very-secret-1" in terminal.file.read_text(encoding="utf-8")
    said = "\n".join([*report.lines, *report.notes, json.dumps(report.data), repr(report)])
    assert "very-secret" not in said
    assert "env.API_KEY of 'a' holds a secret as it is" in said
    assert "${API_KEY}" in said
    assert "args.1 of 'a' holds a secret" in said
    assert "The variable OTHER_TOKEN is not set here" in said


def test_the_folder_of_a_command_is_written_so_that_it_means_the_same_everywhere(terminal: Terminal) -> None:
    terminal.mcp("add", "a", "--cwd", "文档", "--", "x")
    assert _entry(terminal, "a")["cwd"] == str(Path.cwd() / "文档")


def test_an_address_from_a_variable_can_be_added_before_that_is_set(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MY_URL", raising=False)
    report = terminal.mcp("add", "a", "${MY_URL}/mcp")
    assert _entry(terminal, "a")["url"] == "${MY_URL}/mcp"
    assert "The variable MY_URL is not set here" in report.notes[0]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_no_one_else_may_read_the_file(terminal: Terminal) -> None:
    terminal.mcp("add", "a", "--", "x")
    assert stat.S_IMODE(terminal.file.stat().st_mode) == 0o600


@pytest.mark.parametrize("line", [("--", "fs", "/\udcff"), ("--env", "\udcff=1", "--", "fs")])
def test_text_that_is_no_unicode_is_refused(terminal: Terminal, line: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInputError, match="not valid Unicode"):
        terminal.mcp("add", "a", *line)
    assert not terminal.file.exists()


def test_what_is_there_is_replaced_only_by_force_and_everything_else_stays(terminal: Terminal) -> None:
    terminal.home.mkdir(parents=True)
    above = '// 我的\n{\n  "theme": 1,\n  "mcpServers": {\n    // keep\n'
    text = f'{above}    "a": {{"command": "one", "extra": 1}},\n  }},\n}}\n'
    terminal.file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInputError, match="There is a server 'a' already"):
        terminal.mcp("add", "a", "--", "two")
    assert terminal.file.read_text(encoding="utf-8") == text
    ToolPins(terminal.home).pin("a", {"t": ToolPin(digest="h")})
    terminal.mcp("add", "a", "--force", "--", "two")
    assert ToolPins(terminal.home).of("a") == {}, "what was approved are the tools of another program"
    ToolPins(terminal.home).pin("b", {"t": ToolPin(digest="h")})  # of an entry that is gone, or a project's
    terminal.mcp("add", "b", "https://host")
    assert ToolPins(terminal.home).of("b") == {}
    after = terminal.file.read_text(encoding="utf-8")
    assert after.startswith(f'{above}    "a": {{"command": "two"')
    assert terminal.mcp("list").data["servers"][1]["name"] == "b"


def test_a_file_that_is_a_link_stays_one(terminal: Terminal) -> None:
    terminal.home.mkdir(parents=True)
    real = terminal.folder / "dotfiles.json"
    real.write_text("{}", encoding="utf-8")
    terminal.file.symlink_to(real)
    terminal.mcp("add", "a", "--", "x")
    assert terminal.file.is_symlink()
    assert "mcpServers" in real.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (("add", "a"), "either a URL or a command"),
        (("add", "a", "https://host", "--", "x"), "either a URL or a command"),
        (("add", "a b", "--", "x"), "cannot be a server's name"),
        (("add", "a:b", "--", "x"), "cannot be a server's name"),
        (("add", "a", "host/mcp"), "https://"),
        (("add", "a", "https://host", "--env", "A=b"), "are for a command"),
        (("add", "a", "--header", "A=b", "--", "x"), "is for a URL"),
        (("add", "a", "--env", "A=${input:x}", "--", "x"), "how other programs write it"),
        (("list", "--", "x"), "Only `loom-query-server mcp add` takes a command"),
        (("test",), "Which server"),
        (("test", "a", "--all"), "Which server"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    line: tuple[str, ...], told: str, terminal: Terminal
) -> None:
    with pytest.raises(InvalidInputError, match=told):
        terminal.mcp(*line)
    assert not terminal.file.exists()


def test_a_broken_file_is_left_as_it_is(terminal: Terminal) -> None:
    terminal.home.mkdir(parents=True)
    for text in ('{"mcpServers": {,}}', '{"servers": {"a": {}}}', '{"mcpServers": {"a": {}, "a": {}}}'):
        terminal.file.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=r"mcp\.json"):
            terminal.mcp("add", "b", "--", "x")
        assert terminal.file.read_text(encoding="utf-8") == text


def test_a_server_is_removed_with_what_was_approved_of_its_tools(terminal: Terminal) -> None:
    terminal.mcp("add", "a", "--env", "KEY=very-secret", "--", "x")
    ToolPins(terminal.home).pin("a", {"t": ToolPin(digest="h")})
    report = terminal.mcp("remove", "a")
    assert "very-secret" not in "\n".join(report.lines)
    assert terminal.mcp("list").data["servers"] == []
    assert ToolPins(terminal.home).of("a") == {}
    with pytest.raises(NotFoundError, match="There is no server 'a'"):
        terminal.mcp("remove", "a")


def test_a_server_that_is_not_there_is_told_with_what_is_near(terminal: Terminal) -> None:
    terminal.mcp("add", "github", "--", "x")
    with pytest.raises(NotFoundError, match=r"Did you mean github\?"):
        terminal.mcp("remove", "gihtub")


def test_the_list_tells_of_every_server_what_it_is_and_what_is_wrong(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    terminal.home.mkdir(parents=True)
    servers = {
        "文件": {"command": "npx", "args": ["-y", "fs", "--key", "abcsecret"]},
        "web": {"url": "https://me:abcsecret@host/mcp"},
        "off": {"command": "x", "disabled": True},
        "broken": {"command": "x", "env": {"K": "${NOT_SET}"}},
        "vault": {"command": "x", "env": {"K": "keyring:entry"}},
    }
    terminal.file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    terminal.project.mkdir()
    project = {"文件": {"command": "theirs"}, "tests": {"command": "pytest-server"}}
    (terminal.project / ".mcp.json").write_text(json.dumps({"mcpServers": project}), encoding="utf-8")
    report = terminal.mcp("list")
    found = [(each["name"], each["scope"], each["status"]) for each in report.data["servers"]]
    assert found == [
        ("文件", "user", "ready"), ("web", "user", "ready"), ("off", "user", "off"),
        ("broken", "user", "problem"), ("vault", "user", "ready"),
        ("文件", "project", "not used"), ("tests", "project", "not trusted"),
    ]  # fmt: skip
    assert report.lines[0] == "文件  stdio  npx -y fs --key …  (user)"
    assert "web  http  https://host/mcp  (user)" in report.lines
    said = "\n".join([*report.lines, *report.notes, json.dumps(report.data)])
    assert "abcsecret" not in said
    assert "The variable NOT_SET is not set." in said
    assert "mcp trust" in said


def test_the_list_names_a_file_that_is_broken(terminal: Terminal) -> None:
    assert "Add one: loom-query-server mcp add" in terminal.mcp("list").notes[0]
    terminal.home.mkdir(parents=True)
    terminal.file.write_text('{"servers": {"a": {}}}', encoding="utf-8")
    report = terminal.mcp("list")
    assert "the servers are called 'servers' here, as in VS Code" in report.lines[0]
    assert report.data["files"][0]["file"] == str(terminal.file)


def test_trust_shows_what_would_be_started_and_asks(terminal: Terminal) -> None:
    terminal.project.mkdir()
    path = terminal.project / ".mcp.json"
    servers = {
        "t": {
            "command": "sh",
            "args": ["-c", "run ${HOME}"],
            "env": {"LD_PRELOAD": "./x.so", "API_KEY": "abcsecret"},
        },
        "w": {"url": "https://host/${B:-x}", "headers": {"Authorization": "Bearer keyring:gh"}},
        "k": {"command": "x", "env": {"K": "keyring:k\nIt is harmless."}},
    }
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    report = terminal.mcp("trust")
    assert (report.code, report.data["trusted"]) == (1, False)
    shown = "\n".join(terminal.shown)
    assert '"-c", "run ${HOME}"' in shown
    assert "./x.so" in shown
    assert "abcsecret" not in shown
    assert "these of your variables: HOME, B" in shown
    assert "these entries of your keyring: gh, k\\nIt is harmless." in shown
    assert shown.endswith("Trust this file as it is?")
    terminal.answer = True
    assert terminal.mcp("trust", str(path)).code == 0
    assert terminal.mcp("list").data["servers"][0]["status"] == "ready"
    assert "is trusted already" in terminal.mcp("trust", str(terminal.project)).lines[0]
    path.write_text(path.read_text(encoding="utf-8").replace("run", "ran"), encoding="utf-8")
    terminal.shown.clear()
    assert terminal.mcp("trust").code == 0
    assert terminal.shown[0] == "It was changed after you trusted it."
    assert "no longer trusted" in terminal.mcp("trust", "--revoke").lines[0]
    assert "was not trusted" in terminal.mcp("trust", "--revoke").lines[0]


def test_trust_without_asking_shows_all_the_same(terminal: Terminal) -> None:
    terminal.project.mkdir()
    (terminal.project / ".mcp.json").write_text('{"mcpServers": {"t": {"command": "x"}}}', encoding="utf-8")
    assert terminal.mcp("trust", "--yes").data["trusted"]
    assert terminal.shown[1:] == ['t: {"command": "x"}']


def test_a_broken_or_missing_file_cannot_be_trusted(terminal: Terminal) -> None:
    with pytest.raises(NotFoundError, match=r"There is no \.mcp\.json in"):
        terminal.mcp("trust")
    with pytest.raises(NotFoundError, match="There is no file"):
        terminal.mcp("trust", str(terminal.project / "other.json"))
    (terminal.project / ".mcp.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError):
        terminal.mcp("trust", "--yes")
    assert not (terminal.home / "trust.json").exists()


def test_a_name_cannot_write_lines_of_its_own_before_it_is_trusted(terminal: Terminal) -> None:
    entries = {"a\nb\u202e": {"command": "rm", "args": ["-rf", "/"]}}
    terminal.project.mkdir(parents=True, exist_ok=True)
    (terminal.project / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))

    terminal.mcp("trust")

    assert terminal.shown[-2].startswith(r"a\nb\u202e: {")
