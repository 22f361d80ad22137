"""A user whose clients are configured, on a machine of its own."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from loom_core.server.cli.standard_commands import add_install_options, add_uninstall_options
from loom_core.server.install.clients import CLIENTS, Machine
from loom_core.server.install.command import InstallReport, Program, install, uninstall
from loom_core.server.install.launch import Interpreter

GOLDEN = Path(__file__).parent / "golden"


class RunInstall(Protocol):
    """Runs `install` or `uninstall` as a command line would."""

    def __call__(self, *options: str, variables: tuple[str, ...] = ...) -> InstallReport: ...


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with an empty home."""
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    return Machine("linux", tmp_path / "home", tmp_path / "project", {})


@pytest.fixture
def program(machine: Machine, tmp_path: Path) -> Program:
    """The program loom-kb, installed into a folder with a Chinese name."""
    scripts = tmp_path / "工具" / "bin"
    scripts.mkdir(parents=True)
    script = scripts / "loom-kb"
    script.write_text("#!/bin/sh\necho loom-kb 0.1.0\n", encoding="utf-8")
    script.chmod(0o755)
    interpreter = Interpreter(
        scripts / "python", scripts.parent, scripts, scripts.parent / "lib", environment={}, folder=tmp_path
    )
    return Program(
        name="loom-kb",
        module="loom_kb",
        description="A knowledge base.",
        interpreter=interpreter,
        machine=machine,
    )


@pytest.fixture
def shown() -> list[str]:
    """Return the plans that were shown before anything was written."""
    return []


@pytest.fixture
def run_install(program: Program, shown: list[str], monkeypatch: pytest.MonkeyPatch) -> RunInstall:
    """Installs for `serve --root /home/me/文档`, with a key in the environment."""
    monkeypatch.setenv("DEEPSEEK_API_KEY", "not-to-be-shown-9")
    parser = argparse.ArgumentParser()
    add_install_options(parser, program="loom-kb")

    def run(*options: str, variables: tuple[str, ...] = ("DEEPSEEK_API_KEY",)) -> InstallReport:
        arguments = ["serve", "--root", "/home/me/文档"]
        args = parser.parse_args(options)
        return install(program, args, arguments=arguments, variables=variables, show=shown.append)

    return run


@pytest.fixture
def run_uninstall(program: Program, shown: list[str]) -> RunInstall:
    parser = argparse.ArgumentParser()
    add_uninstall_options(parser, program="loom-kb")

    def run(*options: str, variables: tuple[str, ...] = ()) -> InstallReport:
        assert not variables
        return uninstall(program, parser.parse_args(options), show=shown.append)

    return run


@pytest.fixture
def file_of(machine: Machine) -> Callable[[str], Path]:
    """Where a client's configuration is; its folder is there."""

    def find(client: str) -> Path:
        path = Path(os.fspath(CLIENTS[client].user_file(machine)))
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    return find


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str, str], bytes]:
    """A golden file of a client by its first name, with this test's folder in the place of `/opt`."""

    def read(client: str, name: str) -> bytes:
        (path,) = (GOLDEN / client).glob(f"{name}.*")
        return path.read_bytes().replace(b"/opt/", f"{tmp_path}/".encode())

    return read
