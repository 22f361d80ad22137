"""What the person who starts the server decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.paths import audit_path

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one process.

    Attributes:
        home: Loom's home.
        config: the file with the profiles; without one there is a single profile.
        config_given: whether the file was named, so that it has to be there.
        provider: the language model of profiles that name none; empty for the first vendor whose key is in
            the environment.
        root: the folder whose files agents may read, where their profile does not say that; None for none.
        over_http: whether clients come over HTTP, where whoever asks is not the user of this machine.
        version: of this server.
    """

    home: Path
    config: Path
    config_given: bool = False
    provider: str = ""
    root: Path | None = None
    over_http: bool = False
    version: str = ""

    @property
    def journal(self) -> Path:
        """The file of all runs, shared by all processes of this home."""
        return self.home / "agent" / "runs.db"

    @property
    def audit(self) -> Path:
        """The file in which every decision about a call is kept."""
        return audit_path(self.home)
