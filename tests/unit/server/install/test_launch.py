from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loom_core.errors import ConfigError
from loom_core.server.install.launch import Interpreter, Launch, launch_of


def _interpreter(prefix: Path, *, script: bool = False, **environment: str) -> Interpreter:
    scripts = prefix / "bin"
    if script:
        scripts.mkdir(parents=True)
        (scripts / "loom-kb").touch()
    return Interpreter(scripts / "python3", prefix, scripts, environment)


def _launch(interpreter: Interpreter) -> Launch:
    return launch_of("loom-kb", "loom_kb", interpreter=interpreter)


def _command(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True)
    command = folder / (f"{name}.exe" if os.name == "nt" else name)
    command.touch(mode=0o755)
    return command


def test_from_the_cache_of_uv_it_is_run_by_uv_again(tmp_path: Path) -> None:
    prefix = tmp_path / "uv" / "archive-v0" / "3qNGVhRPTm0QkCF1"
    launch = _launch(_interpreter(prefix, script=True, UV="/opt/工具/uv"))
    assert (launch.command, launch.arguments) == ("/opt/工具/uv", ("tool", "run", "loom-kb"))
    assert "fetches the package again" in launch.note


def test_uv_is_looked_for_where_it_does_not_tell_its_place(tmp_path: Path) -> None:
    uv = _command(tmp_path / "tools", "uv")
    prefix = tmp_path / "cache" / "environments-v2" / "x"
    assert _launch(_interpreter(prefix, PATH=str(uv.parent))).command == str(uv)


def test_a_cache_whose_keeper_is_gone_is_no_place_to_start_from(tmp_path: Path) -> None:
    prefix = tmp_path / "cache" / "archive-v0" / "x"
    with pytest.raises(ConfigError, match="cache of uv"):
        _launch(_interpreter(prefix, PATH=str(tmp_path)))


def test_from_the_cache_of_pipx_it_is_run_by_pipx_again(tmp_path: Path) -> None:
    pipx = _command(tmp_path / "tools", "pipx")
    prefix = tmp_path / ".cache" / "pipx" / "deadbeef"
    launch = _launch(_interpreter(prefix, script=True, PATH=str(pipx.parent)))
    assert (launch.command, launch.arguments) == (str(pipx), ("run", "loom-kb"))


@pytest.mark.parametrize("place", ["share/uv/tools/loom-kb", "share/pipx/venvs/loom-kb", "项目/.venv"])
def test_an_installed_program_is_started_by_its_script(tmp_path: Path, place: str) -> None:
    launch = _launch(_interpreter(tmp_path / place, script=True))
    assert (launch.command, launch.arguments) == (str(tmp_path / place / "bin" / "loom-kb"), ())


def test_without_a_script_the_module_is_run(tmp_path: Path) -> None:
    interpreter = _interpreter(tmp_path / "venv")
    launch = _launch(interpreter)
    assert (launch.command, launch.arguments) == (str(interpreter.executable), ("-m", "loom_kb"))


def test_a_folder_for_temporary_files_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert "temporary files" in _launch(_interpreter(tmp_path.resolve() / "venv", script=True)).note
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    assert _launch(_interpreter(tmp_path / "venv")).note == ""


def test_what_is_found_for_this_very_interpreter_starts() -> None:
    launch = launch_of("loom-kb", "loom_kb", interpreter=Interpreter.this())
    assert Path(launch.command).is_absolute()
    done = subprocess.run(
        [launch.command, *launch.arguments, "--version"], capture_output=True, text=True, check=True, cwd="/"
    )
    assert done.stdout.startswith("loom-kb ")
    assert Path(launch.command).parent == Path(sys.executable).parent
