"""Command lines in messages to users."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from loom_flow import PROGRAM

if TYPE_CHECKING:
    from loom_flow.settings import Settings

__all__ = ["invocation", "own_options"]


def invocation(settings: Settings, command: str, *arguments: str) -> str:
    """Return a command line for the same files as this process.

    Args:
        settings: settings of the process.
        command: name of the command.
        arguments: its arguments; anything but placeholders is quoted for a shell.
    """
    return " ".join([PROGRAM, command, *arguments, *map(shlex.quote, own_options(settings))])


def own_options(settings: Settings) -> list[str]:
    """Return the options that select the files and the database, as far as they were given."""
    home = ["--home", str(settings.home)] if settings.home_given else []
    database = ["--database", settings.database] if settings.database else []
    return [*home, *(["--config", str(settings.config)] if settings.config_given else []), *database]
