"""The span of a search: what it says, and what it never says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from loom_core.embedding.registry import create_embedder
from loom_core.errors import InvalidInputError
from loom_core.knowledge.rag import GraphRAGKnowledgeBase, Strategy
from loom_core.observability import LoomTracer

ALWAYS = {
    "gen_ai.agent.id",
    "gen_ai.data_source.id",
    "gen_ai.operation.name",
    "loom.knowledge_base",
    "retrieval.strategy",
    "retrieval.lexical_count",
    "retrieval.vector_count",
    "retrieval.graph_count",
    "retrieval.result_count",
    "retrieval.embed_ms",
    "retrieval.total_ms",
}
HYBRID = {
    "retrieval.expansion_count",
    "retrieval.parallel_ms",
    "retrieval.expansion_ms",
    "retrieval.walk_ms",
    "retrieval.sub_questions_ms",
}


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
async def traced(exporter: InMemorySpanExporter) -> Iterator[GraphRAGKnowledgeBase]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder("hashing"),
        name="港口",
        tracer=LoomTracer("agent-1", provider=provider),
    )
    await knowledge_base.add_texts(
        [
            "Zell is a town in Austria. Anna Berg was born there.",
            "Anna Berg painted the sea.",
            "厦门是城市。",
        ],
        titles=["Zell", "Anna Berg", "厦门"],
    )
    yield knowledge_base
    knowledge_base.close()


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (finished,) = exporter.get_finished_spans()
    return finished


@pytest.mark.parametrize(
    ("strategy", "more"),
    [
        ("hybrid", HYBRID),
        ("graph_first", {"retrieval.fallback_to_vector"}),
        ("vector_first", set()),
        ("graph_only", set()),
        ("bm25", set()),
    ],
)
async def test_a_search_is_one_span_with_the_facts_of_its_strategy(
    traced, exporter: InMemorySpanExporter, strategy: Strategy, more: set[str]
):
    answer = await traced.search("Where was the painter of the sea born?", strategy=strategy)
    finished = only(exporter)
    assert finished.name == "KNOWLEDGE_SEARCH"
    attributes = dict(finished.attributes or {})
    assert attributes.keys() == ALWAYS | more
    assert attributes["loom.knowledge_base"] == attributes["gen_ai.data_source.id"] == "港口"
    assert attributes["gen_ai.agent.id"] == "agent-1"
    assert attributes["retrieval.strategy"] == strategy
    assert attributes["retrieval.result_count"] == len(answer.items) > 0
    assert attributes["retrieval.embed_ms"] == answer.embed_ms
    assert attributes["retrieval.total_ms"] == pytest.approx(answer.embed_ms + answer.retrieve_ms)
    assert finished.status.status_code is StatusCode.UNSET


async def test_the_counts_are_those_of_the_channels(traced, exporter: InMemorySpanExporter):
    await traced.search("Anna Berg", strategy="hybrid")
    attributes = dict(only(exporter).attributes or {})
    assert attributes["retrieval.vector_count"] == 2  # hashing compares a question with its own language
    assert attributes["retrieval.lexical_count"] == 2
    assert attributes["retrieval.parallel_ms"] > 0


async def test_where_the_graph_finds_nothing_the_fall_back_to_vectors_is_told(
    traced, exporter: InMemorySpanExporter
):
    answer = await traced.search("qqq zzz", strategy="graph_first")
    attributes = dict(only(exporter).attributes or {})
    assert attributes["retrieval.fallback_to_vector"] is True
    assert attributes["retrieval.result_count"] == len(answer.items)


@pytest.mark.parametrize(
    ("question", "arguments"), [("   ", {}), ("a secret", {"limit": 0}), ("a secret", {"filters": {"no": 1}})]
)
async def test_what_is_refused_is_a_span_with_an_error(
    traced, exporter: InMemorySpanExporter, question: str, arguments
):
    with pytest.raises(InvalidInputError):
        await traced.search(question, **arguments)
    finished = only(exporter)
    assert finished.status.status_code is StatusCode.ERROR
    assert (finished.attributes or {})["error.type"] == "InvalidInputError"
    assert "secret" not in finished.to_json()


async def test_the_question_is_told_where_the_operator_wants_it(
    traced, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LOOM_TRACE_CONTENT", "1")
    monkeypatch.setenv("SOME_API_KEY", "geheim-4711")
    await traced.search("机密 geheim-4711", limit=1)
    assert (only(exporter).attributes or {})["gen_ai.retrieval.query.text"] == "机密 [secret]"


async def test_the_question_is_never_told(traced, exporter: InMemorySpanExporter):
    await traced.search("secretsecret 机密机密", limit=1)
    written = only(exporter).to_json(indent=None).casefold()
    assert "secretsecret" not in written
    assert "机密" not in written
    assert "\\u673a" not in written
