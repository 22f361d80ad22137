"""The program of this server: what is its own in all that every server does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_agent import PROGRAM
from loom_agent.cli import parser, settings_of
from loom_agent.introduction import introduction
from loom_core.errors import ConfigError
from loom_core.server.cli.command_line import split_line
from loom_core.server.program import ServerProgram, run_server

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from loom_agent.profiles.agent_file import AgentFile
    from loom_agent.settings import Settings
    from loom_core.server.doctor.examination import Check
    from loom_core.server.protocol.factory import LoomServer

__all__ = ["SERVER", "run"]

_END_SECONDS = 10.0  # for children to end and what runs have written to be on disk


def _options(settings: Settings) -> list[str]:
    options = ["--config", str(settings.config)] if settings.config_given else []
    options += ["--root", str(settings.root)] if settings.root else []
    return options + (["--provider", settings.provider] if settings.provider else [])


def _key_variables(settings: Settings) -> list[str]:
    from loom_agent.profiles.model_choice import chosen_model
    from loom_core.server.install.front import model_variables

    file = _file(settings)
    names = [*file.variables]
    for profile in file.profiles.values():
        try:
            config, _ = chosen_model(profile, settings)
        except ConfigError:  # it starts without, and says what to set
            continue
        names += model_variables(config)
    return list(dict.fromkeys(names))


def _unknown(settings: Settings, names: Sequence[str]) -> list[str]:
    profiles = _file(settings).profiles
    return [name for name in names if name not in profiles]


def _file(settings: Settings) -> AgentFile:
    from loom_agent.profiles.agent_file import read_agent_file

    return read_agent_file(settings.config, required=settings.config_given, provider=settings.provider)


def _build(settings: Settings) -> LoomServer:
    from loom_agent.app import build

    return build(settings)


def _run_command(args: argparse.Namespace, settings: Settings) -> int:
    from loom_agent.command_line.commands import run_command

    return run_command(args, settings)


def _examined_variables(settings: Settings) -> set[str]:
    from loom_agent.command_line.doctor import variables

    return variables(settings)


def _own_checks(settings: Settings) -> list[Check]:
    from loom_agent.command_line.doctor import own_checks

    return own_checks(settings)


SERVER = ServerProgram(
    name=PROGRAM,
    module="loom_agent",
    description="Autonomous agents whose runs survive restarts, with approvals and budgets.",
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
"""loom-agent-server, for the commands that every server has."""


def run(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code."""
    line, served = split_line(arguments)
    args = parser().parse_args(line)
    return run_server(SERVER, args, served)
