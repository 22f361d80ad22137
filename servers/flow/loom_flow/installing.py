"""`loom-agent-server install` and `uninstall`: what this server adds to what every server has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.flow.config import read_flow_file
from loom_core.server.install.command import Program
from loom_core.server.install.front import (
    absolute,
    check_served,
    home_arguments,
    model_variables,
    run_installing,
)
from loom_flow.cli import PROGRAM, parser, settings_of
from loom_flow.model_choice import chosen_model

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from loom_flow.settings import Settings

__all__ = ["THIS_PROGRAM", "installing", "key_variables", "served_arguments"]

THIS_PROGRAM = Program(
    name=PROGRAM,
    module="loom_flow",
    description="Business flows: rules first, then a model; questions, confirmations, durable steps.",
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
    options += ["--config", absolute(args.config)] if args.config else []
    options += ["--provider", args.provider] if args.provider else []
    return ["serve", *options, *served]


def key_variables(settings: Settings) -> list[str]:
    """The environment variables that hold the keys of a server with these settings.

    Raises:
        ConfigError: the configuration cannot be read.
    """
    if (
        not settings.config_given and not settings.config.exists()
    ):  # it starts without, and says what to write
        return []
    loaded = read_flow_file(settings.config)
    config = chosen_model(loaded.file, settings)
    names = [*loaded.variables, *(model_variables(config) if config else ())]
    return list(dict.fromkeys(names))
