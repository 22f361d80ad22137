"""Names of the verbs of the command `mcp` in messages: as typed, with the program."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from loom_core.paths import loom_home

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["use_program", "verb", "verb_in"]

_program: ContextVar[str] = ContextVar("program", default="loom-query-server")


def verb(words: str) -> str:
    """Format a verb as it is typed: `verb("list")` is "`loom-query-server mcp list`", quotes included.

    Args:
        words: the verb and its arguments.
    """
    return f"`{_program.get()} mcp {words}`"


def verb_in(home: Path, *words: str) -> str:
    """Format a verb that changes what a home trusts: quoted for a shell, with `--home` if that is needed.

    Args:
        home: Loom's folder.
        words: the verb and its arguments.
    """
    return verb(shlex.join(words if home == loom_home() else (*words, "--home", str(home))))


@contextmanager
def use_program(program: str) -> Generator[None]:
    """Name another program in messages while the block lasts: the one whose command runs."""
    token = _program.set(program)
    try:
        yield
    finally:
        _program.reset(token)
