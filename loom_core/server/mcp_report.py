"""What a verb of the command `mcp` answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["McpReport"]


@dataclass(frozen=True, slots=True)
class McpReport:
    """What a verb has done. No secret is in it.

    Attributes:
        lines: for standard output.
        notes: for people, beside the answer.
        data: the same for programs.
        code: the exit code: 1 where a server that was tested cannot be used.
    """

    lines: list[str]
    notes: list[str] = field(default_factory=list[str])
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    code: int = 0
