"""The conversation of a session: whose it is, what is remembered of it, and what it has begun."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import anyio

from loom_core.errors import InvalidInputError, NotFoundError, RecordError
from loom_core.flow.knowledge.source import TENANCY
from loom_core.flow.offer import Offer
from loom_core.llm.messages import AssistantMessage, Message, TextPart, UserMessage
from loom_core.runs.journal.run_rows import FINAL_STATUSES

if TYPE_CHECKING:
    from loom_core.runs.journal import Journal
    from loom_core.runs.journal.session_rows import SessionState
    from loom_core.runs.memory import Memory
    from loom_core.runs.run import Run
    from loom_core.tools.interface import JsonValue

__all__ = ["Answered", "Conversation", "Conversations"]

_MOST_KEYS = 32
_REMEMBERED = 12  # messages that a model is shown
_LONGEST = 4000  # characters of one of them
_MOST_CONTEXT = 16_384  # characters of a context as JSON
_ATTEMPTS = 20
_MOST_RUNS = 1000


@dataclass(frozen=True, slots=True)
class Answered:
    """A message with an idempotency key that was taken.

    Attributes:
        key: the key.
        message: the message.
        run_id: the run that it was told to, or that was begun for it; empty for none.
        pending_id: what it answers there; it is told if that is not pending any more.
        reply: what was said to it, as JSON; None as long as nothing was.
    """

    key: str
    message: str
    run_id: str = ""
    pending_id: str = ""
    reply: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Conversation:
    """A session as it stands; what changes is kept by `Conversations.keep`.

    Attributes:
        session_id: its id.
        caller: whose it is.
        context: variables that its messages brought: those of the latest count.
        language: of its latest message that has words.
        offer: what was asked without a run, and is not answered.
        open: ids of runs whose end the conversation does not know of.
        answered: messages with a key, the latest last.
        version: of what is in the journal.
    """

    session_id: str
    caller: str
    context: dict[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])
    language: str = ""
    offer: Offer | None = None
    open: list[str] = field(default_factory=list[str])
    answered: list[Answered] = field(default_factory=list[Answered])
    version: int = 0

    def with_key(self, key: str, message: str) -> Answered | None:
        """What is known of a message that came before.

        Raises:
            InvalidInputError: the key came with another message.
        """
        found = next((each for each in self.answered if each.key == key), None) if key else None
        if found is not None and found.message != message:
            raise InvalidInputError(
                f"The idempotency key {key!r} was used for another message.",
                advice="Use a new key for each message; the same one only to send the same message again.",
            )
        return found

    def note(self, answered: Answered) -> None:
        """Remember a message with a key."""
        others = [each for each in self.answered if each.key != answered.key]
        self.answered = [*others, answered][-_MOST_KEYS:]

    def take(self, context: Mapping[str, JsonValue]) -> None:
        """Take the variables that a message brings.

        Raises:
            InvalidInputError: they are too large, no JSON, or of another tenant than the conversation.
        """
        try:
            size = len(json.dumps(context, ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            raise InvalidInputError(
                "The context is no JSON.", advice="Give names and plain values."
            ) from None
        if size > _MOST_CONTEXT:
            raise InvalidInputError(
                f"The context has {size} characters.", advice=f"Give at most {_MOST_CONTEXT}."
            )
        for name in TENANCY:
            if name in context and name in self.context and context[name] != self.context[name]:
                raise InvalidInputError(
                    f"The session {self.session_id} is of another {name}.",
                    advice="Leave out the session to begin a new one; one serves one tenant.",
                )
        self.context |= context

    def to_json(self) -> dict[str, Any]:
        """For the journal."""
        return {
            "context": self.context,
            "language": self.language,
            "offer": None if self.offer is None else self.offer.to_json(),
            "open": self.open,
            "answered": [
                [each.key, each.message, each.run_id, each.pending_id, each.reply] for each in self.answered
            ],
        }

    @classmethod
    def of(cls, session_id: str, caller: str, state: SessionState) -> Conversation:
        """The one that the journal has."""
        kept = state.content
        if not kept:
            return cls(session_id, caller, version=state.version)
        return cls(
            session_id,
            caller,
            context=dict(kept["context"]),
            language=kept["language"],
            offer=None if kept["offer"] is None else Offer.from_json(kept["offer"]),
            open=list(kept["open"]),
            answered=[Answered(*each) for each in kept["answered"]],
            version=state.version,
        )


class Conversations:
    """The sessions of a journal.

    What is said in a session is in the memory, what it has begun and asked in the journal: so it outlives the
    process, and any other that shares the file goes on with it. One message of a session is taken at a time
    here; between processes the journal sees to it that no run is begun twice or told twice, and of what else
    is remembered the latest counts.

    Args:
        journal: keeps sessions and runs.
        memory: keeps what is said.
    """

    def __init__(self, journal: Journal, memory: Memory) -> None:
        self._journal = journal
        self._memory = memory
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(
        self, session_id: str, *, caller: str, context: Mapping[str, JsonValue], key: str = ""
    ) -> AsyncGenerator[Conversation]:
        """A session, as long as nobody else here takes a message of it; a new one without an id.

        Args:
            session_id: which.
            caller: whose.
            context: variables that are new or have changed.
            key: of the message: without an id, the session that was begun for it is gone on with.

        Raises:
            NotFoundError: there is no such session of this caller.
            InvalidInputError: the context cannot be used.
        """
        if not session_id:
            fresh = Conversation("", caller)
            fresh.take(context)  # before there is anything
            session_id = await self._journal.begin_session(caller=caller, idempotency_key=key)
        lock = self._locks.setdefault(session_id, anyio.Lock())
        async with lock:
            conversation = await self._read(session_id, caller)
            conversation.take(context)
            yield conversation

    async def look(self, session_id: str, *, caller: str, context: Mapping[str, JsonValue]) -> Conversation:
        """A session as it stands, to look at; without an id as a new one would be.

        Raises:
            NotFoundError: there is no such session of this caller.
            InvalidInputError: the context cannot be used.
        """
        conversation = await self._read(session_id, caller) if session_id else Conversation("", caller)
        conversation.take(context)
        return conversation

    async def keep(self, conversation: Conversation) -> None:
        """Write down how it stands; messages with a key that another process has taken meanwhile are kept.

        Raises:
            RecordError: others write it again and again.
        """
        for _ in range(_ATTEMPTS):
            kept = await self._journal.keep_session_state(
                conversation.session_id,
                conversation.to_json(),
                version=conversation.version,
                caller=conversation.caller,
            )
            if kept:
                conversation.version += 1
                return
            latest = await self._read(conversation.session_id, conversation.caller)
            known = {each.key for each in conversation.answered}
            others = [each for each in latest.answered if each.key not in known]
            conversation.answered = [*others, *conversation.answered][-_MOST_KEYS:]
            conversation.version = latest.version
        raise RecordError(
            f"The session {conversation.session_id} cannot be written: others write it again and again.",
            advice="Send one message of it at a time.",
        )

    async def said(self, session_id: str, message: str = "", reply: str = "") -> None:
        """Remember what was said."""
        if message:
            await self._memory.add(session_id, UserMessage((TextPart(message[:_LONGEST]),)))
        if reply:
            await self._memory.add(session_id, AssistantMessage((TextPart(reply[:_LONGEST]),)))

    async def texts(self, session_id: str) -> list[Message]:
        """The last of what was said, oldest first; without calls of tools."""
        if not session_id:
            return []
        messages = await self._memory.messages(session_id, limit=_REMEMBERED)
        return [each for each in messages if isinstance(each, UserMessage | AssistantMessage) and each.text]

    async def unfinished(self, conversation: Conversation) -> list[Run]:
        """Runs of the session that are not at their end, the latest first."""
        if not conversation.session_id:
            return []
        return await self._journal.runs(
            caller=conversation.caller,
            session_id=conversation.session_id,
            status=("working", "input_required", "paused"),
            limit=_MOST_RUNS,
        )

    async def last(self, conversation: Conversation) -> Run | None:
        """The latest run of the session."""
        if not conversation.session_id:
            return None
        found = await self._journal.runs(
            caller=conversation.caller, session_id=conversation.session_id, limit=1
        )
        return found[0] if found else None

    async def catch_up(self, conversation: Conversation, told: Callable[[Run], str]) -> None:
        """Remember what came of runs that have ended since somebody was told of them.

        Args:
            conversation: the session.
            told: what users are told of a run.
        """
        still: list[str] = []
        for run_id in conversation.open:
            try:
                run = await self._journal.get(run_id)
            except NotFoundError:  # it was forgotten
                continue
            if run.status not in FINAL_STATUSES:
                still.append(run_id)
            else:
                await self.said(conversation.session_id, reply=told(run))
        conversation.open = still

    async def _read(self, session_id: str, caller: str) -> Conversation:
        state = await self._journal.session_state(session_id, caller=caller)
        return Conversation.of(session_id, caller, state)
