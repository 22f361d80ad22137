"""Interface of an agent's memory, and the JSON Lines file that `save` writes: a message a line."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from anyio import to_thread

from loom_core.errors import InvalidInputError, StoreError
from loom_core.llm.message_json import message_from_json, message_to_json
from loom_core.llm.messages import Message
from loom_core.runs.journal.rows.json_column import to_column
from loom_core.storage.private_file import replace_private_file

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
        conversations = {each.id: await self.messages(each.id) for each in await self.sessions()}
        await _write_jsonl(Path(path), conversations)

    async def load(self, path: Path | str) -> None:
        """Load the sessions of a file that `save` wrote; other sessions are unchanged.

        Raises:
            InvalidInputError: a line of the file is invalid; nothing was changed.
            StoreError: it cannot be read.
        """
        # Oldest first, so that they are listed in the same order.
        for session_id, messages in reversed((await _read_jsonl(Path(path))).items()):
            await self.replace(session_id, messages)

    async def aclose(self) -> None:
        """Release its resources."""
        return


async def _write_jsonl(path: Path, conversations: Mapping[str, Sequence[Message]]) -> None:
    """Write conversations by session, atomically; no other user may read the file."""

    def write() -> None:
        lines = [
            to_column({"session": session_id, "message": message_to_json(message)})
            for session_id, messages in conversations.items()
            for message in messages
        ]
        try:
            replace_private_file(path, "".join(f"{line}\n" for line in lines).encode())
        except OSError as error:
            raise StoreError(
                f"{path} cannot be written: {error.strerror or error}.",
                advice="Choose another file, or free some space; the previous file is unchanged.",
            ) from error

    await to_thread.run_sync(write)


async def _read_jsonl(path: Path) -> dict[str, list[Message]]:
    """Read the conversations of a file, by session, in the order of the file."""

    def read() -> dict[str, list[Message]]:
        conversations: dict[str, list[Message]] = {}
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        session_id, message = _parse_line(line, f"{path}:{number}")
                        conversations.setdefault(session_id, []).append(message)
        except OSError as error:
            raise StoreError(
                f"{path} cannot be read: {error.strerror or error}.",
                advice="Give a file that a memory has saved.",
            ) from error
        return conversations

    return await to_thread.run_sync(read)


def _parse_line(line: bytes, place: str) -> tuple[str, Message]:
    try:
        entry: object = json.loads(line)
        if not isinstance(entry, dict):
            raise TypeError("the line is not an object")
        fields = cast("dict[str, Any]", entry)
        session_id: object = fields["session"]
        if not isinstance(session_id, str):
            raise TypeError("its session is not a string")
        return session_id, message_from_json(fields["message"])
    except KeyError as error:
        reason = f"{error} is missing"
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error)
    except InvalidInputError as error:
        reason = error.message.removesuffix(".")
    raise InvalidInputError(
        f"{place}: this is not a message of a memory: {reason}.", advice="Nothing was loaded from the file."
    )
