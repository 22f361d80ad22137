from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from loom_core.errors import LoomError
from loom_core.mcp_client.configuration.command_names import verb
from loom_core.server.cli.standard_commands import add_mcp_options
from loom_core.server.install.clients import Machine
from loom_core.server.install.command import Program
from loom_core.server.mcp_cli.front import run_mcp


def _run(folder: Path, *line: str, served: tuple[str, ...] = (), program: str = "loom-query-server") -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path)
    for option in ("--json", "--debug"):
        parser.add_argument(option, action="store_true")
    add_mcp_options(parser)
    machine = Machine("linux", folder, folder, {})
    runs = Program(name=program, module="loom_query", description="", machine=machine)
    return run_mcp(runs, parser.parse_args(["--home", str(folder / "home"), *line]), served)


def test_answers_go_to_standard_output_and_what_else_is_said_beside_it(
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


def test_what_the_answer_tells_is_not_logged_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    program = "import sys; sys.exit('没有数据库')"
    _run(tmp_path, "add", "a", served=(sys.executable, "-c", program))
    capsys.readouterr()
    assert _run(tmp_path, "test", "a") == 1
    said = capsys.readouterr()
    assert said.out.count("没有数据库") == 1
    assert said.err == "Asking 1 server; one that does not answer is waited for 30 s.\n"
    assert not caplog.records
    assert _run(tmp_path, "test", "a", "--debug") == 1
    assert "没有数据库" in caplog.text


def test_only_a_test_loads_the_sdk() -> None:
    program = (
        "import sys\n"
        "from loom_core.server.mcp_cli import front, importing, trust\n"
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
