"""The unit and the user of deploy/systemd."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parents[3] / "deploy" / "systemd"
_UNIT = _FOLDER / "loom@.service"
_SERVERS = {
    "kb": "loom_kb",
    "query-server": "loom_query",
    "flow-server": "loom_flow",
    "agent-server": "loom_agent",
}


def settings(name: str) -> list[str]:
    lines = _UNIT.read_text(encoding="utf-8").splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]


@pytest.mark.parametrize(("instance", "package"), _SERVERS.items())
def test_an_instance_is_the_end_of_a_commands_name(instance: str, package: str):
    parser = import_module(f"{package}.cli").SERVER.parser()
    [command] = settings("ExecStart")
    program, *line = shlex.split(command.replace("%i", instance).replace("$LOOM_OPTIONS", "--port 8766"))
    assert Path(program).name == parser.prog
    args = parser.parse_args(line)
    assert (args.http, args.tokens, args.port, args.host) == (True, True, 8766, "127.0.0.1")


def test_what_it_runs_as_is_made_by_the_other_file():
    [user] = settings("User")
    assert f"u {user} - " in (_FOLDER / "loom.conf").read_text(encoding="utf-8")


def test_its_folders_and_secrets_are_where_the_servers_look():
    said = " ".join(settings("Environment"))
    assert "LOOM_HOME=%S/loom" in said
    assert "XDG_RUNTIME_DIR=%t/loom" in said
    assert "LOOM_SECRETS_DIR=%d" in said
    assert "ORT_DISABLE_TELEMETRY=1" in said
    assert settings("SetCredential") == ["unit:%n"]  # without one, systemd 252 lets no one read the folder
    assert settings("StateDirectory") == settings("RuntimeDirectory") == ["loom"]


def _systemd_analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if sys.platform != "linux" or shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    command = ["systemd-analyze", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_systemd_has_nothing_to_say_against_it(tmp_path: Path):
    unit = tmp_path / "loom@kb.service"
    program = tmp_path / "loom-kb"
    program.touch(mode=0o755)
    unit.write_text(
        _UNIT.read_text(encoding="utf-8").replace("/opt/loom/bin/", f"{tmp_path}/"), encoding="utf-8"
    )
    done = _systemd_analyze("verify", unit)
    assert str(unit) not in done.stderr, done.stderr


def test_systemd_calls_its_exposure_low(tmp_path: Path):
    unit = tmp_path / "loom@.service"
    unit.write_text(_UNIT.read_text(encoding="utf-8"), encoding="utf-8")
    done = _systemd_analyze("--offline=yes", "--threshold=20", "security", unit)
    if "unrecognized option" in done.stderr or "Unknown option" in done.stderr:
        pytest.skip("this systemd-analyze looks at units that are loaded only")
    assert done.returncode == 0, done.stdout[-2000:]


def _recipe() -> list[str]:
    """The commands that docs/deployment.md has operators type, in their order."""
    page = (_FOLDER.parents[1] / "docs" / "deployment.md").read_text(encoding="utf-8")
    block = page.partition("\n## systemd\n")[2].partition("```sh\n")[2].partition("```")[0]
    return [command for line in block.splitlines() for command in line.split(" && ")]


def _paths(command: str) -> list[Path]:
    """The absolute paths in a command; also those in a line that it writes somewhere."""
    words = " ".join(shlex.split(command, comments=True)).split()
    return [Path(word) for word in words if word.startswith("/")]


def test_every_folder_of_the_recipe_is_there_when_it_is_used():
    there = {Path("/etc/systemd/system"), Path("/usr/lib/sysusers.d")}  # the system's own
    used: list[Path] = []
    for command in _recipe():
        paths = _paths(command)
        if command.startswith(("install -d ", "python3 -m venv ")):
            there |= set(paths)
        if command.startswith("systemctl enable "):
            [state] = settings("StateDirectory")
            there.add(Path("/var/lib") / state)
        used += [path for path in paths if not there & {path, *path.parents}]
    assert there >= {Path("/opt/loom"), Path("/etc/loom"), Path("/var/lib/loom")}
    assert used == []


def test_the_options_of_the_recipe_are_those_of_its_servers():
    given: dict[str, str] = {}
    for command in _recipe():
        if command.startswith("echo "):
            _, line, _, file = shlex.split(command)
            given[file] = line.removeprefix("LOOM_OPTIONS=")
    started = " ".join(command for command in _recipe() if command.startswith("systemctl enable "))
    for file, options in given.items():
        instance = Path(file).stem
        assert Path(file) == Path(f"/etc/loom/{instance}.env")
        assert f"loom@{instance}" in started.split()
        parser = import_module(f"{_SERVERS[instance]}.cli").SERVER.parser()
        parser.parse_args(["serve", "--http", "--tokens", *options.split()])
    assert len(given) == 2
