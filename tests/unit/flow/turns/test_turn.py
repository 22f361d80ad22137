"""A message is checked, given its language, and taken; what its conversation needs later is kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict

import pytest

from loom_core.errors import InvalidInputError
from loom_core.flow.responses.reply import RoutingOutcome
from loom_core.flow.runtime.runtime import FlowRunner, FlowRuntime, RuntimeManager, RuntimeOverrides
from loom_core.flow.turns.session import ConversationStore, FlowConversation
from loom_core.flow.turns.turn import begin_named_flow, check_message, open_turn, process_turn
from loom_core.flow.turns.turn_context import TurnContext
from loom_core.runs.host import RunHost
from loom_core.runs.journal import Journal
from loom_core.runs.memory import SQLiteMemory
from loom_core.runs.run import RunRequest
from tests.unit.flow.conftest import loaded_flows

GIVEN = RoutingOutcome(action="flow", how="given", flow_id="leave")


@asynccontextmanager
async def taking() -> AsyncGenerator[
    tuple[Callable[[FlowConversation, str], TurnContext], ConversationStore]
]:
    journal = Journal()
    conversations = ConversationStore(journal, SQLiteMemory(journal=journal))
    in_use = RuntimeManager(loaded_flows(), RuntimeOverrides(), journal=journal, texts=conversations.messages)
    runner = FlowRunner(in_use)
    async with in_use, RunHost(journal, runner.for_profile, look_seconds=None) as host:

        def turn(conversation: FlowConversation, message: str) -> TurnContext:
            return open_turn(in_use.current, conversation, message, conversations=conversations, host=host)

        yield turn, conversations
    await journal.aclose()


def asked_for(runtime: FlowRuntime, days: int) -> RunRequest:
    return runtime.executor.build_request(
        "leave", "请假", {"days": days}, route=asdict(GIVEN), idempotency_key="k"
    )


@pytest.mark.parametrize("message", ["假" * 20_001, "half \ud83d"], ids=["too long", "a lone surrogate"])
def test_what_is_no_message_is_refused(message: str) -> None:
    with pytest.raises(InvalidInputError):
        check_message(message)


def test_a_message_of_any_script_is_taken() -> None:
    check_message("假" * 20_000)
    check_message("👍")


async def test_a_message_is_done_with_and_its_run_is_open_until_it_has_something_to_say() -> None:
    async with taking() as (turn, conversations):
        async with conversations.turn("", caller="", context={}) as conversation:
            outcome = await process_turn(turn(conversation, "我要请三天假"))
        assert (outcome.route.how, outcome.route.flow_id) == ("rules", "leave")
        kept = await conversations.peek(conversation.session_id, caller="", context={})
        assert (kept.language, kept.open) == ("zh", [outcome.run_id])
        assert [each.text for each in await conversations.messages(kept.session_id)] == ["我要请三天假"]


async def test_the_language_of_a_conversation_outlives_a_number() -> None:
    async with (
        taking() as (turn, conversations),
        conversations.turn("", caller="", context={}) as conversation,
    ):
        assert turn(conversation, "take leave please").phrases.language == "en"
        assert turn(conversation, "3").phrases.language == "en"
        assert turn(conversation, "算了").phrases.language == "zh"


async def test_a_flow_that_is_named_is_begun_once_for_a_key() -> None:
    async with (
        taking() as (turn, conversations),
        conversations.turn("", caller="", context={}) as conversation,
    ):
        named = turn(conversation, "请假")
        request = asked_for(named.runtime, 3)
        begun = await begin_named_flow(named, request, route=GIVEN, known=None)
        run = await conversations.latest_run(conversation)
        assert run is not None
        again = await begin_named_flow(named, request, route=GIVEN, known=run)
        assert again == begun
        with pytest.raises(InvalidInputError, match="another set of inputs"):
            await begin_named_flow(named, asked_for(named.runtime, 4), route=GIVEN, known=run)
