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
    """A session that is remembered.

    Attributes:
        id: of the session.
        messages: how many there are.
        updated: when the last one came, in seconds since 1970.
    """

    id: str
    messages: int
    updated: float


@dataclass(frozen=True, slots=True)
class MemoryHit:
    """A message that was found.

    Attributes:
        session_id: where it was said.
        position: which message of that session it is, from 0.
        message: the message.
    """

    session_id: str
    position: int
    message: Message


class Memory(ABC):
    """Keeps the conversation of each session: what the next run of it begins with.

    That is the working conversation, as it was last shortened; every word that was ever said is in the
    journal. It is safe to use from several tasks. A memory in a file raises RecordError where that cannot be
    read or written.
    """

    @abstractmethod
    async def messages(self, session_id: str, *, limit: int | None = None) -> list[Message]:
        """The conversation of a session, oldest first; empty for one that is not known.

        Args:
            session_id: which session.
            limit: only so many of the latest; None for all.
        """

    @abstractmethod
    async def replace(self, session_id: str, messages: Sequence[Message]) -> None:
        """Put a conversation in the place of what there is. Doing so twice does nothing the second time.

        As long as the beginning is the same, only what is new is written.
        """

    @abstractmethod
    async def add(self, session_id: str, message: Message) -> None:
        """Put a message behind the conversation."""

    @abstractmethod
    async def clear(self, session_id: str) -> None:
        """Forget a session; nothing happens if it is not known."""

    @abstractmethod
    async def sessions(self) -> list[MemorySession]:
        """All sessions, the one with the latest message first."""

    @abstractmethod
    async def search(self, query: str, *, limit: int = 10, session_id: str = "") -> list[MemoryHit]:
        """Messages by their words, English and Chinese, those that fit best first.

        Args:
            query: words; each counts by how rare it is, and not all need be there.
            limit: at most so many.
            session_id: only of this session; empty for all, whosever they are.
        """

    async def save(self, path: Path | str) -> None:
        """Write everything to a file of JSON lines, which any other memory can load.

        Raises:
            RecordError: it cannot be written; what was there before is still there.
        """
        from loom_core.runs.memory.jsonl import write_jsonl

        conversations = {each.id: await self.messages(each.id) for each in await self.sessions()}
        await write_jsonl(Path(path), conversations)

    async def load(self, path: Path | str) -> None:
        """Take over the sessions of a file that `save` wrote; others stay as they are.

        Raises:
            InvalidInputError: a line of the file is not what it should be; nothing was changed.
            RecordError: it cannot be read.
        """
        from loom_core.runs.memory.jsonl import read_jsonl

        # Oldest first, so that they are listed as they were.
        for session_id, messages in reversed((await read_jsonl(Path(path))).items()):
            await self.replace(session_id, messages)

    async def aclose(self) -> None:
        """Let go of what it holds."""
        return
