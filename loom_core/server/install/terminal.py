"""The commands `install` and `uninstall` at a terminal."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from loom_core.errors import InvalidInputError
from loom_core.server.cli.console import out, out_json, say
from loom_core.server.install.command import install, uninstall

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from loom_core.llm.config import ProviderConfig
    from loom_core.server.install.command import Program

__all__ = ["absolute", "check_served", "home_arguments", "model_variables", "run_installing"]


def run_installing(
    program: Program,
    args: argparse.Namespace,
    *,
    served: Callable[[], tuple[Sequence[str], Sequence[str]]],
) -> int:
    """Run `install` or `uninstall`; return the exit code.

    Args:
        program: the server.
        args: the command's options.
        served: returns the server's arguments, and the environment variables with its keys; called for
            `install` only.

    Raises:
        LoomError: nothing was changed; the message says why.
    """

    def show(diff: str) -> None:
        if not args.json:
            out(diff)

    if args.command == "uninstall":
        report = uninstall(program, args, show=show)
    else:
        arguments, variables = served()
        report = install(program, args, arguments=arguments, variables=variables, show=show)
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


def check_served(serve: argparse.Namespace) -> None:
    """Check options of `serve` for an entry: the client starts the server in another folder.

    Raises:
        InvalidInputError: an option does not work there.
    """
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


def home_arguments(args: argparse.Namespace) -> list[str]:
    """Return the option for Loom's folder, if it is not the default one."""
    if args.home or os.environ.get("LOOM_HOME"):
        return ["--home", absolute(args.home or Path(os.environ["LOOM_HOME"]))]
    return []


def absolute(path: Path) -> str:
    """Make a path absolute."""
    return str(path.expanduser().absolute())


def model_variables(config: ProviderConfig) -> Iterator[str]:
    """Return the environment variables with the keys of a language model and of its fallbacks."""
    from loom_core.llm.vendors import VENDORS

    for each in (config, *config.fallbacks):
        vendor = VENDORS.get(each.provider)
        usual = f"env:{vendor.key_variable}" if vendor and vendor.needs_key else ""
        for reference in (each.api_key or usual, *each.headers.values()):
            place, _, name = reference.partition(":")
            if place == "env":
                yield name


def _paths(args: argparse.Namespace) -> Iterator[Path]:
    """Return the paths among parsed options."""
    for value in vars(args).values():
        values = cast("list[object]", value) if isinstance(value, list) else [value]
        yield from (each for each in values if isinstance(each, Path))
