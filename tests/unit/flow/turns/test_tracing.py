"""A message of a conversation as operators see it: one trace, its parts counted, its lines in the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from loom_core.flow.knowledge import ProviderKnowledge
from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase, TextDocument
from loom_core.llm.mock import MockProvider
from loom_core.observability.families import (
    ACTIVE_AGENTS,
    FLOW_MESSAGE_SECONDS,
    FLOW_ROUTES,
    FLOW_STEPS,
    RUNS,
)
from loom_core.observability.log_fields import current_fields
from loom_core.observability.spans import FLOW_DECISION, FLOW_MESSAGE
from tests.unit.flow.conftest import decides, talking

HANDBOOK = [TextDocument(text="年假每年五天，要提前两天申请。")]


def named(spans: list[ReadableSpan], name: str) -> ReadableSpan:
    (found,) = [each for each in spans if each.name == name]
    return found


def attributes_of(found: ReadableSpan, form: Any) -> dict[str, Any]:
    attributes = dict(found.attributes or {})
    assert set(attributes) <= set(form.attributes)
    return attributes


async def test_what_patterns_decide_is_a_span_and_its_run_stands_below(
    spans: list[ReadableSpan],
) -> None:
    async with talking() as talk:
        reply = await talk("订单7")
    message = named(spans, "flow_message")
    assert attributes_of(message, FLOW_MESSAGE) == {
        "gen_ai.conversation.id": reply.session_id,
        "loom.flow.action": "flow",
        "loom.flow.how": "rules",
        "gen_ai.workflow.name": "order",
        "loom.run.id": reply.run_id,
    }
    run = named(spans, "invoke_workflow order")
    assert run.parent is not None
    assert run.parent.span_id == message.get_span_context().span_id


async def test_a_decision_and_what_is_known_stand_below_their_message_and_its_parts_are_timed(
    spans: list[ReadableSpan], counted: Any
) -> None:
    llm = MockProvider([decides("respond"), "每年五天。[1]"])
    knowledge = ProviderKnowledge(DocumentsKnowledgeBase(HANDBOOK, name="手册"))
    async with talking(llm=llm, knowledge=knowledge) as talk:
        await talk("年假有几天？")
    message, decision = named(spans, "flow_message"), named(spans, "flow_decision")
    assert attributes_of(decision, FLOW_DECISION) == {
        "loom.flow.action": "respond",
        "loom.flow.confidence": 0.9,
    }
    for below in (decision, named(spans, "flow_knowledge")):
        assert below.parent is not None
        assert below.parent.span_id == message.get_span_context().span_id
    assert counted.samples(FLOW_ROUTES) == {("respond", "model"): 1}
    parts = {("rules",), ("decision",), ("answer",), ("knowledge",), ("whole",)}
    assert set(counted.sums(FLOW_MESSAGE_SECONDS)) == parts
    told = " ".join(str(dict(each.attributes or {})) for each in spans)
    assert "年假" not in told
    assert "五天" not in told


async def test_a_model_that_does_not_answer_is_told_as_that(spans: list[ReadableSpan]) -> None:
    async with talking(llm=MockProvider([])) as talk:
        await talk("年假有几天？")
    assert attributes_of(named(spans, "flow_decision"), FLOW_DECISION) == {"error.type": "no_decision"}


async def test_a_flow_that_is_named_is_told_once_however_often_it_is_asked_for(
    spans: list[ReadableSpan], counted: Any
) -> None:
    async with talking() as talk:
        for _ in range(2):
            await talk.assistant.run_flow("order", {"number": "7"}, idempotency_key="k")
    assert attributes_of(named(spans, "flow_message"), FLOW_MESSAGE)["loom.flow.how"] == "given"
    assert counted.samples(FLOW_ROUTES) == {("flow", "given"): 1}


async def test_lines_of_the_log_know_the_conversation_and_the_run(caplog: pytest.LogCaptureFixture) -> None:
    known: dict[str, dict[str, str]] = {}

    class Fields(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            known[record.name] = dict(current_fields())
            return True

    caplog.handler.addFilter(fields := Fields())
    with caplog.at_level(logging.INFO, "loom_core.flow"):
        async with talking(llm=MockProvider([])) as talk:
            reply = await talk("年假有几天？")
    caplog.handler.removeFilter(fields)
    assert known["loom_core.flow.turns.turn_context"] == {"conversation": reply.session_id}


async def test_messages_are_counted_by_what_decided_and_steps_by_how_they_ended(counted: Any) -> None:
    async with talking() as talk:
        await talk("我要请三天假")
        await talk("感冒了")
        await talk("你好")
    assert counted.samples(FLOW_ROUTES) == {
        ("flow", "rules"): 1,
        ("answer", "pending"): 1,
        ("greet", "manners"): 1,
    }
    assert counted.samples(FLOW_STEPS) == {("success",): 1}
    assert counted.samples(RUNS) == {("flow", "completed"): 1}
    assert counted.samples(ACTIVE_AGENTS).get((), 0) == 0
