"""The graph as a process reads it that does not hold the graph store."""

from __future__ import annotations

import pytest

from loom_core.knowledge.indexes.graph import neighbourhood
from loom_core.knowledge.rag import GraphRAGKnowledgeBase

TEXTS = [
    "Ada Lovelace translated Luigi Menabrea in London.",
    "Luigi Menabrea visited Charles Babbage in Turin.",
    "Charles Babbage admired Joseph Jacquard.",
]


@pytest.fixture
async def knowledge_base():
    knowledge_base = GraphRAGKnowledgeBase.from_config()
    await knowledge_base.add_texts(TEXTS)
    yield knowledge_base
    knowledge_base.close()


async def test_it_agrees_with_the_graph_store(knowledge_base):
    graph = knowledge_base.store.graph
    (ada,) = graph.search("Ada Lovelace", limit=1)
    (jacquard,) = graph.search("Joseph Jacquard", limit=1)
    read = neighbourhood(graph, [ada, jacquard], hops=2)
    store = knowledge_base.ask_graph(lambda store: store, around=[ada, jacquard], hops=2)
    assert read.neighbours(ada, hops=2) == store.neighbours(ada, hops=2)
    assert read.path(ada, jacquard) == store.path(ada, jacquard)
    path = read.path(ada, jacquard)
    assert path is not None
    names = [node.name for node in path.nodes]
    assert names == ["Ada Lovelace", "Luigi Menabrea", "Charles Babbage", "Joseph Jacquard"]


async def test_it_goes_no_further_than_asked(knowledge_base):
    graph = knowledge_base.store.graph
    (ada,) = graph.search("ada lovelace", limit=1)
    names = {node.name for node in neighbourhood(graph, [ada], hops=1).neighbours(ada, hops=3)[0]}
    assert "Luigi Menabrea" in names
    assert "Charles Babbage" not in names
