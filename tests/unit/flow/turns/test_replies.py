"""Replies: they wait for the outcome, are worded in the language of the conversation, and are remembered."""

from __future__ import annotations

import time

from loom_core.flow.responses.reply import FlowReply, RoutingOutcome, TurnOutcome
from loom_core.flow.turns.replies import Delivery
from loom_core.flow.turns.session import ConversationStore, FlowConversation
from loom_core.runs.journal import Journal
from loom_core.runs.memory import SQLiteMemory
from loom_core.runs.run import RunRequest

ROUTE = RoutingOutcome(action="flow", how="rules", flow_id="leave")


class House:
    """A journal with what a delivery needs, in which no one drives runs."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.conversations = ConversationStore(self.journal, SQLiteMemory(journal=self.journal))
        self.delivery = Delivery(self.journal, conversations=self.conversations, wait_seconds=0.01)

    async def conversation(self) -> FlowConversation:
        async with self.conversations.turn("", caller="", context={}) as begun:
            return begun

    async def said(self, conversation: FlowConversation) -> list[str]:
        return [each.text for each in await self.conversations.messages(conversation.session_id)]


def reply(conversation: FlowConversation, text: str) -> FlowReply:
    return FlowReply(status="completed", text=text, session_id=conversation.session_id, route=ROUTE)


async def test_there_is_nothing_to_wait_for_without_a_run() -> None:
    assert await House().delivery.wait_for_run(TurnOutcome(route=ROUTE), 60.0) is None


async def test_a_run_that_goes_on_is_waited_for_as_long_as_is_said_and_told_as_it_stands() -> None:
    house = House()
    begun = await house.journal.create(RunRequest(goal="请假", profile="leave"))
    began = time.process_time()
    run = await house.delivery.wait_for_run(
        TurnOutcome(route=ROUTE, run_id=begun.id, after=begun.last_seq), None
    )
    assert time.process_time() - began < 5.0
    assert run is not None
    assert (run.id, run.status) == (begun.id, "working")


async def test_what_is_kept_is_said_in_the_conversation_and_again_to_the_same_key() -> None:
    house = House()
    conversation = await house.conversation()
    await house.delivery.keep(
        conversation, "你好", reply(conversation, "你好！"), key="k", tracks_delivery=True
    )
    assert await house.said(conversation) == ["你好", "你好！"]
    kept = await house.conversations.peek(conversation.session_id, caller="", context={})
    again = await house.conversations.find_duplicate(kept, "你好", "k")
    assert isinstance(again, FlowReply)
    assert again.text == "你好！"
