"""Cache of a source's recent items, to resolve their ids."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["RecentItems"]


class RecentItems:
    """Cache of items by id; the oldest are evicted first.

    Args:
        limit: maximum number of items.
        characters: maximum length of all texts together.
    """

    def __init__(self, *, limit: int = 2000, characters: int = 8_000_000) -> None:
        self._limit = limit
        self._characters = characters
        self._items: OrderedDict[str, KnowledgeItem] = OrderedDict()
        self._length = 0

    def add(self, items: Iterable[KnowledgeItem]) -> None:
        """Add the items of an answer; one with a known id replaces that of an earlier answer.

        Items with one id, such as several passages with the id of their document, become one with all texts.
        """
        by_id: dict[str, KnowledgeItem] = {}
        for item in items:
            known = by_id.setdefault(item.id, item)
            if item.content not in known.content:
                by_id[item.id] = replace(known, content=f"{known.content}\n\n{item.content}")
        for item in by_id.values():
            self._forget(item.id)
            self._items[item.id] = item
            self._length += len(item.content)
        while self._items and (len(self._items) > self._limit or self._length > self._characters):
            self._forget(next(iter(self._items)))

    def get(self, id_: str) -> KnowledgeItem | None:
        """Return the item with an id, or None."""
        return self._items.get(id_)

    def _forget(self, id_: str) -> None:
        item = self._items.pop(id_, None)
        if item is not None:
            self._length -= len(item.content)
