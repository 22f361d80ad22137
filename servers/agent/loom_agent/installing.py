"""`loom-agent-server install` and `uninstall`: what this server adds to what every server has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_agent.agent_file import read_agent_file
from loom_agent.cli import PROGRAM, parser, settings_of
from loom_agent.model_choice import chosen_model
from loom_core.errors import ConfigError
from loom_core.server.install.command import Program
from loom_core.server.install.front import (
    absolute,
    check_served,
    home_arguments,
    model_variables,
    run_installing,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from loom_agent.settings import Settings

__all__ = ["THIS_PROGRAM", "installing", "key_variables", "served_arguments"]

THIS_PROGRAM = Program(
    name=PROGRAM,
    module="loom_agent",
    description="Autonomous agents whose runs survive restarts, with approvals and budgets.",
)


def installing(args: argparse.Namespace, served: Sequence[str]) -> int:
    """Run one of the two commands; returns the exit code.

    Args:
        args: its options.
        served: what stands after `--`: options of `serve`.

    Raises:
        LoomError: nothing was changed; the message says why.
    """

    def handed() -> tuple[Sequence[str], Sequence[str]]:
        arguments = served_arguments(args, served)
        return arguments, key_variables(settings_of(parser().parse_args(arguments)))

    return run_installing(THIS_PROGRAM, args, served=handed)


def served_arguments(args: argparse.Namespace, served: Sequence[str]) -> list[str]:
    """What a client is to give to the server: it is started in another folder, with hardly any environment.

    Raises:
        InvalidInputError: an option of `serve` makes no sense there.
    """
    check_served(parser().parse_args(["serve", *served]))
    options = [*home_arguments(args)]
    for option, path in (("--config", args.config), ("--root", args.root)):
        options += [option, absolute(path)] if path else []
    options += ["--provider", args.provider] if args.provider else []
    return ["serve", *options, *served]


def key_variables(settings: Settings) -> list[str]:
    """The environment variables that hold the keys of a server with these settings.

    Raises:
        ConfigError: the configuration cannot be read.
    """
    file = read_agent_file(settings.config, required=settings.config_given, provider=settings.provider)
    names = [*file.variables]
    for profile in file.profiles.values():
        try:
            config, _ = chosen_model(profile, settings)
        except ConfigError:  # it starts without, and says what to set
            continue
        names += model_variables(config)
    return list(dict.fromkeys(names))
