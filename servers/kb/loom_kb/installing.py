"""`loom-kb install` and `loom-kb uninstall`: what this server adds to the commands that every server has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.server.install.command import Program
from loom_core.server.install.front import (
    absolute,
    check_served,
    home_arguments,
    model_variables,
    run_installing,
)
from loom_kb.cli import checked_settings, parser, settings_of
from loom_kb.language_model import NO_MODEL, chosen, configuration

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from loom_kb.settings import Settings

__all__ = ["installing", "key_variables", "served_arguments"]

_PROGRAM = Program(
    name="loom-kb", module="loom_kb", description="Answers from your own documents, with their sources."
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
        settings = checked_settings(settings_of(parser().parse_args(arguments)))
        return arguments, key_variables(settings)

    return run_installing(_PROGRAM, args, served=handed)


def served_arguments(args: argparse.Namespace, served: Sequence[str]) -> list[str]:
    """What a client is to give to `loom-kb`: it is started in another folder, with hardly any environment.

    Raises:
        InvalidInputError: an option of `serve` makes no sense there.
    """
    check_served(parser().parse_args(["serve", *served]))
    arguments = ["serve", *home_arguments(args)]
    if args.embedder != "auto":
        arguments += ["--embedder", args.embedder]
    if model := chosen(args.llm):
        arguments += ["--llm", model]
    for name in args.kb:
        arguments += ["--kb", name]
    for root in args.root:
        arguments += ["--root", absolute(root)]
    return [*arguments, *served]


def key_variables(settings: Settings) -> list[str]:
    """The environment variables that hold the keys of a server with these settings.

    Raises:
        ConfigError: what is said of a model is wrong.
    """
    return list(dict.fromkeys([*_of_language_model(settings.llm), *_of_embedder(settings.embedder)]))


def _of_language_model(choice: str) -> Iterator[str]:
    if not choice or choice == NO_MODEL:
        return
    from loom_core.llm.config import ProviderConfig

    yield from model_variables(ProviderConfig.of(configuration(choice)))


def _of_embedder(choice: str) -> Iterator[str]:
    from loom_core.embedding.registry import is_remote
    from loom_core.embedding.remote_config import config_of_text
    from loom_core.embedding.vendors import EMBEDDING_VENDORS

    config = config_of_text(choice)
    if config is None or not is_remote(config):
        return
    vendor = EMBEDDING_VENDORS.get(str(config.get("provider")))
    if name := config.get("api_key_env") or (vendor and vendor.needs_key and vendor.key_variable):
        yield str(name)
