"""Memory that lasts as long as the process."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loom_core.plugin_registry import register
from loom_core.runs.journal.search import count_terms, inverse_document_frequency, query_terms, term_weight
from loom_core.runs.memory.interface import Memory, MemoryHit, MemorySession

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_core.llm.messages import Message

__all__ = ["InMemoryMemory"]


@dataclass(slots=True)
class _Entry:
    message: Message
    counted: Mapping[str, int] | None = None  # its words, after the first search

    @property
    def words(self) -> Mapping[str, int]:
        if self.counted is None:
            self.counted = count_terms(self.message.text)
        return self.counted


@dataclass(slots=True)
class _Conversation:
    entries: list[_Entry] = field(default_factory=list["_Entry"])
    updated: float = 0.0


@register("memory", "in_memory")
class InMemoryMemory(Memory):
    """Memory in this process; `save` and `load` transfer it to another one."""

    def __init__(self) -> None:
        self._conversations: dict[str, _Conversation] = {}

    async def messages(self, session_id: str, *, limit: int | None = None) -> list[Message]:
        """See `Memory.messages`."""
        conversation = self._conversations.get(session_id, _Conversation())
        first = 0 if limit is None else max(0, len(conversation.entries) - limit)
        return [entry.message for entry in conversation.entries[first:]]

    async def replace(self, session_id: str, messages: Sequence[Message]) -> None:
        """See `Memory.replace`."""
        entries = self._conversation(session_id).entries
        same = 0
        for entry, message in zip(entries, messages, strict=False):
            if (entry.message, entry.message.metadata) != (message, message.metadata):
                break
            same += 1
        if same < max(len(entries), len(messages)):
            entries[same:] = [_Entry(message) for message in messages[same:]]
            self._touch(session_id)

    async def add(self, session_id: str, message: Message) -> None:
        """See `Memory.add`."""
        self._conversation(session_id).entries.append(_Entry(message))
        self._touch(session_id)

    async def clear(self, session_id: str) -> None:
        """See `Memory.clear`."""
        self._conversations.pop(session_id, None)

    async def sessions(self) -> list[MemorySession]:
        """See `Memory.sessions`."""
        return [
            MemorySession(session_id, len(conversation.entries), conversation.updated)
            for session_id, conversation in reversed(self._conversations.items())
        ]

    async def search(self, query: str, *, limit: int = 10, session_id: str = "") -> list[MemoryHit]:
        """See `Memory.search`."""
        everything = [
            (MemoryHit(each, position, entry.message), entry.words)
            for each, conversation in self._conversations.items()
            for position, entry in enumerate(conversation.entries)
        ]
        scores: defaultdict[int, float] = defaultdict(float)
        for word in query_terms(query):
            having = [number for number, (_, words) in enumerate(everything) if word in words]
            rare = inverse_document_frequency(len(having), len(everything))
            for number in having:
                scores[number] += term_weight(rare, everything[number][1][word])
        best = sorted(scores, key=lambda number: (-scores[number], -number))
        hits = [everything[number][0] for number in best]
        return [hit for hit in hits if session_id in {"", hit.session_id}][:limit]

    def _conversation(self, session_id: str) -> _Conversation:
        return self._conversations.setdefault(session_id, _Conversation())

    def _touch(self, session_id: str) -> None:
        """Move a session to the end: sessions are ordered by their latest messages."""
        conversation = self._conversations.pop(session_id)
        conversation.updated = time.time()
        self._conversations[session_id] = conversation
