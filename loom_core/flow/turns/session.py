"""Conversations of sessions: owner, memory and runs; and deduplication of repeated messages.

Idempotency: a message, or a run, with the same key is processed once.
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
from loom_core.flow.knowledge.executor import TENANCY
from loom_core.flow.policy.decision import FurtherRequest
from loom_core.flow.policy.router import Disambiguation
from loom_core.flow.responses.reply import Citation, FlowReply, RoutingOutcome, TurnOutcome
from loom_core.llm.messages import AssistantMessage, Message, TextPart, UserMessage
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.runs.run import Pending

if TYPE_CHECKING:
    from types import TracebackType

    from anyio.abc import TaskGroup

    from loom_core.runs.journal import Journal
    from loom_core.runs.journal.rows.sessions import SessionState
    from loom_core.runs.memory import Memory
    from loom_core.runs.run import Run, RunRequest
    from loom_core.tools.interface import JsonValue

__all__ = [
    "ASIDE",
    "ConversationStore",
    "FlowConversation",
    "KeyedMessage",
    "OperatorLine",
    "check_same_request",
    "route_of",
]

_log = logging.getLogger(__name__)

ASIDE = "aside"
"""Key of `RunRequest.metadata`: the run answers a question next to what the message is about."""

_MAX_KEYS = 32
_LATEST = 10
_REMEMBERED = 12  # maximum number of messages for a model
_MAX_LENGTH = 4000  # characters of each
_MAX_CONTEXT = 16_384  # characters of a context as JSON
_ATTEMPTS = 20
_MAX_RUNS = 1000
_SETTLE_SECONDS = 5.0
_KEY_ADVICE = "Use a new key for each message; the same one only to send the same message again."
_REACHES_SECONDS = 1.0  # time for a reply to leave the process that built it


@dataclass(frozen=True, slots=True)
class KeyedMessage:
    """A processed message with an idempotency key.

    Attributes:
        key: the key.
        message: the message.
        run_id: the run that it was sent to, or that it started; empty for none.
        pending_id: id of the question that it answers; it is applied if that is still pending.
        reply: the reply as JSON; None until there is one.
        late: results of earlier runs at the beginning of the reply, if the reply is built from a run.
    """

    key: str
    message: str
    run_id: str = ""
    pending_id: str = ""
    reply: Mapping[str, Any] | None = None
    late: str = ""


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """A message of an operator to the user; its id has the run and the seq of the event."""

    id: str
    by: str
    text: str


@dataclass(slots=True)
class FlowConversation:
    """State of a session; `ConversationStore.save` saves it.

    Attributes:
        session_id: id of the session.
        caller: its owner.
        context: variables of its messages; the latest ones override.
        language: language of its latest message with words.
        offer: the open disambiguation question.
        queue: further requests of a message, which start when the previous one has ended.
        open: ids of runs whose results the user has not been told.
        telling: those of them whose results are in a reply, with its time in seconds since 1970; a run stays
            here until the reply has certainly left the process. So does an `OperatorLine.id`.
        read: seq of the last operator's message that the user has read, by run.
        answered: messages with keys, the latest last.
        version: version in the journal.
    """

    session_id: str
    caller: str
    context: dict[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])
    language: str = ""
    offer: Disambiguation | None = None
    queue: list[FurtherRequest] = field(default_factory=list[FurtherRequest])
    open: list[str] = field(default_factory=list[str])
    telling: dict[str, float] = field(default_factory=dict[str, float])
    read: dict[str, int] = field(default_factory=dict[str, int])
    answered: list[KeyedMessage] = field(default_factory=list[KeyedMessage])
    version: int = 0

    def find_by_key(self, key: str, message: str) -> KeyedMessage | None:
        """Return the entry of an earlier message with the key.

        Raises:
            InvalidInputError: the key was used with another message.
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
        """Remember that the reply to a message starts with results, and continues about a run."""
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

    def expect(self, run_id: str) -> None:
        """Expect the result of a run, which the user has to be told."""
        self.telling.pop(run_id, None)
        self.open = [*dict.fromkeys([*self.open, run_id])]

    def is_untold(self, id_: str) -> bool:
        """Return whether the result of a run, or an operator's message, is in no reply yet."""
        return id_ not in self.telling and (id_ in self.open or self._is_unread(id_))

    def _is_unread(self, id_: str) -> bool:
        run_id, colon, seq = id_.partition(":")
        return bool(colon) and run_id in self.open and int(seq) > self.read.get(run_id, 0)

    def mark_told(self, ids: Iterable[str]) -> None:
        """Mark the results of runs, and operators' messages, as told in a reply."""
        self.telling |= {id_: time.time() for id_ in ids if id_ in self.open or self._is_unread(id_)}

    def forget(self, ids: Collection[str]) -> None:
        """Drop the runs whose results the user knows, and the operators' messages that they have read."""
        for id_ in filter(self._is_unread, ids):
            run_id, _, seq = id_.partition(":")
            self.read[run_id] = max(int(seq), self.read.get(run_id, 0))
        self.open = [run_id for run_id in self.open if run_id not in ids]
        self.telling = {id_: since for id_, since in self.telling.items() if id_ not in ids}
        self.read = {run_id: seq for run_id, seq in self.read.items() if run_id in self.open}

    def merge_context(self, context: Mapping[str, JsonValue]) -> None:
        """Merge the variables of a message.

        Raises:
            InvalidInputError: all of them are too large, they are no JSON, or of another tenant than the
                conversation.
        """
        if not context:
            return
        merged = {**self.context, **context}
        try:
            size = len(json.dumps(merged, ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            raise InvalidInputError(
                "The context is not valid JSON.", advice="Give names and plain values."
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
        self.context = merged

    def to_json(self) -> dict[str, Any]:
        """Return the state for the journal."""
        return {
            "context": self.context,
            "language": self.language,
            "offer": None if self.offer is None else self.offer.to_json(),
            "queue": [each.to_json() for each in self.queue],
            "open": self.open,
            "telling": self.telling,
            "read": self.read,
            "answered": [
                [each.key, each.message, each.run_id, each.pending_id, each.reply, each.late]
                for each in self.answered
            ],
        }

    @classmethod
    def of(cls, session_id: str, caller: str, state: SessionState) -> FlowConversation:
        """Restore a conversation from the journal."""
        kept = state.content
        if not kept:
            return cls(session_id, caller, version=state.version)
        return cls(
            session_id,
            caller,
            context=dict(kept["context"]),
            language=kept["language"],
            offer=None if kept["offer"] is None else Disambiguation.from_json(kept["offer"]),
            queue=[FurtherRequest.from_json(each) for each in kept.get("queue", ())],
            open=list(kept["open"]),
            telling=dict(kept.get("telling", {})),
            read=dict(kept.get("read", {})),
            answered=[KeyedMessage(*each) for each in kept["answered"]],
            version=state.version,
        )


@dataclass(frozen=True, slots=True)
class _DeliveredRuns:
    """Runs whose results were in the latest reply of a conversation, as in `FlowConversation.telling`."""

    caller: str
    told: Mapping[str, float]


class ConversationStore:
    """The conversations of a journal; an asynchronous context manager.

    Messages of a session are in the memory; its runs and questions are in the journal, so they survive the
    process, and another process can continue. This process handles one message of a session at a time;
    across processes the journal ensures that no run starts twice and no message is applied twice; for the
    rest, the last write wins.
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
            for session_id in list(self._reached):  # the process ends regularly: its replies have left
                await self._settle(session_id)
        if tasks is not None:
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(None, None, None)

    @asynccontextmanager
    async def turn(
        self, session_id: str, *, caller: str, context: Mapping[str, JsonValue], key: str = ""
    ) -> AsyncGenerator[FlowConversation]:
        """Context of a session, locked in this process; without an id, of a new one.

        With the key of a message and no id, it is the session that this message created.

        Raises:
            NotFoundError: the caller has no such session.
            InvalidInputError: the context is invalid.
        """
        if not session_id:
            fresh = FlowConversation("", caller)
            fresh.merge_context(context)  # before anything exists
            session_id = await self._journal.begin_session(caller=caller, idempotency_key=key)
        lock = self._locks.setdefault(session_id, anyio.Lock())
        async with lock:
            conversation = await self._load(session_id, caller)
            conversation.merge_context(context)
            yield conversation

    async def find_session_by_key(self, key: str, *, caller: str) -> str:
        """Return the session of the run with an idempotency key; empty for none."""
        run = await self._journal.find_by_key(key, caller=caller) if key else None
        return "" if run is None else run.request.session_id

    async def find_duplicate(
        self, conversation: FlowConversation, message: str, key: str
    ) -> FlowReply | TurnOutcome | None:
        """Return the reply to an earlier message with the key, or its run; None if the message is new.

        Raises:
            InvalidInputError: the key was used with another message.
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
            return None  # the process crashed before the run got the message
        route = _route(known.reply["route"]) if known.reply else route_of(run)
        return TurnOutcome(route=route, run_id=run.id, late=known.late)

    async def peek(
        self, session_id: str, *, caller: str, context: Mapping[str, JsonValue]
    ) -> FlowConversation:
        """Return a session read-only; without an id, an empty one.

        Raises:
            NotFoundError: the caller has no such session.
            InvalidInputError: the context is invalid.
        """
        conversation = await self._load(session_id, caller) if session_id else FlowConversation("", caller)
        conversation.merge_context(context)
        return conversation

    async def save(self, conversation: FlowConversation) -> None:
        """Save the state; merge messages with keys that other processes have saved.

        Raises:
            StoreError: other processes keep writing it.
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
            f"The session {conversation.session_id} could not be saved: other processes keep saving it.",
            advice="Send its messages one at a time.",
        )

    async def save_messages(self, session_id: str, message: str = "", reply: str = "") -> None:
        """Save a message and its reply to memory."""
        if message:
            await self._memory.add(session_id, UserMessage((TextPart(message[:_MAX_LENGTH]),)))
        if reply:
            await self._memory.add(session_id, AssistantMessage((TextPart(reply[:_MAX_LENGTH]),)))

    async def messages(self, session_id: str, *, limit: int | None = _REMEMBERED) -> list[Message]:
        """Return the latest messages, oldest first, without tool calls; all of them if the limit is None."""
        if not session_id:
            return []
        messages = await self._memory.messages(session_id, limit=limit)
        return [each for each in messages if isinstance(each, UserMessage | AssistantMessage) and each.text]

    async def list_unfinished(self, conversation: FlowConversation) -> list[Run]:
        """Return the session's runs that have not ended, the latest first."""
        if not conversation.session_id:
            return []
        return await self._journal.runs(
            caller=conversation.caller,
            session_id=conversation.session_id,
            status=("working", "input_required", "paused"),
            limit=_MAX_RUNS,
        )

    async def latest_run(self, conversation: FlowConversation) -> Run | None:
        """Return the latest run of the session; not one that has only answered a question besides."""
        if not conversation.session_id:
            return None
        found = await self._journal.runs(
            caller=conversation.caller, session_id=conversation.session_id, limit=_LATEST
        )
        return next((run for run in found if ASIDE not in run.request.metadata), None)

    async def find_unreported(self, conversation: FlowConversation) -> list[Run]:
        """Return ended runs whose results the user has not been told, the oldest first."""
        found: list[Run] = []
        for run_id in list(conversation.open):
            try:
                run = await self._journal.get(run_id)
            except NotFoundError:  # it was purged
                conversation.open.remove(run_id)
                continue
            if run.status in FINAL_STATUSES and not self._is_delivered(conversation, run_id):
                found.append(run)
        return found

    async def find_unread_lines(self, conversation: FlowConversation) -> list[OperatorLine]:
        """Return the operators' messages that the user has not read, oldest first."""
        found: list[OperatorLine] = []
        for run_id in conversation.open:
            seq = conversation.read.get(run_id, 0)
            while events := await self._journal.events(run_id, after=seq):
                seq = events[-1].seq
                found += [
                    OperatorLine(f"{run_id}:{event.seq}", event.payload["by"], event.payload["text"])
                    for event in events
                    if event.type == "operator_message" and event.payload["text"]
                ]
        return [line for line in found if not self._is_delivered(conversation, line.id)]

    def confirm_delivery(self, conversation: FlowConversation) -> None:
        """Note that a saved reply about runs is delivered now.

        If the process crashes before the reply has certainly left it, the next reply repeats the results:
        none is lost, and only then may one come twice.
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
        """Save which results were delivered."""
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
            _log.warning("results of %s may be repeated: %s", session_id, error)

    def _is_delivered(self, conversation: FlowConversation, run_id: str) -> bool:
        """Return whether a result was delivered by this process or, as far as known, by another live one."""
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
    """Check that an existing run with the key has the same request.

    Raises:
        InvalidInputError: it is another request.
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


def route_of(run: Run) -> RoutingOutcome:
    """Return the route of a run, as far as it is recorded."""
    kept: object = run.request.metadata.get("route")
    if isinstance(kept, Mapping):
        return _route(cast("Mapping[str, Any]", kept))
    return RoutingOutcome(action="flow", how="given", flow_id=run.request.profile)


def _route(kept: Mapping[str, Any]) -> RoutingOutcome:
    """Parse a route from JSON, where tuples are lists."""
    read: dict[str, Any] = {
        name: tuple(cast("list[str]", value)) if isinstance(value, list) else value
        for name, value in kept.items()
    }
    return RoutingOutcome(**read)


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
