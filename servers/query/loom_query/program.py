"""The program of this server: what is its own in all that every server does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.server.cli.command_line import split_line
from loom_core.server.program import ServerProgram, run_server
from loom_query import PROGRAM
from loom_query.cli import parser, settings_of
from loom_query.introduction import introduction

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from loom_core.server.doctor.examination import Check
    from loom_core.server.protocol.factory import LoomServer
    from loom_query.settings import Settings

__all__ = ["SERVER", "run"]

_END_SECONDS = 10.0  # for children to end and a batch of a local base to be written


def _options(settings: Settings) -> list[str]:
    return ["--config", str(settings.config)] if settings.config_given else []


def _key_variables(settings: Settings) -> list[str]:
    from loom_core.server.install.front import model_variables
    from loom_query.configuration.query_file import read_query_file

    file = read_query_file(settings.config, required=settings.config_given)
    names = [*file.variables]
    if file.llm is not None:
        names += model_variables(file.llm)
    return list(dict.fromkeys(names))


def _unknown(settings: Settings, names: Sequence[str]) -> list[str]:
    from loom_query.federation.plan import plan

    known = {source.name for source in plan(settings).sources}
    return [name for name in names if name not in known]


def _build(settings: Settings) -> LoomServer:
    from loom_query.app import build

    return build(settings)


def _run_command(args: argparse.Namespace, settings: Settings) -> int:
    from loom_query.command_line.commands import run_command

    return run_command(args, settings)


def _examined_variables(settings: Settings) -> set[str]:
    from loom_query.command_line.doctor import variables

    return variables(settings)


def _own_checks(settings: Settings) -> list[Check]:
    from loom_query.command_line.doctor import own_checks

    return own_checks(settings)


SERVER = ServerProgram(
    name=PROGRAM,
    module="loom_query",
    description="One search over all your knowledge sources, with citations.",
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
"""loom-query-server, for the commands that every server has."""


def run(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code."""
    line, served = split_line(arguments)
    args = parser().parse_args(line)
    return run_server(SERVER, args, served)
