"""Settings of the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.paths import audit_path
from loom_core.server.runs.journal_place import journal_place

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.runs.journal import PostgresPlace

__all__ = ["Settings"]


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
