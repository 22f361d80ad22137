"""Server program: the command line that all servers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from loom_core.mcp_client.configuration.command_names import use_program
from loom_core.paths import token_path
from loom_core.server.cli.audit_command import run_audited
from loom_core.server.cli.command_line import (
    parse_line,
    run_to_exit_code,
    serve_from_arguments,
    split_line,
)

if TYPE_CHECKING:
    import argparse
    from types import ModuleType

    from loom_core.server.doctor.check_runner import Check
    from loom_core.server.install.command import Program
    from loom_core.server.protocol.factory import LoomServer
    from loom_core.server.protocol.handshake import Introduction

__all__ = ["HomeSettings", "ServerProgram", "run_server", "server_arguments"]


class HomeSettings(Protocol):
    """The settings of every server.

    Attributes:
        home: Loom's folder.
        version: version of the server.
    """

    @property
    def home(self) -> Path: ...  # noqa: D102

    @property
    def version(self) -> str: ...  # noqa: D102


_Settings = TypeVar("_Settings", bound=HomeSettings)


class ServerProgram(ABC, Generic[_Settings]):
    """Base class of a server's program; a subclass adds its own parts.

    Parts that are not needed for parsing are imported on demand, by their names in the server's package:
    `introduction.introduction(settings)`; `app.build(settings)` creates the server;
    `command_line.commands.run_command(args, settings)` runs its own commands; `command_line.doctor` has
    `own_checks(settings)` and `variables(settings)`.

    Attributes:
        name: its command, and the name of its distribution.
        package: the package behind the command.
        description: description of the server in a sentence, for clients.
        end_seconds: timeout of its shutdown.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    description: ClassVar[str]
    end_seconds: ClassVar[float] = 10.0

    @abstractmethod
    def parser(self) -> argparse.ArgumentParser:
        """Create the parser of its command line."""

    @abstractmethod
    def settings_of(self, args: argparse.Namespace) -> _Settings:
        """Return the settings from parsed arguments.

        Raises:
            ConfigError: the arguments are invalid.
        """

    @abstractmethod
    def options(self, settings: _Settings) -> list[str]:
        """Return the options of `serve` for these settings, without `--home`."""

    @abstractmethod
    def key_variables(self, settings: _Settings) -> list[str]:
        """Return the environment variables with the keys that a server with these settings needs.

        Raises:
            ConfigError: its configuration cannot be read.
        """

    @abstractmethod
    def unknown(self, settings: _Settings, names: Sequence[str]) -> list[str]:
        """Return those of a token's source names that do not exist.

        Raises:
            LoomError: a name is invalid, or the configuration cannot be read.
        """

    def parse(self, line: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments of the process."""
        return parse_line(self.parser(), line)

    def run(self, arguments: Sequence[str]) -> int:
        """Run a command line, and return the exit code."""
        line, served = split_line(arguments)
        return run_server(self, self.parse(line), served)

    def introduction(self, settings: _Settings) -> Introduction:
        """Return the server's introduction in the handshake; its name is the command's."""
        return self._part("introduction").introduction(settings)

    def build(self, settings: _Settings) -> LoomServer:
        """Create the server."""
        return self._part("app").build(settings)

    def run_command(self, args: argparse.Namespace, settings: _Settings) -> int:
        """Run one of its own commands, and return the exit code."""
        return self._part("command_line.commands").run_command(args, settings)

    def variables_to_check(self, settings: _Settings) -> set[str]:
        """Return the environment variables that may hold its keys; raises nothing."""
        return self._part("command_line.doctor").variables(settings)

    def own_checks(self, settings: _Settings) -> list[Check]:
        """Return the checks of `doctor` for this server, in addition to the common ones."""
        return self._part("command_line.doctor").own_checks(settings)

    def _part(self, module: str) -> ModuleType:
        return import_module(f"{self.package}.{module}")


def run_server(server: ServerProgram[_Settings], args: argparse.Namespace, served: Sequence[str] = ()) -> int:
    """Run a parsed command line to its end, and return the exit code. Blocks.

    Commands that change something are audited; errors go to standard error, see
    `command_line.run_to_exit_code`.

    Args:
        server: the program.
        args: the command and its options.
        served: the arguments after `--`: options of `serve`, or for `mcp add` a command line.
    """
    with use_program(server.name):
        run = partial(_run, server, args, served)
        return run_to_exit_code(server.name, partial(run_audited, server.name, args, run), debug=args.debug)


def _run(server: ServerProgram[_Settings], args: argparse.Namespace, served: Sequence[str]) -> int:
    if args.command == "serve":
        settings = server.settings_of(args)
        build = partial(server.build, settings)
        introduction = server.introduction(settings)
        return serve_from_arguments(
            introduction, build, args, home=settings.home, deadline=server.end_seconds
        )
    from loom_core.server.cli.console import accept_any_text

    accept_any_text()
    match args.command:
        case "install" | "uninstall":
            return _install(server, args, served)
        case "mcp":
            from loom_core.server.mcp_cli.terminal import run_mcp

            return run_mcp(_program_of(server), args, served)
        case "token":
            return _token(server, args)
        case "audit":
            from loom_core.server.cli.audit_command import run_audit_command

            return run_audit_command(args)
        case "doctor":  # it reports what prevents the other commands from working
            return _doctor(server, args)
        case _:
            return server.run_command(args, server.settings_of(args))


def _program_of(server: ServerProgram[_Settings]) -> Program:
    from loom_core.server.install.command import Program

    return Program(name=server.name, module=server.package, description=server.description)


def _install(server: ServerProgram[_Settings], args: argparse.Namespace, served: Sequence[str]) -> int:
    from loom_core.server.install.terminal import run_installing

    def launch_arguments() -> tuple[Sequence[str], Sequence[str]]:
        arguments = server_arguments(server, args, served)
        return arguments, server.key_variables(server.settings_of(server.parser().parse_args(arguments)))

    return run_installing(_program_of(server), args, served=launch_arguments)


def server_arguments(
    server: ServerProgram[_Settings], args: argparse.Namespace, served: Sequence[str] = ()
) -> list[str]:
    """List the options that a client must pass to a server: it starts elsewhere, with little environment.

    Args:
        server: the program.
        args: options of `install`.
        served: options of `serve` to pass on.

    Raises:
        InvalidInputError: an option of `serve` does not work there.
        ConfigError: as for `settings_of`.
    """
    from loom_core.server.install.terminal import check_served, home_arguments

    check_served(server.parser().parse_args(["serve", *served]))
    return ["serve", *home_arguments(args), *server.options(server.settings_of(args)), *served]


def _token(server: ServerProgram[_Settings], args: argparse.Namespace) -> int:
    from loom_core.server.auth.tokens import TokenFile
    from loom_core.server.cli.command_line import show_report
    from loom_core.server.cli.token_command import run_token_command

    settings = server.settings_of(args)
    # Before the token is created: its secret is shown once, and a later error would lose it.
    missing = server.unknown(settings, args.token_sources) if args.token_sources else []
    report = run_token_command(args, TokenFile(token_path(settings.home, server.name)))
    notes = [*report.notes, *(f"There is no {args.token_source} {name!r} yet." for name in missing)]
    show_report(replace(report, notes=notes), as_json=args.json)
    return 0


def _doctor(server: ServerProgram[_Settings], args: argparse.Namespace) -> int:
    import anyio

    from loom_core.server.cli.command_line import show_health
    from loom_core.server.doctor.checks import ExaminedServer, common_checks, run_paste_safe

    settings = server.settings_of(args)
    name = server.name
    common = ExaminedServer(
        program=name,
        module=server.package,
        home=settings.home,
        port=args.port,
        options=["--home", str(settings.home), *server.options(settings)],
        variables=server.variables_to_check(settings),
    )

    async def report() -> int:
        checks = [*common_checks(common), *server.own_checks(settings)]
        return show_health(
            await run_paste_safe(checks, program=name, version=settings.version), as_json=args.json
        )

    return anyio.run(report)
