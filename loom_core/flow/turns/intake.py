"""A message of a conversation, taken in: checked, given its language, and what is to be done is done."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError
from loom_core.flow.responses.phrases import Phrases, language_of
from loom_core.flow.turns.idempotency import check_same
from loom_core.flow.turns.responses import Outcome
from loom_core.flow.turns.tracing import message_span
from loom_core.flow.turns.turn import take
from loom_core.flow.turns.turn_context import Acts

if TYPE_CHECKING:
    from loom_core.flow.responses.reply import Route
    from loom_core.flow.runtime.runtime import Equipment
    from loom_core.flow.turns.idempotency import Repeats
    from loom_core.flow.turns.session import Conversation, Conversations
    from loom_core.runs.host import RunHost
    from loom_core.runs.run import Run, RunRequest

__all__ = ["Intake", "check_message"]

_LONGEST = 20_000  # characters of a message


def check_message(message: str) -> None:
    """See that a message can be taken.

    Raises:
        InvalidInputError: it is too long, or no text.
    """
    if len(message) > _LONGEST:
        raise InvalidInputError(
            f"The message has {len(message)} characters.", advice=f"Send at most {_LONGEST}."
        )
    try:
        message.encode()
    except UnicodeEncodeError:
        raise InvalidInputError("The message is no text: it holds half a character.") from None


class Intake:
    """Takes messages of conversations that nobody else changes meanwhile.

    Args:
        conversations: of all sessions.
        repeats: know what was said to messages with a key.
        host: drives runs.
    """

    def __init__(self, conversations: Conversations, *, repeats: Repeats, host: RunHost) -> None:
        self._conversations = conversations
        self._repeats = repeats
        self._host = host

    def acts(
        self,
        equipment: Equipment,
        conversation: Conversation,
        message: str,
        *,
        key: str = "",
        since: float | None = None,
    ) -> Acts:
        """What can be done with a message; the conversation goes on in its language.

        Args:
            equipment: of the flow file.
            conversation: the session.
            message: what the user says.
            key: of the message, if any.
            since: see `Acts`.
        """
        setting = equipment.file.basic_settings.language
        language = language_of(message, setting=setting, before=conversation.language)
        conversation.language = language
        return Acts(
            equipment,
            conversations=self._conversations,
            host=self._host,
            conversation=conversation,
            message=message,
            phrases=Phrases.of(language),
            idempotency_key=key,
            before_order=partial(self._repeats.note_order, conversation, key, message) if key else None,
            since=since,
        )

    async def take(self, acts: Acts) -> Outcome:
        """Do what is to be done with a message, and keep the conversation.

        Raises:
            RecordError: the journal cannot be written.
        """
        conversation = acts.conversation
        acts.late = await self._conversations.untold(conversation)
        with message_span(conversation.session_id, timings=acts.timings) as told_of:
            outcome = await take(acts)
            told_of(outcome)
        outcome = self._with_late(acts, outcome)
        if outcome.run_id:  # the rest is remembered when the run has something to say
            conversation.expect(outcome.run_id)
            await self._conversations.said(conversation.session_id, acts.message)
        await self._conversations.keep(conversation)
        return outcome

    def _with_late(self, acts: Acts, outcome: Outcome) -> Outcome:
        """An outcome that begins with what the user was not told yet: how earlier runs have ended."""
        acts.late = [run for run in acts.late if run.id != outcome.run_id]
        if not acts.late:
            return outcome
        late = acts.late_text
        if outcome.run_id:
            self._repeats.note_late(acts.conversation, acts.key, acts.message, outcome.run_id, late)
        return replace(outcome, late=late, told=tuple(run.id for run in acts.late))

    async def begin(self, acts: Acts, request: RunRequest, *, route: Route, known: Run | None) -> Outcome:
        """Begin a flow that is named.

        Args:
            acts: what can be done in the conversation.
            request: the flow with its inputs.
            route: how it was chosen.
            known: the run that it is, where the same was asked for with the same key before.

        Raises:
            InvalidInputError: the key came with another request.
            RecordError: the journal cannot be written.
        """
        if known is not None:
            check_same(known.request, request)
            return Outcome(route=route, run_id=known.id)
        with message_span(acts.conversation.session_id, timings=acts.timings) as told_of:
            await acts.look_around()
            run = await acts.start(request)
            check_same(run.request, request)  # another process may have begun it in this moment
            outcome = Outcome(route=route, run_id=run.id)
            told_of(outcome)
        return outcome
