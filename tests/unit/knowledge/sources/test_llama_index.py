"""A retriever of LlamaIndex as a source. The objects here have the shape of llama-index-core 0.14."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from loom_core.errors import InvalidInputError, SourceError
from loom_core.knowledge import Federation, LlamaIndexSource
from loom_core.plugins import create


@dataclass
class Node:
    node_id: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict)

    def get_content(self) -> str:
        return self.text


@dataclass
class NodeWithScore:
    node: Node
    score: float | None = None


class Retriever:
    def __init__(self, *nodes: NodeWithScore) -> None:
        self.nodes = nodes
        self.failure: Exception | None = None

    async def aretrieve(self, str_or_query_bundle: str) -> list[NodeWithScore]:
        if self.failure is not None:
            raise self.failure
        return list(self.nodes)


@pytest.fixture
def retriever() -> Retriever:
    guide = {"file_name": "guide.md", "url": "https://guide.example/visby"}
    return Retriever(
        NodeWithScore(Node("n1", "Visby has a wall.", guide), 0.9),
        NodeWithScore(Node("n2", "Brno has two rivers."), None),
        NodeWithScore(Node("n3", "  ")),
    )


async def test_nodes_are_passages_that_can_be_read_again(retriever) -> None:
    source = LlamaIndexSource(retriever, name="guide")
    first, second = await source.query("Which town has a wall?")
    assert (first.id, first.content, first.source) == (
        "n1",
        "Visby has a wall.",
        "https://guide.example/visby",
    )
    assert (first.metadata["title"], first.relevance) == ("guide.md", 0.9)
    assert (second.id, second.relevance) == ("n2", 0.0)
    assert await source.get_by_id("n2") == second
    assert await source.get_by_id("n9") is None
    assert len(await source.query("wall", limit=1)) == 1


async def test_it_is_asked_as_a_whole(retriever) -> None:
    source = LlamaIndexSource(retriever, name="guide")
    answer = await Federation([source]).query("Which town has a wall?")
    assert answer.items[0].id == "guide:n1"
    found = await create("retriever", "knowledge_base", [source]).retrieve("wall", top_k=1)
    assert found[0]["chunk_id"] == "n1"


async def test_what_it_cannot_do_is_said(retriever) -> None:
    source = LlamaIndexSource(retriever, name="guide")
    with pytest.raises(InvalidInputError, match="no filter 'lang'"):
        await source.query("wall", filters={"lang": "en"})
    retriever.failure = ValueError("no index")
    with pytest.raises(SourceError, match="'guide' failed: ValueError: no index"):
        await source.query("wall")
