"""Settings of loom-kb, from the command line."""

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
        database: URL of a PostgreSQL database that has the knowledge bases; empty for files in the home.
        sources: knowledge bases that may be used; empty for all, and for new ones.
        roots: folders that `add` may read from; without any, it accepts texts only.
        watched: folders that the server keeps the knowledge base in sync with.
        allow_urls: whether `add` may fetch web pages.
        allow_net: private hosts and networks that it may request besides the public internet.
        embedder: which embedder new knowledge bases use.
        vectors: where new knowledge bases search their vectors, see `RAGConfig.vectors`; empty if not set.
        lexical: where new knowledge bases search words, see `RAGConfig.lexical`; empty if not set.
        graph: where new knowledge bases keep their graph, see `RAGConfig.graph`; empty if not set.
        llm: which language model finds entities in addition to the rules, see
            `language_model.configuration`; empty if not set, `none` for rules alone.
        profile: `full` for all tools, `chatgpt` for `search` and `fetch` as ChatGPT requires them.
    """

    home: Path
    database: str = ""
    sources: tuple[str, ...] = ()
    roots: tuple[Path, ...] = ()
    watched: tuple[Path, ...] = ()
    allow_urls: bool = False
    allow_net: tuple[str, ...] = ()
    embedder: str = "auto"
    vectors: str = ""
    lexical: str = ""
    graph: str = ""
    llm: str = ""
    profile: Literal["full", "chatgpt"] = "full"
    version: str = field(default="")
