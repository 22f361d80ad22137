"""The program of this server: what is its own in all that every server does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from loom_core.server.cli.command_line import parsed, split_line
from loom_core.server.program import ServerProgram, run_server
from loom_flow import PROGRAM
from loom_flow.cli import parser, settings_of
from loom_flow.introduction import introduction

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from loom_core.server.doctor.examination import Check
    from loom_core.server.protocol.factory import LoomServer
    from loom_flow.settings import Settings

__all__ = ["SERVER", "run"]

_END_SECONDS = 10.0  # for what must not be done twice to end, and what runs have written to be on disk


def _options(settings: Settings) -> list[str]:
    from loom_flow.invocation import own_options

    options = own_options(replace(settings, home_given=False))
    return options + (["--provider", settings.provider] if settings.provider else [])


def _key_variables(settings: Settings) -> list[str]:
    from loom_core.flow.config import read_flow_file
    from loom_core.server.install.front import model_variables
    from loom_flow.model_choice import chosen_model

    if not settings.config_given and not settings.config.exists():
        return []  # it starts without, and says what to write
    loaded = read_flow_file(settings.config)
    config = chosen_model(loaded.file, settings)
    names = [*loaded.variables, *(model_variables(config) if config else ())]
    return list(dict.fromkeys(names))


def _unknown(settings: Settings, names: Sequence[str]) -> list[str]:
    from loom_core.flow.config import read_flow_file

    file = read_flow_file(settings.config).file
    return [name for name in names if file.flow(name) is None]


def _build(settings: Settings) -> LoomServer:
    from loom_flow.app import build

    return build(settings)


def _run_command(args: argparse.Namespace, settings: Settings) -> int:
    from loom_flow.command_line.config_commands import CONFIG_COMMANDS

    if args.command in CONFIG_COMMANDS:
        return CONFIG_COMMANDS[args.command](args, settings)
    from loom_flow.command_line.run_commands import run_with_service

    return run_with_service(args, settings)


def _examined_variables(settings: Settings) -> set[str]:
    from loom_flow.command_line.doctor import variables

    return variables(settings)


def _own_checks(settings: Settings) -> list[Check]:
    from loom_flow.command_line.doctor import own_checks

    return own_checks(settings)


SERVER = ServerProgram(
    name=PROGRAM,
    module="loom_flow",
    description="Business flows: rules first, then a model; questions, confirmations, durable steps.",
    end_seconds=_END_SECONDS,
    parser=parser,
    settings_of=settings_of,
    introduction=introduction,
    build=_build,
    run_command=_run_command,
    options=_options,
    key_variables=_key_variables,
    unknown=_unknown,
    examined_variables=_examined_variables,
    own_checks=_own_checks,
)
"""loom-flow-server, for the commands that every server has."""


def run(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code."""
    line, served = split_line(arguments)
    args = parsed(parser(), line)
    return run_server(SERVER, args, served)
