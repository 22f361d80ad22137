"""Questions to the knowledge of a flow file as operators see them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import ReadableSpan

from loom_core.errors import SourceError
from loom_core.flow.knowledge import KnowledgeExecutor
from loom_core.knowledge.model import KnowledgeItem
from loom_core.observability.families import FLOW_KNOWLEDGE as QUESTIONS
from loom_core.observability.families import FLOW_KNOWLEDGE_SECONDS
from loom_core.observability.spans import FLOW_KNOWLEDGE, FLOW_MESSAGE
from loom_core.observability.tracing import span

QUESTION = "年假有几天"


class Handbook:
    """Knows what it is given; asked for what it does not know, it waits for ever."""

    def __init__(self, **known: Sequence[KnowledgeItem] | Exception) -> None:
        self.known = known
        self.asked = anyio.Event()

    def identity(self, message: str, context: Mapping[str, Any]) -> str:
        return json.dumps(message)

    async def find(self, message: str, context: Mapping[str, Any]) -> Sequence[KnowledgeItem]:
        self.asked.set()
        found = self.known.get(message)
        if found is None:
            await anyio.sleep_forever()
        if isinstance(found, Exception):
            raise found
        return found


def told(spans: list[ReadableSpan]) -> list[dict[str, Any]]:
    found = [dict(each.attributes or {}) for each in spans if each.name == FLOW_KNOWLEDGE.name]
    for attributes in found:
        assert set(attributes) <= set(FLOW_KNOWLEDGE.attributes)
        assert attributes.pop("gen_ai.operation.name") == "retrieval"
    return found


@pytest.mark.parametrize(
    ("known", "outcome", "found"),
    [
        ([KnowledgeItem(id="1", content="五天", source="手册", relevance=1.0)], "retrieved", 1),
        ([], "nothing", 0),
        (SourceError("秘密 is broken."), "failed", 0),
        (ValueError("秘密"), "failed", 0),
    ],
)
async def test_a_question_is_a_span_of_its_message_and_counted_by_what_came_of_it(
    known: Any, outcome: str, found: int, spans: list[ReadableSpan], counted: Any
) -> None:
    async with KnowledgeExecutor(Handbook(**{QUESTION: known})) as knowledge:
        with span(FLOW_MESSAGE) as message:
            await knowledge.pre_query(QUESTION, {}).answer()
    (attributes,) = told(spans)
    error = {"error.type": "failed"} if outcome == "failed" else {}
    assert attributes == {"loom.flow.knowledge": outcome, "retrieval.result_count": found, **error}
    question = next(each for each in spans if each.name == FLOW_KNOWLEDGE.name)
    assert question.parent is not None
    assert question.parent.span_id == message.get_span_context().span_id
    assert counted.samples(QUESTIONS) == {(outcome,): 1}
    assert set(counted.sums(FLOW_KNOWLEDGE_SECONDS)) == {()}


async def test_what_is_kept_or_asked_already_is_told_as_that(spans: list[ReadableSpan], counted: Any) -> None:
    async with KnowledgeExecutor(Handbook(**{QUESTION: []})) as knowledge:
        first, second = knowledge.pre_query(QUESTION, {}), knowledge.pre_query(QUESTION, {})
        await first.answer()
        await second.answer()
        await knowledge.pre_query(QUESTION, {}).answer()
    assert [each["loom.flow.knowledge"] for each in told(spans)] == ["shared", "nothing", "cached"]
    assert counted.samples(QUESTIONS) == {("shared",): 1, ("nothing",): 1, ("cached",): 1}


async def test_an_answer_that_is_not_needed_is_dropped_and_one_that_never_comes_is_late(
    spans: list[ReadableSpan], counted: Any
) -> None:
    source = Handbook()
    async with KnowledgeExecutor(source, seconds=0.01, fetch_seconds=0.02) as knowledge:
        late = knowledge.pre_query(QUESTION, {})
        assert (await late.answer(5.0)).outcome == "late"
        source.asked = anyio.Event()
        with anyio.fail_after(30), knowledge.pre_query("病假呢", {}):
            await source.asked.wait()
    assert told(spans) == [
        {"loom.flow.knowledge": "late", "retrieval.result_count": 0, "error.type": "late"},
        {"loom.flow.knowledge": "dropped"},
    ]
    assert counted.samples(QUESTIONS) == {("late",): 1, ("dropped",): 1}
