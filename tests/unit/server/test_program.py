"""What every server's command line does alike, by a small server and by all of ours."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import loom_agent.cli
import loom_flow.cli
import loom_kb.cli
import loom_query.cli
import pytest

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.paths import token_path
from loom_core.server.cli.standard_commands import ServerCommands
from loom_core.server.doctor.check_runner import Check
from loom_core.server.program import ServerProgram, run_server, server_arguments
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.handshake import Introduction

NAME = "loom-kb"  # whose distribution is here; the program is not started
STANDARD = {"serve", "install", "uninstall", "token", "audit", "doctor"}


@dataclass(frozen=True, slots=True)
class Shelf:
    """Settings of the small server."""

    home: Path
    colour: str = ""
    version: str = "1"


def coloured(command: argparse.ArgumentParser) -> None:
    command.add_argument("--colour", default="")


class ShelfServer(ServerProgram[Shelf]):
    name = NAME
    package = "loom_kb"
    description = "Shelves."
    end_seconds = 1.0

    def parser(self) -> argparse.ArgumentParser:
        commands = ServerCommands(NAME, description="Shelves.", options=coloured)
        commands.add_serve()
        commands.add_install()
        commands.add_token(source_option="--shelf", source="shelf")
        commands.add_audit()
        commands.add_doctor(named="shelves")
        commands.add("dust", "dust the shelves")
        return commands.parser

    def settings_of(self, args: argparse.Namespace) -> Shelf:
        return Shelf(args.home, getattr(args, "colour", ""))

    def introduction(self, settings: Shelf) -> Introduction:
        return Introduction(name=NAME, version=settings.version, title="Shelves")

    def build(self, settings: Shelf) -> LoomServer:
        return LoomServer(NAME, version=settings.version, title="Shelves")

    def run_command(self, args: argparse.Namespace, settings: Shelf) -> int:
        sys.stdout.write(f"{args.command} {settings.home.name}\n")
        return 7

    def options(self, settings: Shelf) -> list[str]:
        return ["--colour", settings.colour] if settings.colour else []

    def key_variables(self, settings: Shelf) -> list[str]:
        return [f"{settings.colour.upper()}_KEY"]

    def unknown(self, settings: Shelf, names: Sequence[str]) -> list[str]:
        if settings.colour == "unreadable":
            raise ConfigError("Nobody knows the shelves.")
        return [name for name in names if name != "书架"]

    def variables_to_check(self, settings: Shelf) -> set[str]:
        return set()

    def own_checks(self, settings: Shelf) -> list[Check]:
        return []


SERVER = ShelfServer()


@pytest.fixture
def run(home, capsys):
    """Runs a command: its exit code, and what it has written to standard output and standard error."""

    def run(name, *line, served=()):
        args = SERVER.parser().parse_args([name, "--home", str(home), *line])
        code = run_server(SERVER, args, served)
        return code, *capsys.readouterr()

    return run


def test_a_client_is_told_what_the_settings_come_to_and_what_is_handed_on(run, home, monkeypatch):
    monkeypatch.setenv("红_KEY", "x")
    code, out, err = run("install", "--print", "--colour", "红", served=["--log-level", "debug"])
    (entry,) = json.loads(out)["mcpServers"].values()
    expected = ["serve", "--home", str(home), "--colour", "红", "--log-level", "debug"]
    assert (code, entry["args"][-len(expected) :]) == (0, expected)
    assert "红_KEY" in err


def test_options_that_make_no_sense_for_a_client_are_refused(home):
    args = SERVER.parser().parse_args(["install", "zed", "--home", str(home)])
    with pytest.raises(InvalidInputError):
        server_arguments(SERVER, args, ["--http"])


def test_a_token_for_what_is_not_there_yet_is_made_and_that_is_said(run):
    code, out, err = run("token", "create", "laptop", "--shelf", "书架", "--shelf", "b")
    assert code == 0
    assert out.strip()
    assert "There is no shelf 'b' yet." in err
    assert "no shelf '书架'" not in err


def test_no_token_is_made_where_it_cannot_be_said_what_it_is_for(run, home):
    code, out, err = run("token", "create", "laptop", "--shelf", "b", "--colour", "unreadable")
    assert (code, out, err) == (1, "", "loom-kb: Nobody knows the shelves.\n")
    assert not token_path(home, NAME).exists()


def test_a_command_of_the_server_itself_is_run_by_it(run, home):
    assert run("dust") == (7, f"dust {home.name}\n", "")


def test_the_audit_is_shown_by_every_server(run):
    code, out, _ = run("audit", "show", "--json")
    assert code == 0
    assert json.loads(out)


@pytest.mark.parametrize("cli", [loom_kb.cli, loom_query.cli, loom_agent.cli, loom_flow.cli])
def test_every_server_has_the_same_commands_in_the_same_words(cli):
    def told(top: argparse.ArgumentParser) -> dict[str, str]:
        (commands,) = [each for each in top._actions if isinstance(each, argparse._SubParsersAction)]
        return {name: str(each.description) for name, each in commands.choices.items()}

    ours, theirs = told(SERVER.parser()), told(cli.SERVER.parser())
    assert ours.keys() == STANDARD | {"dust"}
    assert {name: theirs[name] for name in STANDARD} == {name: ours[name] for name in STANDARD}


@pytest.mark.parametrize("cli", [loom_kb.cli, loom_query.cli, loom_agent.cli, loom_flow.cli])
def test_every_server_has_its_parts_where_they_are_looked_for(cli):
    parts = {
        "introduction": ["introduction"],
        "app": ["build"],
        "command_line.commands": ["run_command"],
        "command_line.doctor": ["own_checks", "variables"],
    }
    for module, names in parts.items():
        part = import_module(f"{cli.SERVER.package}.{module}")
        assert all(callable(getattr(part, name)) for name in names)
