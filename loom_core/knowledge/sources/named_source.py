"""Base class of sources with a given name and description."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.interface import KnowledgeBaseProvider

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NamedSource"]


class NamedSource(KnowledgeBaseProvider):
    """A source with a given name, description and search hints.

    Args:
        name: its name among other sources.
        description: of its content, in one sentence.
        search_hints: what to search in it for.
    """

    def __init__(self, name: str, *, description: str = "", search_hints: Sequence[str] = ()) -> None:
        self._name = name
        self._description = description
        self._hints = tuple(search_hints)

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def description(self) -> str:
        """Description of its content."""
        return self._description

    @property
    def search_hints(self) -> Sequence[str]:
        """Hints on what to search in it for."""
        return self._hints
