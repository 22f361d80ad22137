"""Strategies on one corpus: what each brings, counts and times, and when it falls back."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.indexes import FlatVectors
from loom_core.knowledge.indexes.engines.memory_lexical import MemoryLexicalIndex
from loom_core.knowledge.rag import RAGConfig, Strategy
from loom_core.knowledge.retrieval.channels import Channels, PreparedQuestion
from loom_core.knowledge.retrieval.graph_expansion import graph_channel
from loom_core.knowledge.retrieval.strategies import Retrieval, retrieve
from loom_core.knowledge.store.chunk_keys import ChunkKeys
from loom_core.knowledge.text.passage_text import index_tokens

HOP = "Where was the director of The Silent Harbour born?"
STRATEGIES: tuple[Strategy, ...] = ("hybrid", "vector_first", "graph_first", "graph_only", "bm25")
STEPS = {
    "hybrid": {"first_stage", "lexical", "vector", "expansion", "walk", "sub_questions", "total"},
    "graph_only": {"first_stage", "lexical", "expansion", "walk", "sub_questions", "total"},
    "vector_first": {"first_stage", "vector", "total"},
    "bm25": {"first_stage", "lexical", "total"},
    "graph_first": {"walk", "total"},
}


class Corpus:
    """The films, asked as the knowledge base asks them."""

    def __init__(self, films) -> None:
        self.store = films.store
        self.keys = self.store.documents.chunk_keys()
        words = MemoryLexicalIndex()
        words.add(
            (key, index_tokens(row.title, row.heading_path, row.text))
            for key, row in self.store.documents.chunks(self.keys).items()
        )
        words.commit()
        self.words = words
        vectors = FlatVectors(self.store, None)
        vectors.sync_all()
        self.dense = vectors.searcher()

    def question(
        self, text: str, *, among: ChunkKeys | None = None, embedded: bool = True
    ) -> PreparedQuestion:
        vector = asyncio.run(create_embedder("hashing").embed([text], kind="query"))[0] if embedded else None
        return PreparedQuestion.of(text, vector=vector, among=among)

    def ask(self, question: PreparedQuestion, strategy: Strategy, *, limit: int = 50) -> Retrieval:
        vectors = strategy not in {"bm25", "graph_only"} and question.vector is not None
        channels = Channels(
            self.words, self.dense if vectors else None, covered=frozenset({question.language})
        )
        return retrieve(
            question,
            limit,
            strategy=strategy,
            channels=channels,
            graph=self.store.graph,
            config=RAGConfig(),
        )


@pytest.fixture(scope="module")
def corpus(films) -> Corpus:
    return Corpus(films)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_step_is_counted_and_timed(corpus: Corpus, strategy: Strategy):
    found = corpus.ask(corpus.question(HOP), strategy)
    assert found.ms.keys() == STEPS[strategy]
    assert all(0 <= ms <= found.ms["total"] for ms in found.ms.values())
    assert found.counts == {
        step: sum(channel in hit.scores for hit in found.found)
        for step, channel in (
            ("lexical", "bm25"),
            ("vector", "vector"),
            ("graph", "graph"),
            ("expansion", "links"),
        )
    }
    assert not found.fallback_to_vector


def test_the_graph_brings_what_the_question_names_ranked_by_vectors(corpus: Corpus):
    question = corpus.question(HOP)
    found = corpus.ask(question, "graph_first")
    near = graph_channel(question, corpus.store.graph)
    assert {hit.key for hit in found.found} == near.keys()
    cosines = [hit.scores["vector"] for hit in found.found]
    assert cosines == sorted(cosines, reverse=True)
    assert {hit.key: hit.scores["graph"] for hit in found.found} == near


def test_without_vectors_the_graph_ranks_by_itself(corpus: Corpus):
    question = corpus.question(HOP, embedded=False)
    found = corpus.ask(question, "graph_first")
    near = graph_channel(question, corpus.store.graph)
    assert [hit.key for hit in found.found] == sorted(near, key=lambda key: (-near[key], key))
    assert found.counts["vector"] == 0


@pytest.mark.parametrize("text", ["which is known for that", "哪些人很忙？"])
def test_where_the_question_names_nothing_graph_first_goes_by_vectors(corpus: Corpus, text: str):
    question = corpus.question(text)
    found = corpus.ask(question, "graph_first")
    assert found.fallback_to_vector
    assert [(hit.key, hit.score) for hit in found.found] == [
        (hit.key, hit.score) for hit in corpus.ask(question, "vector_first").found
    ]
    assert found.counts["graph"] == found.counts["lexical"] == 0
    assert found.counts["vector"] == len(found.found) > 0


def test_where_filters_leave_nothing_of_the_graph_graph_first_goes_by_vectors(corpus: Corpus):
    settings_ = corpus.keys[-1]
    found = corpus.ask(corpus.question(HOP, among=frozenset({settings_})), "graph_first")
    assert found.fallback_to_vector
    assert [hit.key for hit in found.found] == [settings_]


def test_without_vectors_graph_first_falls_back_to_words(corpus: Corpus):
    found = corpus.ask(corpus.question("known", embedded=False), "graph_first")
    assert found.fallback_to_vector
    assert [hit.scores.keys() for hit in found.found] == [{"bm25"}]


def test_the_way_to_a_passage_begins_at_one_that_was_found_directly(corpus: Corpus):
    found = corpus.ask(corpus.question("The Silent Harbour"), "graph_only")
    of = {hit.key: hit for hit in found.found}
    ways = [hit for hit in found.found if hit.links]
    assert max(len(hit.links) for hit in ways) == 2
    for hit in ways:
        assert hit.links[-1].chunk == hit.key
        assert of[hit.links[0].seed].links == ()
        assert all(a.chunk == b.seed for a, b in zip(hit.links, hit.links[1:], strict=False))


@pytest.mark.slow
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    words=st.lists(
        st.sampled_from(
            ["The Silent Harbour", "Visby", "director", "born", "静港", "导演", "厦门", "zzz", "的"]
        ),
        min_size=1,
        max_size=5,
    ),
    strategy=st.sampled_from(STRATEGIES),
    limit=st.integers(1, 20),
    among=st.none() | st.frozensets(st.integers(1, 20)),
    embedded=st.booleans(),
)
def test_whatever_is_asked_passages_are_real_allowed_and_in_order(
    corpus: Corpus, words, strategy, limit, among, embedded
):
    question = corpus.question(" ".join(words), among=among, embedded=embedded)
    found = corpus.ask(question, strategy, limit=limit)
    keys = [hit.key for hit in found.found]
    scores = [hit.score for hit in found.found]
    assert len(keys) == len(set(keys)) <= limit
    assert set(keys) <= set(corpus.keys)
    assert among is None or set(keys) <= among
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    whole = corpus.ask(question, strategy, limit=100)
    assert [hit.key for hit in whole.found][: len(keys)] == keys
    assert len(keys) == min(limit, len(whole.found))
