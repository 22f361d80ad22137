"""Filters: from what is asked for to the chunks that may be searched."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loom_core.knowledge.chunk_keys import ChunkKeys
from loom_core.knowledge.filters import Filters, parse_filters, supported

if TYPE_CHECKING:
    from loom_core.knowledge.record import Record

__all__ = ["ChunkFilter"]

_REMEMBERED = 8
"""Filters whose chunks are kept: a conversation asks with the same ones again and again."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """What is known of the record as it was after one of its changes."""

    head: int
    names: list[str]
    chunks: OrderedDict[Filters, ChunkKeys] = field(default_factory=OrderedDict[Filters, ChunkKeys])


class ChunkFilter:
    """Finds the chunks that filters allow, and remembers them until the record changes.

    Args:
        record: has the documents and their fields.
    """

    def __init__(self, record: Record) -> None:
        self._record = record
        self._moment: _Moment | None = None
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """What filters may name. Blocks."""
        return list(self._now().names)

    def allowed(self, filters: dict[str, Any]) -> ChunkKeys | None:
        """Chunks of the documents for which all filters hold; None without filters, for all. Blocks.

        Raises:
            InvalidInputError: a filter that is not supported, or not formed as it should be.
        """
        moment = self._now()
        parsed = parse_filters(filters, moment.names)
        if not parsed:
            return None
        with self._lock:
            if parsed in moment.chunks:
                moment.chunks.move_to_end(parsed)
                return moment.chunks[parsed]
        found = self._record.documents.chunk_keys_where(parsed)
        # A change in between makes the next question begin another moment, and this one is forgotten.
        with self._lock:
            moment.chunks[parsed] = found
            if len(moment.chunks) > _REMEMBERED:
                moment.chunks.popitem(last=False)
        return found

    def _now(self) -> _Moment:
        head = self._record.changes.head()  # read before all else: what is newer only makes it look older
        moment = self._moment
        if moment is None or moment.head != head:
            moment = _Moment(head, supported(self._record.documents.field_names()))
            self._moment = moment
        return moment
