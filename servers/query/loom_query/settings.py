"""Settings of one run, from the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one run.

    Attributes:
        home: Loom's home.
        config: the file that names the sources; without one, all knowledge bases of the home are sources.
        config_given: whether the file was named by the user, so that it must exist.
        database: URL of a PostgreSQL database that has the knowledge bases of the home; empty for files.
        profile: `full` for the four tools, `chatgpt` for `search` and `fetch` as ChatGPT wants them.
        version: version of this server.
    """

    home: Path
    config: Path
    config_given: bool = False
    database: str = ""
    profile: Literal["full", "chatgpt"] = "full"
    version: str = ""

    def database_of(self, home: Path) -> str:
        """Return the database of the knowledge bases of a home; empty for files, as in all other homes."""
        return self.database if home == self.home else ""
