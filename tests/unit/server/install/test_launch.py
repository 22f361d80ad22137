from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from loom_core.errors import ConfigError
from loom_core.server.install.launch import (
    Interpreter,
    Launch,
    check_launch,
    host_environment,
    launch_of,
)

_WHEEL = {"url": "file:///轮子/loom_kb-0.1.0-py3-none-any.whl", "archive_info": {}}
_COMMIT = {
    "url": "https://git.example/loom",
    "vcs_info": {"vcs": "git", "commit_id": "c0ffee"},
    "subdirectory": "servers/kb",
}


def _interpreter(
    prefix: Path, *, script: bool = False, parent: str = "", origin: object = None, **environment: str
) -> Interpreter:
    scripts, packages = prefix / "bin", prefix / "lib"
    metadata = packages / "loom_kb-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: loom-kb\nVersion: 0.1.0\n", "utf-8")
    if origin:
        (metadata / "direct_url.json").write_text(json.dumps(origin), "utf-8")
    if script:
        scripts.mkdir(parents=True)
        (scripts / "loom-kb").touch()
    folder = prefix.parent
    return Interpreter(
        scripts / "python3", prefix, scripts, packages, environment, folder, tuple(parent.split())
    )


def _launch(interpreter: Interpreter) -> Launch:
    return launch_of("loom-kb", "loom_kb", interpreter=interpreter)


def _command(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True)
    command = folder / (f"{name}.exe" if os.name == "nt" else name)
    command.touch(mode=0o755)
    return command


def _by_uv(folder: Path, parent: str, origin: object = None, **environment: str) -> Launch:
    prefix = folder / "archive-v0" / "3qNGVhRPTm0QkCF1"
    return _launch(
        _interpreter(prefix, script=True, parent=parent, origin=origin, UV="/opt/工具/uv", **environment)
    )


@pytest.mark.parametrize(
    ("parent", "arguments"),
    [
        ("uv tool uvx loom-kb", "tool run loom-kb@0.1.0"),
        ("uv tool uvx loom-kb@latest", "tool run loom-kb@0.1.0"),
        ("uv tool run loom-kb==0.1", "tool run loom-kb@0.1.0"),
        ("uv tool uvx loom-kb[otel]", "tool run loom-kb[otel]@0.1.0"),
        ("uv tool uvx --from loom-kb loom-kb", "tool run loom-kb@0.1.0"),
        ("uv tool uvx --from=loom-kb[otel]>=0.1 loom-kb", "tool run loom-kb[otel]@0.1.0"),
        ("uv tool uvx --find-links /轮子 loom-kb", "tool run --find-links /轮子 loom-kb@0.1.0"),
        ("uv --offline tool run -p 3.12 loom-kb", "--offline tool run -p 3.12 loom-kb@0.1.0"),
        ("uv tool uvx --refresh --refresh-package a -P=b --index https://i.example -U loom-kb",
         "tool run --index https://i.example loom-kb@0.1.0"),
        ("uv run --with numpy --package loom-kb loom-kb",
         "--directory {folder} run --with numpy --package loom-kb loom-kb"),
        ("uv tool uvx --from loom-kb python -m loom_kb", "tool run loom-kb@0.1.0"),
        ("bash run-it.sh loom-kb", "tool run loom-kb@0.1.0"),
        ("", "tool run loom-kb@0.1.0"),
    ],
)  # fmt: skip
def test_from_the_cache_of_uv_this_version_is_run_again_with_the_options_that_uv_was_given(
    parent: str, arguments: str, tmp_path: Path
) -> None:
    launch = _by_uv(tmp_path, parent)
    assert launch.command == "/opt/工具/uv"
    assert list(launch.arguments) == arguments.format(folder=tmp_path / "archive-v0").split()
    assert "this version" in launch.note
    assert "run install again" in launch.note


@pytest.mark.parametrize("option", ["--find-links 轮子", "--find-links=轮子", "--with ./轮子"])
def test_paths_that_uv_was_given_are_found_from_any_folder(option: str, tmp_path: Path) -> None:
    (tmp_path / "archive-v0" / "轮子").mkdir(parents=True)
    launch = _by_uv(tmp_path, f"uv tool uvx {option} loom-kb")
    assert launch.arguments[:2] == ("--directory", str(tmp_path / "archive-v0"))
    assert list(launch.arguments[4:]) == [*option.split(), "loom-kb@0.1.0"]


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (_WHEEL, "loom-kb @ file:///轮子/loom_kb-0.1.0-py3-none-any.whl"),
        (_COMMIT, "loom-kb @ git+https://git.example/loom@c0ffee#subdirectory=servers/kb"),
        ({"url": "file:///loom/servers/kb", "dir_info": {}}, "loom-kb @ file:///loom/servers/kb"),
    ],
)
def test_what_came_from_a_file_a_folder_or_a_commit_comes_from_there_again(
    origin: object, requirement: str, tmp_path: Path
) -> None:
    launch = _by_uv(tmp_path, "uv tool uvx --from ./what/was/typed --find-links /w loom-kb", origin)
    assert launch.arguments == ("tool", "run", "--find-links", "/w", "--from", requirement, "loom-kb")


def test_certificates_that_only_a_variable_names_are_taken_from_the_system(tmp_path: Path) -> None:
    launch = _by_uv(tmp_path, "uv tool uvx loom-kb", SSL_CERT_FILE="/etc/certificates.crt")
    assert launch.arguments == ("tool", "run", "--system-certs", "loom-kb@0.1.0")


@pytest.mark.parametrize("index", ["https://me:s3cret@i.example/simple", "https://s3cret@i.example/simple"])
def test_credentials_of_an_index_are_not_written(index: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="credentials") as caught:
        _by_uv(tmp_path, f"uv tool uvx --index {index} loom-kb")
    assert "uv tool install loom-kb" in caught.value.advice
    assert "s3cret" not in str(caught.value)


def test_a_repository_over_ssh_needs_no_credentials(tmp_path: Path) -> None:
    origin = {**_COMMIT, "url": "ssh://git@git.example/loom"}
    assert "git+ssh://git@git.example/loom@c0ffee" in _by_uv(tmp_path, "", origin).arguments[3]


def test_uv_is_looked_for_where_it_does_not_tell_its_place(tmp_path: Path) -> None:
    uv = _command(tmp_path / "tools", "uv")
    prefix = tmp_path / "cache" / "environments-v2" / "x"
    assert _launch(_interpreter(prefix, PATH=str(uv.parent))).command == str(uv)


def test_a_cache_whose_keeper_is_gone_is_no_place_to_start_from(tmp_path: Path) -> None:
    prefix = tmp_path / "cache" / "archive-v0" / "x"
    with pytest.raises(ConfigError, match="cache of uv"):
        _launch(_interpreter(prefix, PATH=str(tmp_path)))


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [(None, "loom-kb==0.1.0"), (_WHEEL, "loom-kb @ file:///轮子/loom_kb-0.1.0-py3-none-any.whl")],
)
def test_from_the_cache_of_pipx_this_version_is_run_by_pipx_again(
    origin: object, requirement: str, tmp_path: Path
) -> None:
    pipx = _command(tmp_path / "tools", "pipx")
    prefix = tmp_path / ".cache" / "pipx" / "deadbeef"
    launch = _launch(_interpreter(prefix, script=True, origin=origin, PATH=str(pipx.parent)))
    assert (launch.command, launch.arguments) == (str(pipx), ("run", "--spec", requirement, "loom-kb"))


def test_a_package_that_has_no_version_in_a_cache_is_not_run_from_there(tmp_path: Path) -> None:
    interpreter = _interpreter(tmp_path / "archive-v0" / "x", UV="/opt/uv")
    with pytest.raises(ConfigError, match="which version"):
        launch_of("loom-flow-server", "loom_flow", interpreter=interpreter)


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
    assert _launch(_interpreter(tmp_path / "venv2")).note == ""


def test_what_is_found_for_this_very_interpreter_starts() -> None:
    launch = launch_of("loom-kb", "loom_kb", interpreter=Interpreter.this())
    assert Path(launch.command).is_absolute()
    assert Path(launch.command).parent == Path(sys.executable).parent
    check_launch(launch, "loom-kb")


@pytest.mark.parametrize("own", [[], ["install", "", "织机", "a b"]])
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="there is no /proc here")
def test_the_command_line_that_started_a_program_is_read_without_its_own_arguments(
    own: Sequence[str], tmp_path: Path
) -> None:
    child = "from loom_core.server.install import launch; import sys; print(launch.parent_command())"
    parent = tmp_path / "parent.py"
    starts = (
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', CHILD, *sys.argv[2:]], check=True)\n"
    )
    parent.write_text(starts.replace("CHILD", repr(child)), "utf-8")
    command = [sys.executable, str(parent), "loom-kb", *own]
    done = subprocess.run(command, capture_output=True, check=True, encoding="utf-8")
    assert done.stdout.strip() == str(tuple(command[:3]))


def _script(folder: Path, text: str) -> Launch:
    path = folder / "loom-kb"
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)
    return Launch(str(path))


@pytest.mark.skipif(os.name == "nt", reason="scripts of a shell")
def test_a_program_is_tried_as_a_host_starts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "not-to-be-shown-9")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    launch = _script(tmp_path, f'env >"{tmp_path}/env"; pwd >"{tmp_path}/pwd"; echo "$0 $*" | sed s:.*/::')
    check_launch(launch, "loom-kb")
    given = dict(line.split("=", 1) for line in (tmp_path / "env").read_text("utf-8").splitlines())
    assert {"DEEPSEEK_API_KEY", "PYTHONPATH", "UV"} & given.keys() == set()
    assert given["PATH"] == os.environ["PATH"]
    assert given["HOME"] == os.environ["HOME"]
    assert (tmp_path / "pwd").read_text("utf-8") == "/\n"
    assert "DEEPSEEK_API_KEY" not in host_environment()


@pytest.mark.skipif(os.name == "nt", reason="scripts of a shell")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo 'No module named 织机' >&2; exit 1", "No module named 织机"),
        ("exit 3", "it ended with code 3"),
        ("echo 0.1.0", "0.1.0"),
        ("echo loom-flow-server 0.1.0", "loom-flow-server"),
    ],
)
def test_a_program_that_does_not_start_is_refused(text: str, said: str, tmp_path: Path) -> None:
    launch = _script(tmp_path, text)
    with pytest.raises(ConfigError, match="nothing was changed") as caught:
        check_launch(launch, "loom-kb")
    assert said in str(caught.value)
    assert f"{launch.command} --version" in caught.value.advice


@pytest.mark.parametrize("keeper", ["uv", "pipx"])
def test_what_is_not_fetched_again_is_to_be_installed_to_stay(keeper: str, tmp_path: Path) -> None:
    launch = Launch(str(tmp_path / "missing"), ("run", "loom-kb"), keeper=keeper)
    with pytest.raises(ConfigError, match="No such file") as caught:
        check_launch(launch, "loom-kb")
    assert caught.value.advice.startswith(f"Install it to stay ({keeper} ")
