"""The conversation of a session: whose it is, what it remembers and has begun, and messages that come twice.

Idempotency: a message, or a run, with the same key is taken once.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, cast
from weakref import WeakValueDictionary

import anyio

from loom_core.errors import InvalidInputError, LoomError, NotFoundError, StoreError
from loom_core.flow.knowledge.interface import TENANCY
from loom_core.flow.policy.disambiguation import Disambiguation
from loom_core.flow.responses.reply import Citation, FlowReply, Route, TurnOutcome
from loom_core.llm.messages import AssistantMessage, Message, TextPart, UserMessage
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.runs.run import Pending

if TYPE_CHECKING:
    from types import TracebackType

    from anyio.abc import TaskGroup

    from loom_core.flow.understanding.language import Language
    from loom_core.runs.journal import Journal
    from loom_core.runs.journal.rows.sessions import SessionState
    from loom_core.runs.memory import Memory
    from loom_core.runs.run import Run, RunRequest
    from loom_core.tools.interface import JsonValue

__all__ = ["ConversationStore", "FlowConversation", "KeyedMessage", "check_same_request", "route_of"]

_log = logging.getLogger(__name__)

_MAX_KEYS = 32
_REMEMBERED = 12  # messages that a model is shown
_MAX_LENGTH = 4000  # characters of one of them
_MAX_CONTEXT = 16_384  # characters of a context as JSON
_ATTEMPTS = 20
_MAX_RUNS = 1000
_SETTLE_SECONDS = 5.0
_KEY_ADVICE = "Use a new key for each message; the same one only to send the same message again."
_REACHES_SECONDS = 1.0  # that a reply has to leave the process that has made it


@dataclass(frozen=True, slots=True)
class KeyedMessage:
    """A message with an idempotency key that was taken.

    Attributes:
        key: the key.
        message: the message.
        run_id: the run that it was told to, or that was begun for it; empty for none.
        pending_id: what it answers there; it is told if that is not pending any more.
        reply: what was said to it, as JSON; None as long as nothing was.
        late: results of earlier runs that the reply begins with, where it is made of a run.
    """

    key: str
    message: str
    run_id: str = ""
    pending_id: str = ""
    reply: Mapping[str, Any] | None = None
    late: str = ""


@dataclass(slots=True)
class FlowConversation:
    """A session as it stands; what changes is kept by `Conversations.keep`.

    Attributes:
        session_id: its id.
        caller: whose it is.
        context: variables that its messages brought: those of the latest count.
        language: of its latest message that has words.
        offer: what was asked without a run, and is not answered.
        queue: requests of a message that made several, which are begun when what came before has ended.
        open: ids of runs whose result the user was not told of.
        telling: those of them whose result is in a reply, and since when, in seconds since 1970; a run stays
            until it is certain that the reply has left the process.
        answered: messages with a key, the latest last.
        version: of what is in the journal.
    """

    session_id: str
    caller: str
    context: dict[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])
    language: str = ""
    offer: Disambiguation | None = None
    queue: list[Disambiguation] = field(default_factory=list[Disambiguation])
    open: list[str] = field(default_factory=list[str])
    telling: dict[str, float] = field(default_factory=dict[str, float])
    answered: list[KeyedMessage] = field(default_factory=list[KeyedMessage])
    version: int = 0

    def find_by_key(self, key: str, message: str) -> KeyedMessage | None:
        """The record of a message that came before.

        Raises:
            InvalidInputError: the key came with another message.
        """
        found = next((each for each in self.answered if each.key == key), None) if key else None
        if found is not None and found.message != message:
            raise InvalidInputError(
                f"The idempotency key {key!r} was used for another message.", advice=_KEY_ADVICE
            )
        return found

    def note(self, answered: KeyedMessage) -> None:
        """Remember a message with a key."""
        others = [each for each in self.answered if each.key != answered.key]
        self.answered = [*others, answered][-_MAX_KEYS:]

    def note_late(self, key: str, message: str, run_id: str, late: str) -> None:
        """Remember that the reply to a message begins with results, and goes on about a run."""
        if key:
            known = self.find_by_key(key, message) or KeyedMessage(key, message, run_id)
            self.note(replace(known, run_id=run_id, late=late))

    def note_reply(self, key: str, message: str, reply: FlowReply) -> None:
        """Remember the reply to a message with a key."""
        kept = {
            "status": reply.status,
            "text": reply.text,
            "session_id": reply.session_id,
            "route": asdict(reply.route),
            "flow_id": reply.flow_id,
            "pending": [asdict(each) for each in reply.pending],
            "citations": [asdict(each) for each in reply.citations],
        }
        self.note(KeyedMessage(key, message, reply.run_id, "", kept, reply.late))

    def set_language(self, language: Language) -> None:
        """Go on in a language."""
        self.language = language

    def ask(self, offer: Disambiguation) -> None:
        """A question without a run is asked; the next message may answer it."""
        self.offer = offer

    def withdraw_disambiguation(self) -> None:
        """End an offer: it is open for one message only."""
        self.offer = None

    def postpone(self, *requests: Disambiguation) -> None:
        """Begin further requests of a message when what came before has ended."""
        self.queue.extend(requests)

    def next_request(self) -> Disambiguation:
        """Take the first of these requests, which is begun now."""
        return self.queue.pop(0)

    def expect(self, run_id: str) -> None:
        """The user is to be told how a run ends."""
        self.telling.pop(run_id, None)
        self.open = [*dict.fromkeys([*self.open, run_id])]

    def mark_told(self, run_ids: Iterable[str]) -> None:
        """A reply tells how some runs have ended."""
        self.telling |= {run_id: time.time() for run_id in run_ids if run_id in self.open}

    def forget(self, run_ids: Collection[str]) -> None:
        """The user knows how some runs have ended."""
        self.open = [run_id for run_id in self.open if run_id not in run_ids]
        self.telling = {run_id: since for run_id, since in self.telling.items() if run_id not in run_ids}

    def merge_context(self, context: Mapping[str, JsonValue]) -> None:
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
        if size > _MAX_CONTEXT:
            raise InvalidInputError(
                f"The context has {size} characters.", advice=f"Give at most {_MAX_CONTEXT}."
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
            "queue": [each.to_json() for each in self.queue],
            "open": self.open,
            "telling": self.telling,
            "answered": [
                [each.key, each.message, each.run_id, each.pending_id, each.reply, each.late]
                for each in self.answered
            ],
        }

    @classmethod
    def of(cls, session_id: str, caller: str, state: SessionState) -> FlowConversation:
        """The one that the journal has."""
        kept = state.content
        if not kept:
            return cls(session_id, caller, version=state.version)
        return cls(
            session_id,
            caller,
            context=dict(kept["context"]),
            language=kept["language"],
            offer=None if kept["offer"] is None else Disambiguation.from_json(kept["offer"]),
            queue=[Disambiguation.from_json(each) for each in kept.get("queue", ())],
            open=list(kept["open"]),
            telling=dict(kept.get("telling", {})),
            answered=[KeyedMessage(*each) for each in kept["answered"]],
            version=state.version,
        )


@dataclass(frozen=True, slots=True)
class _DeliveredRuns:
    """The runs that the latest reply of a conversation has told of, as `Conversation.telling` has them."""

    caller: str
    told: Mapping[str, float]


class ConversationStore:
    """The sessions of a journal; an asynchronous context manager.

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
        self._reached: dict[str, _DeliveredRuns] = {}
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks, self._tasks = self._tasks, None
        with anyio.move_on_after(_SETTLE_SECONDS, shield=True):
            for session_id in list(self._reached):  # the process ends in good order: its replies have left
                await self._settle(session_id)
        if tasks is not None:
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(None, None, None)

    @asynccontextmanager
    async def turn(
        self, session_id: str, *, caller: str, context: Mapping[str, JsonValue], key: str = ""
    ) -> AsyncGenerator[FlowConversation]:
        """A session, locked in this process; a new one without an id.

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
            fresh = FlowConversation("", caller)
            fresh.merge_context(context)  # before there is anything
            session_id = await self._journal.begin_session(caller=caller, idempotency_key=key)
        lock = self._locks.setdefault(session_id, anyio.Lock())
        async with lock:
            conversation = await self._load(session_id, caller)
            conversation.merge_context(context)
            yield conversation

    async def find_session_by_key(self, key: str, *, caller: str) -> str:
        """The session of the run that was begun for a message with a key; empty for none."""
        run = await self._journal.find_by_key(key, caller=caller) if key else None
        return "" if run is None else run.request.session_id

    async def find_duplicate(
        self, conversation: FlowConversation, message: str, key: str
    ) -> FlowReply | TurnOutcome | None:
        """The reply to a message with a key that came before, or the run that got it; None if it is new.

        Raises:
            InvalidInputError: the key came with another message.
        """
        if not key:
            return None
        known = conversation.find_by_key(key, message)
        if known is None:
            run = await self._journal.find_by_key(key, caller=conversation.caller)
            if run is None:
                return None
            if run.request.metadata.get("message", run.request.goal) != message:
                raise InvalidInputError(
                    f"The idempotency key {key!r} was used for another message.", advice=_KEY_ADVICE
                )
            return TurnOutcome(route=route_of(run), run_id=run.id)
        if not known.run_id:
            return None if known.reply is None else _reply_from(known.reply)
        run = await self._journal.get(known.run_id)
        if known.reply is None and any(each.id == known.pending_id for each in run.pending):
            return None  # the process died before the run was told
        route = _route(known.reply["route"]) if known.reply else route_of(run)
        return TurnOutcome(route=route, run_id=run.id, late=known.late)

    async def peek(
        self, session_id: str, *, caller: str, context: Mapping[str, JsonValue]
    ) -> FlowConversation:
        """A session as it stands, to look at; without an id as a new one would be.

        Raises:
            NotFoundError: there is no such session of this caller.
            InvalidInputError: the context cannot be used.
        """
        conversation = await self._load(session_id, caller) if session_id else FlowConversation("", caller)
        conversation.merge_context(context)
        return conversation

    async def save(self, conversation: FlowConversation) -> None:
        """Write down how it stands; messages with a key that another process has taken meanwhile are kept.

        Raises:
            RecordError: others write it again and again.
        """
        for _ in range(_ATTEMPTS):
            kept = await self._journal.save_session_state(
                conversation.session_id,
                conversation.to_json(),
                version=conversation.version,
                caller=conversation.caller,
            )
            if kept:
                conversation.version += 1
                return
            latest = await self._load(conversation.session_id, conversation.caller)
            known = {each.key for each in conversation.answered}
            others = [each for each in latest.answered if each.key not in known]
            conversation.answered = [*others, *conversation.answered][-_MAX_KEYS:]
            conversation.version = latest.version
        raise StoreError(
            f"The session {conversation.session_id} cannot be written: others write it again and again.",
            advice="Send one message of it at a time.",
        )

    async def save_messages(self, session_id: str, message: str = "", reply: str = "") -> None:
        """Remember what was said."""
        if message:
            await self._memory.add(session_id, UserMessage((TextPart(message[:_MAX_LENGTH]),)))
        if reply:
            await self._memory.add(session_id, AssistantMessage((TextPart(reply[:_MAX_LENGTH]),)))

    async def messages(self, session_id: str) -> list[Message]:
        """The last of what was said, oldest first; without calls of tools."""
        if not session_id:
            return []
        messages = await self._memory.messages(session_id, limit=_REMEMBERED)
        return [each for each in messages if isinstance(each, UserMessage | AssistantMessage) and each.text]

    async def list_unfinished(self, conversation: FlowConversation) -> list[Run]:
        """Runs of the session that are not at their end, the latest first."""
        if not conversation.session_id:
            return []
        return await self._journal.runs(
            caller=conversation.caller,
            session_id=conversation.session_id,
            status=("working", "input_required", "paused"),
            limit=_MAX_RUNS,
        )

    async def latest_run(self, conversation: FlowConversation) -> Run | None:
        """The latest run of the session."""
        if not conversation.session_id:
            return None
        found = await self._journal.runs(
            caller=conversation.caller, session_id=conversation.session_id, limit=1
        )
        return found[0] if found else None

    async def find_unreported(self, conversation: FlowConversation) -> list[Run]:
        """Runs that have ended, and whose result the user was not told of; the oldest first."""
        found: list[Run] = []
        for run_id in list(conversation.open):
            try:
                run = await self._journal.get(run_id)
            except NotFoundError:  # it was forgotten
                conversation.open.remove(run_id)
                continue
            if run.status in FINAL_STATUSES and not self._is_delivered(conversation, run_id):
                found.append(run)
        return found

    def confirm_delivery(self, conversation: FlowConversation) -> None:
        """A reply that tells of runs, which is written down, is handed over now.

        Where a process dies before the reply can have left it, the next one tells it again: nothing is lost
        on the way, and only then may a result come twice.
        """
        if conversation.telling:
            told = dict(conversation.telling)
            self._reached[conversation.session_id] = _DeliveredRuns(conversation.caller, told)
            if self._tasks is not None:
                self._tasks.start_soon(self._settle_later, conversation.session_id)

    async def _settle_later(self, session_id: str) -> None:
        await anyio.sleep(_REACHES_SECONDS)
        await self._settle(session_id)

    async def _settle(self, session_id: str) -> None:
        """Write down that what replies have told is told."""
        if (reached := self._reached.pop(session_id, None)) is None:
            return
        try:
            async with self.turn(session_id, caller=reached.caller, context={}) as conversation:
                told = {
                    run_id
                    for run_id, since in reached.told.items()
                    if conversation.telling.get(run_id) == since
                }
                conversation.forget(told)
                if told:
                    await self.save(conversation)
        except LoomError as error:
            _log.warning("results of %s may be told again: %s", session_id, error)

    def _is_delivered(self, conversation: FlowConversation, run_id: str) -> bool:
        """Whether a result was told: by this process, or by another that is alive, as far as one can tell."""
        since = conversation.telling.get(run_id)
        if since is None:
            return False
        known = self._reached.get(conversation.session_id)
        own = known is not None and known.told.get(run_id) == since
        return own or time.time() - since < 2 * _REACHES_SECONDS

    async def _load(self, session_id: str, caller: str) -> FlowConversation:
        state = await self._journal.session_state(session_id, caller=caller)
        return FlowConversation.of(session_id, caller, state)


def check_same_request(known: RunRequest, request: RunRequest) -> None:
    """See that a run which is there for a key is the one that is asked for.

    Raises:
        InvalidInputError: it is another one.
    """
    before, now = (
        (each.profile, each.metadata.get("inputs"), each.metadata.get("message")) for each in (known, request)
    )
    told = ("flow", "set of inputs", "message")
    other = next((name for name, one, two in zip(told, before, now, strict=True) if one != two), "")
    if other:
        raise InvalidInputError(
            f"The idempotency key {request.idempotency_key!r} was used before, with another {other}.",
            advice="Use a new key for each run; the same one only to ask for the same run again.",
        )


def route_of(run: Run) -> Route:
    """How a run was chosen, as far as it says so."""
    kept: object = run.request.metadata.get("route")
    if isinstance(kept, Mapping):
        return _route(cast("Mapping[str, Any]", kept))
    return Route(action="flow", how="given", flow_id=run.request.profile)


def _route(kept: Mapping[str, Any]) -> Route:
    """A route of JSON, which has lists for tuples."""
    read: dict[str, Any] = {
        name: tuple(cast("list[str]", value)) if isinstance(value, list) else value
        for name, value in kept.items()
    }
    return Route(**read)


def _reply_from(kept: Mapping[str, Any]) -> FlowReply:
    return FlowReply(
        status=kept["status"],
        text=kept["text"],
        session_id=kept["session_id"],
        route=_route(kept["route"]),
        flow_id=kept["flow_id"],
        pending=tuple(Pending(**each) for each in kept["pending"]),
        citations=tuple(Citation(**each) for each in kept["citations"]),
    )
