"""Settings of the server process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.paths import audit_path
from loom_core.server.cli.database_option import journal_place

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.runs.journal import PostgresPlace

__all__ = ["LOCAL_USER", "Settings"]

LOCAL_USER = "local"
"""The user of this machine, over stdio and at the command line, in the notes about users."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one server process.

    Attributes:
        home: Loom's home.
        config: the file with the profiles; without it there is a single profile.
        config_given: whether the file was given explicitly, so that it must exist.
        provider: the language model of profiles without one; empty for the first vendor whose key is in the
            environment.
        root: folder with files that agents may read, unless their profile says otherwise; None for none.
        over_http: whether clients connect over HTTP, so that a caller need not be the user of this machine.
        database: PostgreSQL database of the journal and of the home's knowledge bases, as a URL; empty for
            files in the home.
        journal_file: file of the journal; None for the one of the home or the database.
        version: version of this server.
    """

    home: Path
    config: Path
    config_given: bool = False
    provider: str = ""
    root: Path | None = None
    over_http: bool = False
    database: str = ""
    journal_file: Path | None = None
    version: str = ""

    @property
    def journal(self) -> Path | PostgresPlace:
        """The journal: the given file, or that of all processes of this home or database."""
        if self.journal_file is not None:
            return self.journal_file
        return journal_place(self.database, name="agent", file=self.home / "agent" / "runs.db")

    @property
    def user_memory(self) -> Path:
        """The folder with the notes about users."""
        return self.home / "agent" / "memory"

    @property
    def audit(self) -> Path:
        """The audit log file, with every decision about a call."""
        return audit_path(self.home)
