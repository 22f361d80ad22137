"""Messages that come twice: with the same idempotency key, they are taken once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import InvalidInputError
from loom_core.flow.responses.reply import Citation, FlowReply, Route
from loom_core.flow.turns.responses import Outcome
from loom_core.flow.turns.session import Answered
from loom_core.runs.run import Pending

if TYPE_CHECKING:
    from loom_core.flow.turns.session import Conversation, Conversations
    from loom_core.runs.journal import Journal
    from loom_core.runs.run import Run, RunRequest

__all__ = ["Repeats", "check_same", "route_of"]

_ADVICE = "Use a new key for each message; the same one only to send the same message again."


class Repeats:
    """Knows what was said to messages with a key.

    Args:
        journal: has the runs that were begun for them.
        conversations: have what was said.
    """

    def __init__(self, journal: Journal, conversations: Conversations) -> None:
        self._journal = journal
        self._conversations = conversations

    async def session_of(self, key: str, *, caller: str) -> str:
        """The session of the run that was begun for a message with a key; empty for none."""
        run = await self._journal.with_key(key, caller=caller) if key else None
        return "" if run is None else run.request.session_id

    async def before(self, conversation: Conversation, message: str, key: str) -> FlowReply | Outcome | None:
        """What was said to a message with a key, or the run that it was told to; None if it is new.

        Raises:
            InvalidInputError: the key came with another message.
        """
        if not key:
            return None
        known = conversation.with_key(key, message)
        if known is None:
            run = await self._journal.with_key(key, caller=conversation.caller)
            if run is None:
                return None
            if run.request.metadata.get("message", run.request.goal) != message:
                raise InvalidInputError(
                    f"The idempotency key {key!r} was used for another message.", advice=_ADVICE
                )
            return Outcome(route=route_of(run), run_id=run.id)
        if not known.run_id:
            return None if known.reply is None else _reply_from(known.reply)
        run = await self._journal.get(known.run_id)
        if known.reply is None and any(each.id == known.pending_id for each in run.pending):
            return None  # the process died before the run was told
        route = _route(known.reply["route"]) if known.reply else route_of(run)
        return Outcome(route=route, run_id=run.id, late=known.late)

    async def note_order(
        self, conversation: Conversation, key: str, message: str, run_id: str, pending_id: str
    ) -> None:
        """A run is about to be told a message."""
        conversation.note(Answered(key, message, run_id, pending_id))
        await self._conversations.keep(conversation)

    def note_late(self, conversation: Conversation, key: str, message: str, run_id: str, late: str) -> None:
        """The reply to a message begins with results, and goes on about a run; to be kept."""
        if key:
            known = conversation.with_key(key, message) or Answered(key, message, run_id)
            conversation.note(replace(known, run_id=run_id, late=late))

    def note_reply(self, conversation: Conversation, key: str, message: str, reply: FlowReply) -> None:
        """A message was answered; to be kept with the conversation."""
        kept = {
            "status": reply.status,
            "text": reply.text,
            "session_id": reply.session_id,
            "route": asdict(reply.route),
            "flow_id": reply.flow_id,
            "pending": [asdict(each) for each in reply.pending],
            "citations": [asdict(each) for each in reply.citations],
        }
        conversation.note(Answered(key, message, reply.run_id, "", kept, reply.late))


def check_same(known: RunRequest, request: RunRequest) -> None:
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
