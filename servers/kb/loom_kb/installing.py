"""`loom-kb install` and `loom-kb uninstall`: what this server adds to the commands that every server has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from loom_core.errors import InvalidInputError
from loom_core.server.install.command import Program, install, uninstall
from loom_kb.cli import checked_settings, parser, settings_of
from loom_kb.console import out, out_json, say
from loom_kb.language_model import NO_MODEL, chosen, configuration

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from loom_kb.settings import Settings

__all__ = ["key_variables", "run_installing", "served_arguments"]

_DESCRIPTION = "Answers from your own documents, with their sources."


def run_installing(args: argparse.Namespace, served: Sequence[str]) -> int:
    """Run one of the two commands; returns the exit code.

    Args:
        args: its options.
        served: what stands after `--`: options of `serve`.

    Raises:
        LoomError: nothing was changed; the message says why.
    """
    program = Program(name="loom-kb", module="loom_kb", description=_DESCRIPTION)

    def show(diff: str) -> None:
        if not args.json:
            out(diff)

    if args.command == "uninstall":
        report = uninstall(program, args, show=show)
    else:
        arguments = served_arguments(args, served)
        settings = checked_settings(settings_of(parser().parse_args(arguments)))
        report = install(program, args, arguments=arguments, variables=key_variables(settings), show=show)
    if args.json:
        out_json(report)
    elif report.action == "printed":
        out(report.snippet.rstrip("\n"))
        for line in report.lines():
            say(line)
    else:
        for line in report.lines():
            out(line)
    return 0


def served_arguments(args: argparse.Namespace, served: Sequence[str]) -> list[str]:
    """What a client is to give to `loom-kb`: it is started in another folder, with hardly any environment.

    Raises:
        InvalidInputError: an option of `serve` makes no sense there.
    """
    serve = parser().parse_args(["serve", *served])
    if serve.http:
        raise InvalidInputError(
            "A client starts the server over standard input and output, not --http.",
            advice="Leave --http out; a server that runs by itself is named in the client by its URL.",
        )
    for path in _paths(serve):
        if not path.expanduser().is_absolute():
            raise InvalidInputError(
                f"The client starts the server in another folder, where {path} is something else.",
                advice=f"Write {path.absolute()}.",
            )
    arguments = ["serve"]
    if args.home or os.environ.get("LOOM_HOME"):
        arguments += ["--home", _absolute(args.home or Path(os.environ["LOOM_HOME"]))]
    if args.embedder != "auto":
        arguments += ["--embedder", args.embedder]
    if model := chosen(args.llm):
        arguments += ["--llm", model]
    for name in args.kb:
        arguments += ["--kb", name]
    for root in args.root:
        arguments += ["--root", _absolute(root)]
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
    from loom_core.llm.vendors import VENDORS

    first = ProviderConfig.of(configuration(choice))
    for config in (first, *first.fallbacks):
        vendor = VENDORS.get(config.provider)
        usual = f"env:{vendor.key_variable}" if vendor and vendor.needs_key else ""
        for reference in (config.api_key or usual, *config.headers.values()):
            place, _, name = reference.partition(":")
            if place == "env":
                yield name


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


def _paths(args: argparse.Namespace) -> Iterator[Path]:
    """Every path among parsed options."""
    for value in vars(args).values():
        values = cast("list[object]", value) if isinstance(value, list) else [value]
        yield from (each for each in values if isinstance(each, Path))


def _absolute(path: Path) -> str:
    return str(path.expanduser().absolute())
