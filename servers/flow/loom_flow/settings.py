"""Settings of the server, and command lines with them in messages to users."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.paths import audit_path
from loom_core.server.cli.database_option import journal_place
from loom_flow import PROGRAM

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.runs.journal import PostgresPlace

__all__ = ["Settings", "invocation", "own_options"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one process.

    Attributes:
        home: Loom's home.
        config: the flow file.
        config_given: whether the file was named, so that it must exist.
        home_given: whether the home was named, and is not the default.
        provider: the language model if the file names none; empty for rules alone.
        database: PostgreSQL database of the journal and of the home's knowledge bases, as a URL; empty for
            files in the home.
        version: of this server.
    """

    home: Path
    config: Path
    config_given: bool = False
    home_given: bool = False
    provider: str = ""
    database: str = ""
    version: str = ""

    @property
    def journal(self) -> Path | PostgresPlace:
        """The journal, shared by all processes of this home, or by all with the same database."""
        return journal_place(self.database, name="flow", file=self.home / "flow" / "runs.db")

    @property
    def audit(self) -> Path:
        """Path of the audit log, with every decision about a tool call."""
        return audit_path(self.home)


def invocation(settings: Settings, command: str, *arguments: str) -> str:
    """Return a command line for the same files as this process.

    Anything but placeholders is quoted for a shell.
    """
    return " ".join([PROGRAM, command, *arguments, *map(shlex.quote, own_options(settings))])


def own_options(settings: Settings) -> list[str]:
    """Return the options that select the files and the database, as far as they were given."""
    home = ["--home", str(settings.home)] if settings.home_given else []
    database = ["--database", settings.database] if settings.database else []
    return [*home, *(["--config", str(settings.config)] if settings.config_given else []), *database]
