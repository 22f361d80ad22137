"""The command line of loom-query-server.

Exit codes: 0 done, 1 an error (for `doctor` and `mcp test`: there is a problem), 2 wrong usage, 3 answered
without a source that was asked, 130 interrupted, 141 no process reads the output any more.
"""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from loom_core.paths import loom_home
from loom_core.server.cli.database_option import add_database_option, database_setting
from loom_core.server.cli.option_types import whole_number
from loom_core.server.cli.standard_commands import ServerCommands, add_profile, configuration_file
from loom_core.server.program import ServerProgram
from loom_query import PROGRAM
from loom_query.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SERVER", "run"]

_CONFIG = "query.json"
_MOST_PASSAGES = 100
_PATTERNS = ("rag", "multi_query", "hierarchical")


class QueryServer(ServerProgram[Settings]):
    """The program of loom-query-server."""

    name = PROGRAM
    package = "loom_query"
    description = "One search over all your knowledge sources, with citations."
    end_seconds = 10.0  # for children to end and a batch of a local base to be written

    def parser(self) -> argparse.ArgumentParser:
        commands = ServerCommands(
            PROGRAM,
            description="One search over all your knowledge as an MCP server: local knowledge bases,"
            " knowledge services behind HTTP, other MCP servers. Without a command it serves MCP over stdio.",
            options=_options,
        )
        add_profile(commands.add_serve())

        query = commands.add("query", "ask all sources a question")
        _question(query)
        passages = whole_number(_MOST_PASSAGES)
        query.add_argument("--limit", type=passages, default=5, help="how many passages (default 5)")
        query.add_argument(
            "--detailed", action="store_true", help="with scores and why each passage was found"
        )

        fetch = commands.add("fetch", "read what a passage is from")
        fetch.add_argument("id", help="id of a passage, as `query` shows it")
        fetch.add_argument("--start", type=int, help="character to read from")
        fetch.add_argument(
            "--max-tokens", type=whole_number(), default=4000, help="limit of the text (default 4000)"
        )

        ask = commands.add("ask", "have a language model answer a question, with citations")
        _question(ask)
        ask.add_argument(
            "--pattern", choices=_PATTERNS, default="rag", help="how to find the passages for the answer"
        )
        ask.add_argument(
            "--limit", type=passages, default=10, help="how many passages to answer from (default 10)"
        )

        commands.add("sources", "list the sources, and what is wrong with any of them")
        commands.add_mcp()
        commands.add_install()
        commands.add_token(source_option="--source", source="source")
        commands.add_audit()
        commands.add_doctor(named="sources and folders")
        return commands.parser

    def settings_of(self, args: argparse.Namespace) -> Settings:
        home = loom_home(args.home)
        return Settings(
            home=home,
            config=configuration_file(args, home, default=_CONFIG),
            config_given=args.config is not None,
            database=database_setting(args.database),
            profile=getattr(args, "profile", "full"),
            version=version(PROGRAM),
        )

    def options(self, settings: Settings) -> list[str]:
        options = ["--config", str(settings.config)] if settings.config_given else []
        return options + (["--database", settings.database] if settings.database else [])

    def key_variables(self, settings: Settings) -> list[str]:
        from loom_core.server.install.terminal import model_variables
        from loom_core.storage.postgres_pool import SECRET_VARIABLE
        from loom_query.configuration.query_file import read_query_file

        file = read_query_file(settings.config, required=settings.config_given)
        names = [*file.variables, *([SECRET_VARIABLE] if settings.database else [])]
        if file.llm is not None:
            names += model_variables(file.llm)
        return list(dict.fromkeys(names))

    def unknown(self, settings: Settings, names: Sequence[str]) -> list[str]:
        from loom_query.federation.plan import plan

        known = {source.name for source in plan(settings).sources}
        return [name for name in names if name not in known]


SERVER = QueryServer()
"""loom-query-server, for the commands that every server has."""

run = SERVER.run
"""Run a command line; returns the exit code."""


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the file with the sources (default query.json in Loom's folder; without it, all knowledge"
        " bases there)",
    )
    add_database_option(command, what="the knowledge bases of loom-kb")


def _question(command: argparse.ArgumentParser) -> None:
    command.add_argument("question", nargs="+")
    command.add_argument(
        "--source", action="append", default=[], metavar="NAME", help="only this source (may be repeated)"
    )
    command.add_argument(
        "--filter", action="append", default=[], metavar="NAME=VALUE", help="such as tags=draft, path=docs/"
    )
