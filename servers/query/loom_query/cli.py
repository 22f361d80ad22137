"""The command line: what can be asked for.

Exit codes: 0 done, 1 an error (for `doctor` and `mcp test`: there is a problem), 2 wrong usage, 3 answered
without a source that was asked, 130 interrupted, 141 nobody reads the answer any more.
"""

from __future__ import annotations

import argparse
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from loom_core.paths import loom_home
from loom_core.server.command_line import Commands, add_command, ended, serve_as_asked, split_line
from loom_core.server.http_options import add_http_options
from loom_core.server.install.options import add_install_options, add_uninstall_options
from loom_query.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.server.factory import LoomServer

__all__ = ["PROGRAM", "parser", "run", "settings_of"]

PROGRAM = "loom-query-server"

_CONFIG = "query.json"
_END_SECONDS = 10.0  # for children to end and a batch of a local base to be written
_PATTERNS = ("rag", "multi_query", "hierarchical")


def parser() -> argparse.ArgumentParser:
    """The parser of all arguments."""
    top = argparse.ArgumentParser(
        prog=PROGRAM,
        description="One search over all your knowledge as an MCP server: local knowledge bases, knowledge"
        " services behind HTTP, other MCP servers. Without a command it serves MCP over stdio.",
    )
    top.add_argument("--version", action="version", version=f"{PROGRAM} {version(PROGRAM)}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    serve = _command(commands, "serve", "serve MCP over stdio (the default), or over HTTP")
    add_http_options(serve)
    serve.add_argument(
        "--profile", choices=["full", "chatgpt"], default="full", help="`chatgpt`: exactly search and fetch"
    )

    query = _command(commands, "query", "ask all sources a question")
    _question(query)
    query.add_argument("--limit", type=int, default=5, help="how many passages (default 5)")
    query.add_argument("--detailed", action="store_true", help="with scores and why each passage was found")

    fetch = _command(commands, "fetch", "read what a passage is from")
    fetch.add_argument("id", help="id of a passage, as `query` shows it")
    fetch.add_argument("--start", type=int, help="character to read from")
    fetch.add_argument("--max-tokens", type=int, default=4000, help="limit of the text (default 4000)")

    ask = _command(commands, "ask", "have a language model answer a question, with citations")
    _question(ask)
    ask.add_argument("--pattern", choices=_PATTERNS, default="rag", help="how it finds what it answers from")
    ask.add_argument("--limit", type=int, default=10, help="how many passages to answer from (default 10)")

    _command(commands, "sources", "list the sources, and what is wrong with any of them")
    _mcp(commands)
    _installing(commands)
    _tokens(commands)
    _doctor(commands)
    return top


def run(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code."""
    line, served = split_line(arguments)
    args = parser().parse_args(line)
    return ended(PROGRAM, partial(_run, args, served), debug=args.debug)


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that arguments ask for."""
    home = loom_home(args.home)
    given: Path | None = args.config
    return Settings(
        home=home,
        config=given.expanduser().absolute() if given else home / _CONFIG,
        config_given=given is not None,
        profile=getattr(args, "profile", "full"),
        version=version(PROGRAM),
    )


def _run(args: argparse.Namespace, served: Sequence[str]) -> int:
    if args.command == "serve":
        return _serve(args)
    from loom_core.server.console import accept_any_text

    accept_any_text()
    if args.command in {"install", "uninstall"}:
        from loom_query.installing import installing

        return installing(args, served)
    from loom_query.commands import run_command

    return run_command(args, settings_of(args), served)


def _serve(args: argparse.Namespace) -> int:
    settings = settings_of(args)

    def build() -> LoomServer:
        from loom_query.app import build as build_app

        return build_app(settings)

    return serve_as_asked(PROGRAM, build, args, home=settings.home, deadline=_END_SECONDS)


def _command(commands: Commands, name: str, text: str) -> argparse.ArgumentParser:
    command = add_command(commands, name, text)
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="which file names the sources (default query.json in Loom's folder; without it, all knowledge"
        " bases there)",
    )
    return command


def _question(command: argparse.ArgumentParser) -> None:
    command.add_argument("question", nargs="+")
    command.add_argument(
        "--source", action="append", default=[], metavar="NAME", help="only this source (may be repeated)"
    )
    command.add_argument(
        "--filter", action="append", default=[], metavar="NAME=VALUE", help="such as tags=draft, path=docs/"
    )


def _mcp(commands: Commands) -> None:
    from loom_core.server.mcp_options import add_mcp_options

    command = _command(commands, "mcp", "list, add, remove, test, trust or import other MCP servers")
    add_mcp_options(command)


def _installing(commands: Commands) -> None:
    install = _command(commands, "install", "put this server into the configuration of an MCP client")
    add_install_options(install, program=PROGRAM)
    uninstall = _command(commands, "uninstall", "take this server out of the configuration of an MCP client")
    add_uninstall_options(uninstall, program=PROGRAM)


def _tokens(commands: Commands) -> None:
    from loom_core.server.token_command import add_token_options

    token = _command(commands, "token", "make, list or revoke tokens for `serve --http --tokens`")
    add_token_options(token, source_option="--source", source="source")


def _doctor(commands: Commands) -> None:
    doctor = _command(commands, "doctor", "look quickly whether anything is wrong, and change nothing")
    doctor.add_argument("--port", type=int, default=8765, help="what `serve --http` would use (default 8765)")
    doctor.epilog = (
        "Exit code 0 if there is no problem (there may be warnings), 1 if there is one. The answer holds no"
        " key and can be pasted into an issue; names of sources and folders stand in it."
    )
