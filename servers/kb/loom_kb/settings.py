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
        watched: folders that the server keeps the knowledge base in step with.
        allow_urls: whether `add` may fetch web pages.
        allow_net: hosts and networks that it may ask besides the open internet.
        embedder: which embedder new knowledge bases use.
        llm: which language model finds entities in addition to the rules, see
            `language_model.configuration`; empty for none, `none` where that was said.
        profile: `full` for all tools, `chatgpt` for `search` and `fetch` as ChatGPT wants them.
    """

    home: Path
    sources: tuple[str, ...] = ()
    roots: tuple[Path, ...] = ()
    watched: tuple[Path, ...] = ()
    allow_urls: bool = False
    allow_net: tuple[str, ...] = ()
    embedder: str = "auto"
    llm: str = ""
    profile: Literal["full", "chatgpt"] = "full"
    version: str = field(default="")
