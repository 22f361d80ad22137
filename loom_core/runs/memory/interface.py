"""Interface of an agent's memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loom_core.llm.messages import Message

__all__ = ["Memory", "MemoryHit", "MemorySession"]


@dataclass(frozen=True, slots=True)
class MemorySession:
    """A session in the memory.

    Attributes:
        id: id of the session.
        messages: number of messages.
        updated: time of the last message, in seconds since 1970.
    """

    id: str
    messages: int
    updated: float


@dataclass(frozen=True, slots=True)
class MemoryHit:
    """A message found by a search.

    Attributes:
        session_id: the session of the message.
        position: index of the message in that session, from 0.
        message: the message.
    """

    session_id: str
    position: int
    message: Message


class Memory(ABC):
    """Conversation memory: stores the conversation of each session, which its next run starts with.

    It stores the working conversation after compaction; the journal has every message. It is safe to use
    from several tasks. A memory in a file raises StoreError if the file cannot be read or written.
    """

    @abstractmethod
    async def messages(self, session_id: str, *, limit: int | None = None) -> list[Message]:
        """Return the conversation of a session, oldest first; empty for an unknown session.

        Args:
            session_id: the session.
            limit: maximum number of messages, the latest ones; None for all.
        """

    @abstractmethod
    async def replace(self, session_id: str, messages: Sequence[Message]) -> None:
        """Replace the conversation of a session; idempotent.

        If the beginning is the same, only the new messages are written.
        """

    @abstractmethod
    async def add(self, session_id: str, message: Message) -> None:
        """Append a message to the conversation."""

    @abstractmethod
    async def clear(self, session_id: str) -> None:
        """Delete a session; an unknown session is ignored."""

    @abstractmethod
    async def sessions(self) -> list[MemorySession]:
        """List all sessions, the one with the latest message first."""

    @abstractmethod
    async def search(self, query: str, *, limit: int = 10, session_id: str = "") -> list[MemoryHit]:
        """Search messages by words, in English and Chinese; best matches first.

        Args:
            query: words; rare words weigh more, and not all need to match.
            limit: maximum number of hits.
            session_id: only messages of this session; empty for all sessions of all callers.
        """

    async def save(self, path: Path | str) -> None:
        """Write everything to a JSON Lines file, which any other memory can load.

        Raises:
            StoreError: it cannot be written; the previous file is unchanged.
        """
        from loom_core.runs.memory.jsonl import write_jsonl

        conversations = {each.id: await self.messages(each.id) for each in await self.sessions()}
        await write_jsonl(Path(path), conversations)

    async def load(self, path: Path | str) -> None:
        """Load the sessions of a file that `save` wrote; other sessions are unchanged.

        Raises:
            InvalidInputError: a line of the file is invalid; nothing was changed.
            StoreError: it cannot be read.
        """
        from loom_core.runs.memory.jsonl import read_jsonl

        # Oldest first, so that they are listed in the same order.
        for session_id, messages in reversed((await read_jsonl(Path(path))).items()):
            await self.replace(session_id, messages)

    async def aclose(self) -> None:
        """Release its resources."""
        return
