"""Answers that are kept for a while, so that the same question is not asked again."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["AnswerCache"]


@dataclass(frozen=True, slots=True)
class _Kept:
    items: tuple[KnowledgeItem, ...]
    until: float
    size: int


class AnswerCache:
    """Keeps passages by question: each for a time, and the ones that were asked for last.

    Args:
        seconds: how long an answer is kept; 0: not at all.
        most: how many are kept.
        characters: how much text they may have together.
        now: seconds of a clock that never goes back.
    """

    def __init__(
        self,
        *,
        seconds: float,
        most: int = 1000,
        characters: int = 4_000_000,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._most = most
        self._characters = characters
        self._now = now
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> tuple[KnowledgeItem, ...] | None:
        """What was found, or None if that is not known any more."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.until <= self._now():
            self._forget(key)
            return None
        self._kept.move_to_end(key)
        return kept.items

    def put(self, key: str, items: tuple[KnowledgeItem, ...]) -> None:
        """Keep what was found, also that it is nothing."""
        self._forget(key)
        size = sum(len(item.content) for item in items)
        if self._seconds <= 0 or size > self._characters:
            return
        self._kept[key] = _Kept(items, self._now() + self._seconds, size)
        self._size += size
        while len(self._kept) > self._most or self._size > self._characters:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: str) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._size -= kept.size
