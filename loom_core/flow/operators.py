"""`OperatorDesk`: people of the business who take conversations from flows, and return them; and events.

A flow hands over by a step `handover`, and waits for an event by a step `wait_for`. Everything is in the
journal, so any process can answer, and nothing is lost with one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.runs.commands import InputResponse, OperatorMessage

if TYPE_CHECKING:
    from loom_core.flow.turns.session import ConversationStore
    from loom_core.runs.host import RunHost
    from loom_core.runs.journal import Journal
    from loom_core.runs.run import Pending, Run

__all__ = ["Handover", "OperatorDesk", "SpokenMessage"]

_MOST = 1000  # conversations that are listed
_MAX_LENGTH = 20_000  # characters of a message
_APPLIED_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Handover:
    """A conversation that waits for an operator, or that one has.

    Attributes:
        run: the run of the flow that handed it over.
        pending: the request to an operator.
    """

    run: Run
    pending: Pending

    @property
    def about(self) -> str:
        """Its subject in the words of the flow; else the user's message that started the flow."""
        return str(self.pending.arguments.get("about") or self.run.request.goal)

    @property
    def since(self) -> float:
        """When the user began to wait, in seconds since 1970; in old journals, when the run began."""
        return self.run.created if self.pending.since is None else self.pending.since


@dataclass(frozen=True, slots=True)
class SpokenMessage:
    """A message of a conversation.

    Attributes:
        by: `user`, `assistant`, or `operator` for one that the user has not read yet.
        text: the message.
    """

    by: Literal["user", "assistant", "operator"]
    text: str


class OperatorDesk:
    """The queue of conversations that flows have handed over, and what operators do with them."""

    def __init__(self, journal: Journal, *, host: RunHost, conversations: ConversationStore) -> None:
        self._journal = journal
        self._host = host
        self._conversations = conversations

    async def queue(
        self, *, flows: frozenset[str] | None = None, context: Mapping[str, str] | None = None
    ) -> list[Handover]:
        """Return the conversations with operators or waiting for one, the longest wait first, at most 1000.

        Args:
            flows: ids of the flows that the operator may see; None for all.
            context: only conversations with these variables, such as the tenant.
        """
        runs = await self._journal.runs(waits_for="operator", limit=-1)
        visible = (run for run in reversed(runs) if _is_visible(run, flows, context or {}))
        pending = ((run, each.current()) for run in visible for each in run.pending)
        found = (Handover(run, each) for run, each in pending if each.kind == "operator")
        return sorted(found, key=lambda each: each.since)[:_MOST]

    async def find(
        self,
        run_id: str,
        *,
        flows: frozenset[str] | None = None,
        context: Mapping[str, str] | None = None,
    ) -> Handover:
        """Return a handed-over conversation by its run; see `queue`.

        Raises:
            NotFoundError: the operator may see no such run, or it is with no operator and waits for none.
        """
        run = await self._journal.get(run_id)
        for each in run.pending:
            if each.kind == "operator" and _is_visible(run, flows, context or {}):
                return Handover(run, each.current())
        raise NotFoundError(
            f"Run {run_id[:200]!r} is not handed over to an operator.",
            advice="Look at the queue of operators; another one may have returned the conversation.",
        )

    async def conversation(self, handover: Handover) -> list[SpokenMessage]:
        """Return the conversation as the user has read it, then the messages that they have not read."""
        run = handover.run
        messages = await self._conversations.messages(run.request.session_id, limit=None)
        said = [SpokenMessage("user" if each.role == "user" else "assistant", each.text) for each in messages]
        kept = await self._conversations.peek(run.request.session_id, caller=run.request.caller, context={})
        unread = await self._conversations.find_unread_lines(kept)
        return [*said, *(SpokenMessage("operator", line.text) for line in unread)]

    async def say(self, handover: Handover, text: str, *, by: str, takes_over: bool = False) -> Run:
        """Take a conversation, and write to the user; they read it with their next message or when they look.

        Args:
            handover: the conversation.
            text: the message; empty to take it, and say nothing yet.
            by: the operator's name, which the user reads.
            takes_over: whether to take it from another operator.

        Raises:
            InvalidInputError: another operator has it, it was returned meanwhile, or the text is too long.
        """
        if len(text) > _MAX_LENGTH:
            raise InvalidInputError(
                f"The message has {len(text)} characters.", advice=f"Send at most {_MAX_LENGTH}."
            )
        order = OperatorMessage(id=handover.pending.id, text=text.strip(), by=by, takes_over=takes_over)
        return await self._send(handover, order)

    async def hand_back(self, handover: Handover, agreed: Mapping[str, Any], *, by: str) -> Run:
        """Return a conversation to the flow, with what was agreed; the flow goes on.

        Raises:
            InvalidInputError: another operator has it, or the values do not fit the schema of the step.
        """
        order = InputResponse(id=handover.pending.id, action="accept", content=dict(agreed), by=by)
        return await self._send(handover, order)

    async def give_up(self, handover: Handover, reason: str, *, by: str) -> Run:
        """Return a conversation without a result: the step fails with the reason, which the user reads.

        Raises:
            InvalidInputError: another operator has it, or it was returned meanwhile.
        """
        content = {"reason": reason.strip()} if reason.strip() else {}
        order = InputResponse(id=handover.pending.id, action="decline", content=content, by=by)
        return await self._send(handover, order)

    async def _send(self, handover: Handover, order: OperatorMessage | InputResponse) -> Run:
        """Send a command; return the run when it has applied it and gone on, or after a few seconds."""
        run = await self._host.send_commands(handover.run.id, order)
        return await self._journal.wait_until_idle(run.id, after=run.last_seq, seconds=_APPLIED_SECONDS)

    async def send_event(
        self,
        name: str,
        *,
        key: str = "",
        payload: object = None,
        by: str = "",
        caller: str | None = None,
    ) -> list[str]:
        """Send an event to the runs that wait for it; return their ids.

        Args:
            name: its name.
            key: its key; a step with another key is not meant.
            payload: its data, JSON: the output `result` of the step.
            by: the sender.
            caller: only runs of this caller; None for all.

        Raises:
            NotFoundError: no run waits for it.
        """
        reached: list[str] = []
        waiting = await self._journal.runs(caller=caller, waits_for="event", waits_for_name=name, limit=-1)
        for run in waiting if name else ():
            for each in run.pending:
                if each.kind != "event" or each.tool != name:
                    continue
                if str(each.arguments.get("key", "")) != key:
                    continue
                order = InputResponse(id=each.id, action="accept", content={"payload": payload}, by=by)
                try:
                    await self._host.send_commands(run.id, order)
                except InvalidInputError:  # another process was faster, or its time is over
                    continue
                reached.append(run.id)
        if not reached:
            about = f" with the key {key[:80]!r}" if key else ""
            raise NotFoundError(
                f"No run waits for the event {name[:80]!r}{about}.",
                advice="Send it again in a moment: the run may not have come that far yet.",
            )
        return reached


def _is_visible(run: Run, flows: frozenset[str] | None, context: Mapping[str, str]) -> bool:
    own: Any = run.request.metadata.get("context") or {}
    of_flow = flows is None or run.request.profile in flows
    return of_flow and all(own.get(name) == value for name, value in context.items())
