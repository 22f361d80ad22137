"""What comes of a message, delivered: its run is waited for, the reply is put into words and remembered."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from loom_core.flow.responses.phrases import Phrases, language_of, language_of_run
from loom_core.flow.turns.responses import Outcome, reply_of, waiting_of
from loom_core.runs.journal.rows.runs import FINAL_STATUSES

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.responses.reply import FlowReply, Waiting
    from loom_core.flow.runtime.runtime import Equipment
    from loom_core.flow.turns.idempotency import Repeats
    from loom_core.flow.turns.session import Conversation, Conversations
    from loom_core.flow.turns.turn_context import Acts
    from loom_core.runs.journal import Journal
    from loom_core.runs.run import Run

__all__ = ["Delivery"]


class Delivery:
    """Brings conversations what came of their messages.

    Args:
        journal: has the runs.
        conversations: remember what is said.
        repeats: know what was said to messages with a key.
        wait_seconds: how long a run is waited for, where a message does not say.
    """

    def __init__(
        self, journal: Journal, *, conversations: Conversations, repeats: Repeats, wait_seconds: float
    ) -> None:
        self._journal = journal
        self._conversations = conversations
        self._repeats = repeats
        self._wait_seconds = wait_seconds

    async def run_of(self, outcome: Outcome, seconds: float | None) -> Run | None:
        """The run of an outcome when it has something to say, or as it stands after a while; None for none.

        Args:
            outcome: what a message came to.
            seconds: how long it is waited for; None for what holds for all.
        """
        if not outcome.run_id:
            return None
        limit = self._wait_seconds if seconds is None else seconds
        return await self._journal.changed(outcome.run_id, after=outcome.after, seconds=limit)

    async def reply(self, acts: Acts, outcome: Outcome, run: Run | None, *, began: float) -> FlowReply:
        """The reply to a message.

        Args:
            acts: what was done with it.
            outcome: what it came to.
            run: its run as it stands; None where there is none.
            began: when it came, as `time.perf_counter`.
        """
        timings = {**acts.timings, "total": time.perf_counter() - began}
        if run is not None:
            timings["run"] = timings["total"] - sum(acts.timings.values())
        return reply_of(
            outcome,
            run,
            session_id=acts.conversation.session_id,
            file=acts.file,
            phrases=acts.phrases,
            waiting=await self._waiting(acts.conversation, acts.file, but=outcome.run_id),
            timings=timings,
        )

    async def of_run(
        self, outcome: Outcome, equipment: Equipment, conversation: Conversation, *, seconds: float | None
    ) -> FlowReply:
        """The reply to who asks for a run itself, in the language that it was begun in.

        Args:
            outcome: which run.
            equipment: of the flow file.
            conversation: the session.
            seconds: see `run_of`.
        """
        began = time.perf_counter()
        run = await self.run_of(outcome, seconds)
        setting = equipment.file.basic_settings.language
        language = (
            language_of("", setting=setting, before=conversation.language)
            if run is None
            else language_of_run(run.request, setting=setting)
        )
        file = equipment.spoken(language)
        return reply_of(
            outcome,
            run,
            session_id=conversation.session_id,
            file=file,
            phrases=Phrases.of(language),
            waiting=await self._waiting(conversation, file, but=outcome.run_id),
            timings={"total": time.perf_counter() - began},
        )

    async def remember(
        self, acts: Acts, reply: FlowReply, *, key: str, reaches: bool, again: bool = False
    ) -> None:
        """Write down what was said of a run; where it goes on, what comes of it is for a later turn.

        Args:
            acts: what was done with the message, which is written down already.
            reply: to it.
            key: of the message, if any.
            reaches: see `keep`.
            again: whether the message has come before: it is written down only if nothing was said then.
        """
        conversation = acts.conversation
        if (reply.status == "working" and not reply.late) or (again and not reply.told):
            return
        session = self._conversations.turn(conversation.session_id, caller=conversation.caller, context={})
        async with session as latest:
            is_news = any(each in latest.open and each not in latest.telling for each in reply.told)
            if is_news or not (again or reply.told):
                await self.keep(latest, "", reply, key=key, said=acts.message, reaches=reaches)

    async def keep(
        self,
        conversation: Conversation,
        message: str,
        reply: FlowReply,
        *,
        key: str,
        said: str = "",
        reaches: bool,
    ) -> None:
        """Write down what was said.

        Args:
            conversation: the session.
            message: the user's; empty where it is written down already.
            reply: to it.
            key: of the message, if any.
            said: the message that is written down already.
            reaches: whether the reply reaches the user now, and what it tells of runs is told by that.
        """
        await self._conversations.said(conversation.session_id, message, reply.text)
        if key:
            self._repeats.note_reply(conversation, key, message or said, reply)
        if reaches:
            conversation.tell(reply.told)
        await self._conversations.keep(conversation)
        if reaches:
            self._conversations.reached(conversation)

    async def reached(self, session_id: str, run: Run | None, told: Sequence[str], *, caller: str) -> None:
        """What a reply tells of runs, and how its own run has ended since, reaches the user now.

        Args:
            session_id: the conversation.
            run: that of the reply, as it stands now; None for none.
            told: ids of runs of which the reply tells.
            caller: whose.
        """
        ended = run is not None and run.status in FINAL_STATUSES
        runs = {*told, *((run.id,) if run is not None and ended else ())}
        if not runs or not session_id:
            return
        async with self._conversations.turn(session_id, caller=caller, context={}) as conversation:
            news = runs & {*conversation.open} - {*conversation.telling}
            if not news:
                return
            if run is not None and run.id in news and run.id not in told:
                await self._conversations.said(session_id, reply=run.output)
            conversation.tell(news)
            await self._conversations.keep(conversation)
            self._conversations.reached(conversation)

    async def _waiting(self, conversation: Conversation, file: FlowFile, *, but: str) -> Waiting | None:
        return waiting_of(await self._conversations.unfinished(conversation), file=file, but=but)
