"""The machine that a client runs on, as far as it says where files are."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

__all__ = ["Machine", "Platform"]

Platform = Literal["linux", "macos", "windows"]


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a user's files are.

    Attributes:
        platform: which rules hold.
        home: the user's folder.
        project: the folder that a configuration of scope `project` is for.
        environment: variables that move folders, such as `XDG_CONFIG_HOME`.
    """

    platform: Platform
    home: PurePath
    project: PurePath
    environment: Mapping[str, str]

    @classmethod
    def this(cls) -> Machine:
        """The one that this program runs on, in the current folder."""
        known: dict[str, Platform] = {"win32": "windows", "darwin": "macos"}
        return cls(known.get(sys.platform, "linux"), Path.home(), Path.cwd(), os.environ)

    @property
    def settings(self) -> PurePath:
        """Where applications keep the user's settings."""
        if self.platform == "windows":
            return self.folder("APPDATA", "AppData", "Roaming")
        if self.platform == "macos":
            return self.home / "Library" / "Application Support"
        return self.dot_config

    @property
    def dot_config(self) -> PurePath:
        """The folder `.config`, which some applications use on macOS, too."""
        return self.folder("XDG_CONFIG_HOME", ".config")

    def folder(self, variable: str, *usual: str) -> PurePath:
        """A folder of the user's that a variable may move."""
        moved = self.environment.get(variable, "")
        return type(self.home)(moved) if moved else self.home.joinpath(*usual)
