"""Names of the verbs of the command `mcp` in messages: as typed, with the program."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["use_program", "verb"]

_program: ContextVar[str] = ContextVar("program", default="loom-query-server")


def verb(words: str) -> str:
    """Format a verb as it is typed: `verb("list")` is "`loom-query-server mcp list`", quotes included.

    Args:
        words: the verb and its arguments.
    """
    return f"`{_program.get()} mcp {words}`"


@contextmanager
def use_program(program: str) -> Generator[None]:
    """Name another program in messages while the block lasts: the one whose command runs."""
    token = _program.set(program)
    try:
        yield
    finally:
        _program.reset(token)
