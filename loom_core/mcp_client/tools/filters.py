"""Which tools of a server may be used."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

__all__ = ["ToolFilter"]


@dataclass(frozen=True, slots=True)
class ToolFilter:
    """Tools by patterns of their names (`read_*`), as the server calls them; case matters.

    Asked when tools are listed and again at each call: a tool that is not listed cannot be called either.

    Attributes:
        allow: a tool has to fit one of these.
        deny: and none of these.
    """

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()

    def allows(self, tool: str) -> bool:
        """Whether a tool may be used."""
        return _fits(tool, self.allow) and not _fits(tool, self.deny)


def _fits(tool: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in patterns)
