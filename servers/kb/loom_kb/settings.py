"""What the person who starts the server decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DEFAULT_SOURCE", "Settings"]

DEFAULT_SOURCE = "default"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one run.

    Attributes:
        home: Loom's home.
        sources: knowledge bases that may be used; empty for all, and for new ones.
        roots: folders that `add` may read from; none means that it takes texts only.
        embedder: which embedder new knowledge bases use.
        profile: `full` for the seven tools, `chatgpt` for `search` and `fetch` as ChatGPT wants them.
    """

    home: Path
    sources: tuple[str, ...] = ()
    roots: tuple[Path, ...] = ()
    embedder: str = "auto"
    profile: Literal["full", "chatgpt"] = "full"
    version: str = field(default="")
