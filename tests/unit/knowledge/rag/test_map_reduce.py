"""A question about all documents, answered topic by topic by a language model."""

from __future__ import annotations

import re

import pytest

from loom_core.errors import ConfigError, LLMError, NotFoundError
from loom_core.knowledge import MapReduceRAG
from loom_core.knowledge.ingest.extraction_estimate import ConfirmationNeededError
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.llm.interface import ChatRequest
from loom_core.llm.mock import MockProvider
from tests.unit.knowledge.overview.test_overview import BREAD, SHIPS


@pytest.fixture
async def knowledge_base():
    knowledge_base = GraphRAGKnowledgeBase("harbour and bakery", memory=True, embedder="hashing")
    await knowledge_base.add_texts([*BREAD, *SHIPS], uris=[f"text:{number}" for number in range(10)])
    yield knowledge_base
    knowledge_base.close()


def text_of(request: ChatRequest) -> str:
    return request.messages[-1].text


def reader(request: ChatRequest) -> str:
    """Cites the first two passages of a topic, and in the end all numbers of the notes."""
    text = text_of(request)
    if "<notes>" in text:
        return "Both: " + " ".join(sorted(set(re.findall(r"\[\d+\]", text.split("<question>")[0]))))
    return "Flour [1] and more [2]." if "flour" in text else "A harbour [1], a pilot [2]."


async def test_each_topic_is_read_and_the_citations_count_through(knowledge_base):
    requests: list[ChatRequest] = []

    def answer(request: ChatRequest) -> str:
        requests.append(request)
        return reader(request)

    rag = MapReduceRAG(MockProvider(answer), knowledge_base, passages=3)
    found = await rag.run("What are these documents about?", confirm=True)
    assert len(requests) == 3  # two topics, and the answer
    assert len(found.passages) == 6
    assert found.answer == "Both: [1] [2] [4] [5]"
    texts = [passage["text"] for passage in found.passages]
    assert {text in BREAD for text in texts[:3]} != {text in BREAD for text in texts[3:]}
    assert found.notes == ()


async def test_what_it_costs_is_said_before_anything_is_asked(knowledge_base):
    model = MockProvider(lambda _: pytest.fail("the model was asked"))
    rag = MapReduceRAG(model, knowledge_base)
    estimate = await rag.estimate("What are these documents about?")
    assert (estimate.calls, estimate.passages, estimate.documents) == (3, 10, 10)
    assert estimate.input_tokens > 500
    with pytest.raises(ConfirmationNeededError) as raised:
        await rag.run("What are these documents about?")
    assert raised.value.estimate == estimate


async def test_a_question_with_a_focus_is_answered_from_what_fits_it(knowledge_base):
    shown: list[str] = []

    def answer(request: ChatRequest) -> str:
        shown.append(text_of(request))
        return "One [1]."

    rag = MapReduceRAG(MockProvider(answer), knowledge_base, passages=2)
    await rag.run("What are the main duties of the harbour master in these documents?", confirm=True)
    assert "harbour master" in shown[0] or "harbour master" in shown[1]


async def test_the_passages_that_fit_a_focus_best_are_read_whatever_their_topic(knowledge_base):
    lonely = "Kumquat liqueur is distilled by Zoltan."  # shares no term with others: it has no topic
    await knowledge_base.add_texts([lonely], uris=["text:lonely"])
    rag = MapReduceRAG(MockProvider(reader), knowledge_base, topics=1)
    found = await rag.run("Who distils the kumquat liqueur of Zoltan?", confirm=True)
    assert [passage["text"] for passage in found.passages] == [lonely]


async def test_a_citation_of_no_passage_does_not_become_one_of_another_topic(knowledge_base):
    def answer(request: ChatRequest) -> str:
        return reader(request) if "<notes>" in text_of(request) else "Invented [9], found [1][2, 7]."

    rag = MapReduceRAG(MockProvider(answer), knowledge_base, passages=3)
    found = await rag.run("What are these documents about?", confirm=True)
    assert found.answer == "Both: [1] [2] [4] [5]"


async def test_a_topic_that_fails_is_noted_and_all_that_fail_are_an_error(knowledge_base):
    def half(request: ChatRequest) -> str | LLMError:
        return (
            LLMError("It is down.")
            if "flour" in text_of(request) and "<notes>" not in text_of(request)
            else reader(request)
        )

    found = await MapReduceRAG(MockProvider(half), knowledge_base).run("Give me an overview", confirm=True)
    assert found.notes[0] == "1 of 2 topics could not be read: It is down."
    assert "[1]" in found.answer
    with pytest.raises(LLMError, match="down"):
        await MapReduceRAG(MockProvider(lambda _: LLMError("It is down.")), knowledge_base).run(
            "Give me an overview", confirm=True
        )


async def test_nothing_is_asked_about_nothing():
    with GraphRAGKnowledgeBase("empty", memory=True, embedder=None) as knowledge_base:
        rag = MapReduceRAG(MockProvider(["x"]), knowledge_base)
        with pytest.raises(NotFoundError, match="nothing about this"):
            await rag.run("Give me an overview", confirm=True)
    with pytest.raises(ConfigError):
        MapReduceRAG(MockProvider(["x"]), knowledge_base, topics=0)
