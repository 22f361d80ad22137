"""The program of a server: what every one does alike on its command line, and what is its own in that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from loom_core.mcp_client.configuration.command_names import named_by
from loom_core.paths import token_path
from loom_core.server.cli.audited_command import audited
from loom_core.server.cli.command_line import ended, serve_as_asked

if TYPE_CHECKING:
    import argparse

    from loom_core.server.doctor.examination import Check
    from loom_core.server.install.command import Program
    from loom_core.server.protocol.factory import LoomServer
    from loom_core.server.protocol.handshake import Introduction

__all__ = ["HomeSettings", "ServerProgram", "run_server", "served_arguments"]


class HomeSettings(Protocol):
    """What the settings of every server have.

    Attributes:
        home: Loom's folder.
        version: of the server.
    """

    @property
    def home(self) -> Path: ...  # noqa: D102

    @property
    def version(self) -> str: ...  # noqa: D102


_Settings = TypeVar("_Settings", bound=HomeSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProgram(Generic[_Settings]):
    """What is a server's own. Its functions import what they need when they are called, not before.

    Attributes:
        name: its command, and the name of its distribution.
        module: the module behind the command.
        description: what it does, in a sentence, for clients.
        end_seconds: how long it may take to end.
        parser: makes the parser of its command line.
        settings_of: the settings that arguments ask for; raises `ConfigError` where it cannot be started with
            them.
        introduction: what the server tells of itself; its name is the command's.
        build: makes the server.
        run_command: runs a command of its own; gives the exit code.
        options: the options of `serve` that make such settings, beside `--home`.
        key_variables: the environment variables that hold the keys of a server with such settings; raises
            `ConfigError` where its configuration cannot be read.
        unknown: which of these names, that a token is to be bound to, are of nothing that is there; raises
            `LoomError` where a name cannot be one, or the configuration cannot be read.
        examined_variables: the environment variables that may hold keys it uses; it raises nothing.
        own_checks: what `doctor` looks at for this server beside what it looks at for any.
    """

    name: str
    module: str
    description: str
    end_seconds: float
    parser: Callable[[], argparse.ArgumentParser]
    settings_of: Callable[[argparse.Namespace], _Settings]
    introduction: Callable[[_Settings], Introduction]
    build: Callable[[_Settings], LoomServer]
    run_command: Callable[[argparse.Namespace, _Settings], int]
    options: Callable[[_Settings], list[str]]
    key_variables: Callable[[_Settings], list[str]]
    unknown: Callable[[_Settings, Sequence[str]], list[str]]
    examined_variables: Callable[[_Settings], set[str]]
    own_checks: Callable[[_Settings], list[Check]]


def run_server(server: ServerProgram[_Settings], args: argparse.Namespace, served: Sequence[str] = ()) -> int:
    """Run a parsed command line to its end; gives the exit code. Blocks.

    What matters is on the audit; what is wrong is told on standard error, see `command_line.ended`.

    Args:
        server: whose command line it is.
        args: the command and its options.
        served: what stands behind `--`: options of `serve`, or for `mcp add` a command line.
    """
    with named_by(server.name):
        run = partial(_run, server, args, served)
        return ended(server.name, partial(audited, server.name, args, run), debug=args.debug)


def _run(server: ServerProgram[_Settings], args: argparse.Namespace, served: Sequence[str]) -> int:
    if args.command == "serve":
        settings = server.settings_of(args)
        build = partial(server.build, settings)
        introduction = server.introduction(settings)
        return serve_as_asked(introduction, build, args, home=settings.home, deadline=server.end_seconds)
    from loom_core.server.cli.console import accept_any_text

    accept_any_text()
    match args.command:
        case "install" | "uninstall":
            return _install(server, args, served)
        case "mcp":
            from loom_core.server.mcp_cli.front import run_mcp

            return run_mcp(_installed(server), args, served)
        case "token":
            return _token(server, args)
        case "audit":
            from loom_core.server.cli.audit_command import run_audit_command

            return run_audit_command(args)
        case "doctor":  # it examines what keeps the others from working
            return _doctor(server, args)
        case _:
            return server.run_command(args, server.settings_of(args))


def _installed(server: ServerProgram[_Settings]) -> Program:
    from loom_core.server.install.command import Program

    return Program(name=server.name, module=server.module, description=server.description)


def _install(server: ServerProgram[_Settings], args: argparse.Namespace, served: Sequence[str]) -> int:
    from loom_core.server.install.front import run_installing

    def handed() -> tuple[Sequence[str], Sequence[str]]:
        arguments = served_arguments(server, args, served)
        return arguments, server.key_variables(server.settings_of(server.parser().parse_args(arguments)))

    return run_installing(_installed(server), args, served=handed)


def served_arguments(
    server: ServerProgram[_Settings], args: argparse.Namespace, served: Sequence[str] = ()
) -> list[str]:
    """What a client is to give to a server: it is started in another folder, with hardly any environment.

    Args:
        server: the one.
        args: options of `install`.
        served: options of `serve`, as they are to be handed on.

    Raises:
        InvalidInputError: an option of `serve` makes no sense there.
        ConfigError: as `settings_of`.
    """
    from loom_core.server.install.front import check_served, home_arguments

    check_served(server.parser().parse_args(["serve", *served]))
    return ["serve", *home_arguments(args), *server.options(server.settings_of(args)), *served]


def _token(server: ServerProgram[_Settings], args: argparse.Namespace) -> int:
    from loom_core.server.auth.tokens import TokenFile
    from loom_core.server.cli.command_line import show_report
    from loom_core.server.cli.token_command import run_token_command

    settings = server.settings_of(args)
    # Before the token is made: its secret is shown once, and an error behind that would lose it.
    missing = server.unknown(settings, args.token_sources) if args.token_sources else []
    report = run_token_command(args, TokenFile(token_path(settings.home, server.name)))
    notes = [*report.notes, *(f"There is no {args.token_source} {name!r} yet." for name in missing)]
    show_report(replace(report, notes=notes), as_json=args.json)
    return 0


def _doctor(server: ServerProgram[_Settings], args: argparse.Namespace) -> int:
    import anyio

    from loom_core.server.cli.command_line import show_health
    from loom_core.server.doctor.checks import ExaminedServer, common_checks, examined

    settings = server.settings_of(args)
    name = server.name
    common = ExaminedServer(
        program=name,
        module=server.module,
        home=settings.home,
        port=args.port,
        options=["--home", str(settings.home), *server.options(settings)],
        variables=server.examined_variables(settings),
    )

    async def report() -> int:
        checks = [*common_checks(common), *server.own_checks(settings)]
        return show_health(await examined(checks, program=name, version=settings.version), as_json=args.json)

    return anyio.run(report)
