"""The command line: what can be asked for.

Exit codes: 0 done, 1 an error (for `doctor` and `mcp test`: there is a problem), 2 wrong usage, 3 answered
without a source that was asked, 130 interrupted, 141 nobody reads the answer any more.
"""

from __future__ import annotations

import argparse
from functools import partial
from importlib.metadata import version
from pathlib import Path

from loom_core.paths import loom_home
from loom_core.server.cli.command_line import Commands, add_command
from loom_core.server.cli.standard_commands import (
    add_audit,
    add_doctor,
    add_install,
    add_mcp,
    add_profile,
    add_serve,
    add_token,
    program_parser,
)
from loom_query import PROGRAM
from loom_query.settings import Settings

__all__ = ["parser", "settings_of"]

_CONFIG = "query.json"
_PATTERNS = ("rag", "multi_query", "hierarchical")


def parser() -> argparse.ArgumentParser:
    """The parser of all arguments."""
    top, commands = program_parser(
        PROGRAM,
        description="One search over all your knowledge as an MCP server: local knowledge bases, knowledge"
        " services behind HTTP, other MCP servers. Without a command it serves MCP over stdio.",
    )
    declare = partial(_command, commands)
    add_profile(add_serve(declare))

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
    add_mcp(declare)
    add_install(declare, program=PROGRAM)
    add_token(declare, source_option="--source", source="source")
    add_audit(declare)
    add_doctor(declare, named="sources and folders")
    return top


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
