"""Description and argument schema of one search tool over several sources."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loom_core.knowledge.filters import FILTERS_DESCRIPTION
from loom_core.knowledge.text.control_characters import CONTROL_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.interface import KnowledgeBaseProvider

__all__ = ["SourceInfo", "UnifiedSearchToolBuilder"]

_FIELD_NAME = re.compile(r"[^\W\d][\w.-]{0,39}")
_MAX_DESCRIPTION = 200  # characters of one source's description
_MAX_HINTS = 6
_MAX_FILTERS = 20
_MAX_FILTER_SOURCES = 10


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Self-description of a knowledge source; see `KnowledgeBaseProvider`."""

    name: str
    description: str = ""
    search_hints: tuple[str, ...] = ()
    supported_filters: tuple[str, ...] = ()

    @classmethod
    def of(cls, provider: KnowledgeBaseProvider) -> SourceInfo:
        """Return the metadata of a provider."""
        return cls(
            name=provider.name,
            description=provider.description,
            search_hints=tuple(provider.search_hints),
            supported_filters=tuple(provider.supported_filters),
        )


class UnifiedSearchToolBuilder:
    """Builds the description and the arguments of a search tool, so that a model knows when to search.

    Names become the `source` enum; descriptions and hints the list of sources; supported filters the
    description of `filters`. Texts of sources are untrusted: control characters are removed and lengths
    bounded, so that no source can dominate the description.

    Args:
        sources: the sources, in the order they are to be listed.
        limit_bytes: maximum size of the description in UTF-8.
    """

    def __init__(self, sources: Sequence[SourceInfo], *, limit_bytes: int = 2048) -> None:
        self._sources = sources
        self._limit = limit_bytes

    def description(self, *, head: str, tail: str = "") -> str:
        """Return the tool's description.

        Args:
            head: what the tool does and when to use it; never cut.
            tail: what it returns, and how to ask; never cut.
        """
        fixed = len(f"{head}\n\n{tail}".encode()) + 2
        lines: list[str] = []
        used = fixed
        for i, source in enumerate(self._sources):
            line = _line(source)
            rest = len(self._sources) - i
            more = f"- … and {rest} more: see the `source` argument"
            if used + len(line.encode()) + 1 + len(more.encode()) + 16 > self._limit:
                lines.append(more)
                break
            lines.append(line)
            used += len(line.encode()) + 1
        listing = "\n".join(["Sources:", *lines]) if lines else ""
        return "\n\n".join(part for part in (head, listing, tail) if part)

    def source_schema(self) -> dict[str, Any]:
        """Return the JSON Schema keywords for the `source` argument."""
        names = [source.name for source in self._sources]
        return {"enum": names} if names else {}

    def filters_schema(self) -> dict[str, Any]:
        """Return the JSON Schema keywords for the `filters` argument: which names each source supports.

        Names may come from documents and are untrusted, so only single words are listed.
        """
        known = [(source.name, names) for source in self._sources if (names := _plain_names(source))]
        if not known:
            return {}
        described = "; ".join(
            f"{_clean(source, 64)}: {', '.join(names[:_MAX_FILTERS])}"
            for source, names in known[:_MAX_FILTER_SOURCES]
        )
        return {"description": f"{FILTERS_DESCRIPTION} Fields by source: {described}."}


def _plain_names(source: SourceInfo) -> list[str]:
    return [name for name in source.supported_filters if _FIELD_NAME.fullmatch(name)]


def _line(source: SourceInfo) -> str:
    line = f"- {_clean(source.name, 64)}"
    if source.description:
        line += f": {_clean(source.description, _MAX_DESCRIPTION)}"
    hints = [_clean(hint, 60) for hint in source.search_hints[:_MAX_HINTS]]
    return line + (f" (for: {', '.join(hints)})" if hints else "")


def _clean(text: str, limit: int) -> str:
    text = " ".join(CONTROL_CHARACTERS.sub(" ", text).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
