"""Where a server's journal is: the option `--database`, and the place that it stands for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from loom_core.runs.journal import PostgresPlace

__all__ = ["add_database_option", "database_setting", "journal_place"]

_VARIABLE = "LOOM_DATABASE"


def add_database_option(
    command: argparse.ArgumentParser, *, what: str = "the journal of runs and the knowledge bases"
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
        from loom_core.runs.journal import PostgresPlace

        PostgresPlace(url)
    return url


def journal_place(database: str, *, name: str, file: Path) -> Path | PostgresPlace:
    """Return where the journal is: in a database, in a schema that ends with a name, or in a file."""
    if not database:
        return file
    from loom_core.runs.journal import PostgresPlace

    return PostgresPlace(database, name=name)
