"""The option `--database` of all servers, where it puts a journal, and the command `move`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from pathlib import Path

    from loom_core.runs.journal import PostgresPlace
    from loom_core.server.cli.standard_commands import ServerCommands

__all__ = [
    "add_database_option",
    "add_move_command",
    "after_move",
    "database_setting",
    "journal_place",
    "move_journal",
    "move_target",
]

_VARIABLE = "LOOM_DATABASE"
_FILE = "file"


def add_database_option(
    command: ArgumentParser, *, what: str = "the journal of runs and the knowledge bases"
) -> None:
    """Add the option `--database` to a command.

    Args:
        command: the command.
        what: the server keeps in the database, for the help.
    """
    command.add_argument(
        "--database",
        default="",
        metavar="URL",
        help=f"PostgreSQL for {what}, such as postgresql://loom@db.example/loom, so that servers on several"
        " machines share them; its password in $LOOM_DATABASE_SECRET (default"
        f" ${_VARIABLE}, else files in Loom's folder)",
    )


def database_setting(given: str) -> str:
    """Return the database of the journal and the knowledge bases; empty for files.

    Args:
        given: the option; empty for the environment's.

    Raises:
        ConfigError: it is not a URL of PostgreSQL, or holds a password.
    """
    url = (given or os.environ.get(_VARIABLE, "")).strip()
    if url:
        from loom_core.storage.postgres_pool import check_address

        check_address(url)
    return url


def add_move_command(commands: ServerCommands, *, what: str = "the journal of runs") -> ArgumentParser:
    """Declare `move`.

    Args:
        commands: the commands of a server.
        what: it moves, for the help.
    """
    move = commands.add("move", f"copy {what} to PostgreSQL, or back to a file, and verify it")
    move.add_argument(
        "--to",
        required=True,
        metavar="URL",
        help=f"where to, such as postgresql://loom@db.example/loom; or `{_FILE}`, which is in Loom's folder",
    )
    move.epilog = (
        "Stop all servers that use it first. It stays where it is, unchanged; a command that was"
        " interrupted goes on where it stopped."
    )
    return move


def move_target(to: str) -> str:
    """Return the database that `--to` names; empty for a file.

    Raises:
        ConfigError: see `database_setting`.
    """
    return "" if to == _FILE else database_setting(to)


def after_move(database: str) -> str:
    """Return what to do after a move, for people.

    Args:
        database: the URL of the target; empty for a file.
    """
    if database:
        return f"Start each server with {_VARIABLE}={database} or --database {database}."
    return f"Start each server without {_VARIABLE} and --database."


def journal_place(database: str, *, name: str, file: Path) -> Path | PostgresPlace:
    """Return where the journal is: in a database, in a schema that ends with a name, or in a file."""
    if not database:
        return file
    from loom_core.runs.journal import PostgresPlace

    return PostgresPlace(database, name=name)


def move_journal(source: Path | PostgresPlace, target: Path | PostgresPlace, *, as_json: bool) -> int:
    """Copy a journal, say what to do next, and return the exit code. Blocks.

    Raises:
        LoomError: see `copy_journal`.
    """
    from loom_core.runs.journal import PostgresPlace
    from loom_core.runs.journal.store import copy_journal
    from loom_core.server.cli.console import ProgressBar, out, out_json

    bar = ProgressBar("copying and comparing", "rows")
    copy_journal(source, target, progress=lambda done, total: bar.show(done // 2, total // 2))
    following = after_move(target.url if isinstance(target, PostgresPlace) else "")
    if as_json:
        out_json({"from": str(source), "to": str(target), "next": following})
    else:
        out(f"All rows of {source} are in {target} now, too.\n{following}")
    return 0
