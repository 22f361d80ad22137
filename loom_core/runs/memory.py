"""Memory of an agent: the conversations of its sessions, in memory or in a file."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from anyio import to_thread

from loom_core.errors import InvalidInputError, StoreError
from loom_core.llm.message_json import message_from_json, message_to_json
from loom_core.llm.messages import Message
from loom_core.plugin_registry import register
from loom_core.runs.journal.rows.json_column import check_text, from_column, to_column
from loom_core.runs.journal.rows.runs import MAX_ROWS
from loom_core.runs.journal.search import (
    MESSAGE_INDEX,
    count_terms,
    index_messages,
    inverse_document_frequency,
    query_terms,
    term_weight,
)
from loom_core.runs.journal.store import JournalStore
from loom_core.storage.private_file import replace_private_file

if TYPE_CHECKING:
    from loom_core.runs.journal import Journal
    from loom_core.storage.sql import SQLConnection

__all__ = ["InMemoryMemory", "Memory", "MemoryHit", "MemorySession", "SQLiteMemory"]


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


@register("memory", "sqlite")
class SQLiteMemory(Memory):
    """Memory in a SQLite file: data that a method has written survives a kill at any moment.

    Args:
        path: the file, created if absent; the file of a journal is possible.
        journal: use the file and connections of this journal; close the journal after the memory.
    """

    @overload
    def __init__(self, path: Path | str) -> None: ...
    @overload
    def __init__(self, *, journal: Journal) -> None: ...
    def __init__(self, path: Path | str = "", *, journal: Journal | None = None) -> None:
        self._own = journal is None
        self._store = JournalStore(Path(path)) if journal is None else journal.store

    async def messages(self, session_id: str, *, limit: int | None = None) -> list[Message]:
        """See `Memory.messages`."""

        def read(db: SQLConnection) -> list[str]:
            rows = db.execute(
                "SELECT body FROM messages WHERE conversation = (SELECT key FROM conversations WHERE id = ?)"
                " ORDER BY position DESC LIMIT ?",
                (check_text("session_id", session_id), MAX_ROWS if limit is None else max(0, limit)),
            )
            return [row["body"] for row in rows]

        return [message_from_json(from_column(body)) for body in reversed(await self._store.read(read))]

    async def replace(self, session_id: str, messages: Sequence[Message]) -> None:
        """See `Memory.replace`."""
        bodies = [to_column(message_to_json(message)) for message in messages]

        def write(db: SQLConnection) -> None:
            key = _conversation(db, session_id)
            rows = db.execute(
                "SELECT body FROM messages WHERE conversation = ? ORDER BY position", (key,)
            ).fetchall()
            same = 0
            for row, body in zip(rows, bodies, strict=False):
                if row["body"] != body:
                    break
                same += 1
            if same < max(len(rows), len(bodies)):
                _delete_from(db, key, same)
                _write(db, key, same, bodies[same:])

        await self._store.write(write)

    async def add(self, session_id: str, message: Message) -> None:
        """See `Memory.add`."""
        body = to_column(message_to_json(message))

        def write(db: SQLConnection) -> None:
            key = _conversation(db, session_id)
            sql = "SELECT COALESCE(MAX(position) + 1, 0) FROM messages WHERE conversation = ?"
            (position,) = db.execute(sql, (key,)).fetchone()
            _write(db, key, position, [body])

        await self._store.write(write)

    async def clear(self, session_id: str) -> None:
        """See `Memory.clear`."""

        def write(db: SQLConnection) -> None:
            row = db.execute(
                "SELECT key FROM conversations WHERE id = ?", (check_text("session_id", session_id),)
            ).fetchone()
            if row is not None:
                _delete_from(db, row["key"], 0)
                db.execute("DELETE FROM conversations WHERE key = ?", (row["key"],))

        await self._store.write(write)

    async def sessions(self) -> list[MemorySession]:
        """See `Memory.sessions`."""

        def read(db: SQLConnection) -> list[MemorySession]:
            rows = db.execute(
                "SELECT id, updated, (SELECT COUNT(*) FROM messages WHERE conversation = c.key) AS count"
                " FROM conversations AS c ORDER BY updated DESC, key DESC"
            )
            return [MemorySession(row["id"], row["count"], row["updated"]) for row in rows]

        return await self._store.read(read)

    async def search(self, query: str, *, limit: int = 10, session_id: str = "") -> list[MemoryHit]:
        """See `Memory.search`."""
        while await self._store.write(index_messages):
            pass

        def read(db: SQLConnection) -> list[MemoryHit]:
            hits: list[MemoryHit] = []
            for key in MESSAGE_INDEX.search(db, query):
                if len(hits) >= limit:
                    break
                row = db.execute(
                    "SELECT c.id, position, body FROM messages AS m"
                    " JOIN conversations AS c ON c.key = m.conversation WHERE m.key = ?",
                    (key,),
                ).fetchone()
                if session_id in {"", row["id"]}:
                    message = message_from_json(from_column(row["body"]))
                    hits.append(MemoryHit(row["id"], row["position"], message))
            return hits

        return await self._store.read(read)

    async def aclose(self) -> None:
        """Close the file; the journal closes its own."""
        if self._own:
            await self._store.aclose()


def _conversation(db: SQLConnection, session_id: str) -> int:
    """Return the key of a session's conversation, created if absent."""
    row = db.execute(
        "SELECT key FROM conversations WHERE id = ?", (check_text("session_id", session_id),)
    ).fetchone()
    if row is not None:
        return row["key"]
    sql = "INSERT INTO conversations (id, updated) VALUES (?, ?) RETURNING key"
    (key,) = db.execute(sql, (session_id, time.time())).fetchone()
    return key


def _delete_from(db: SQLConnection, key: int, position: int) -> None:
    """Delete the messages of a conversation from a position on."""
    rows = db.execute("SELECT key FROM messages WHERE conversation = ? AND position >= ?", (key, position))
    for row in rows.fetchall():
        MESSAGE_INDEX.remove(db, row["key"])
        db.execute("DELETE FROM messages WHERE key = ?", (row["key"],))


def _write(db: SQLConnection, key: int, position: int, bodies: Sequence[str]) -> None:
    db.executemany(
        "INSERT INTO messages (conversation, position, body) VALUES (?, ?, ?)",
        [(key, at, body) for at, body in enumerate(bodies, start=position)],
    )
    db.execute("UPDATE conversations SET updated = ? WHERE key = ?", (time.time(), key))
