"""The graph as a process reads it that does not hold the graph store."""

from __future__ import annotations

import pytest

from loom_core.knowledge.indexes.graph import neighbourhood
from loom_core.knowledge.rag import GraphRAGKnowledgeBase

TEXTS = [
    "Ada Lovelace was born in London.",
    "Charles Babbage died in London.",
    "Charles Babbage lived in Turin.",
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
    (turin,) = graph.search("Turin", limit=1)
    read = neighbourhood(graph, [ada, turin], hops=2)
    store = knowledge_base.ask_graph(lambda store: store, around=[ada, turin], hops=2)
    assert read.neighbours(ada, hops=2) == store.neighbours(ada, hops=2)
    assert {"London", "Charles Babbage"} <= {node.name for node in read.neighbours(ada, hops=2)[0]}


async def test_it_goes_no_further_than_asked(knowledge_base):
    graph = knowledge_base.store.graph
    (ada,) = graph.search("ada lovelace", limit=1)
    names = {node.name for node in neighbourhood(graph, [ada], hops=1).neighbours(ada, hops=3)[0]}
    assert "London" in names
    assert "Charles Babbage" not in names
