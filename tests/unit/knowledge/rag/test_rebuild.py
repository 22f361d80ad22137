"""Re-ingest equals rebuild: whatever was added, changed and removed on the way, only the end counts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from tests.fixtures.record_content import QUERIES, Content, check_indexes, content

pytestmark = pytest.mark.slow

TITLES = [
    "",
    "Paris",
    "New York City",
    "York",
    "F-16",
    "McDonald-Smith",
    "U.S.",
    "HTTPServer",
    "list_of_things",
    "Example",
    "The Rock'n'Roll Show",
    "Mercury (planet)",
    "北京大学",
    "李白诗",
    "列奥纳多·达·芬奇",
    "你好，世界",
    "C语言",
    "½ Life",
    "İstanbul",
]
PASSAGES = [
    "Paris is the capital of France. It was visited by Ada Lovelace.",
    "She moved from New York City to York, where the F-16 flew over paris.",
    "Anna McDonald-Smith wrote HTTPServer and list_of_things for the U.S. Navy.",
    "An example shows the Rock'n'Roll Show; Mercury’s orbit and ½ Life are next. İstanbul!",
    "北京大学是中国的大学。李白诗集与列奥纳多·达·芬奇的画都在图书馆。",
    "他写道：你好，世界！C语言程序设计由刘德华讲授，前往巴黎和纽约。",
    "## Paris\n\nA section about Paris and 北京大学.\n\n## 李白诗\n\n李白诗是诗。",
    "## New York City\n\nThe same words as elsewhere.\n\n## York\n\nThe same words as elsewhere.",
    "The Rock'n'Roll Show is a musical about Example Town. The McDonald and the Smith came.",
]


@dataclass(frozen=True)
class Put:
    uri: str
    title: str
    text: str

    @property
    def draft(self) -> DocumentDraft:
        return DocumentDraft(
            uri=self.uri,
            text=self.text,
            title=self.title,
            title_source="given" if self.title else "none",
            mime="text/markdown",
            metadata={"tags": [self.title or "none", "all"], "length": len(self.text)},
        )


@dataclass(frozen=True)
class Remove:
    uri: str


uris = st.sampled_from([f"text:{n}" for n in range(4)])
bodies = st.lists(st.sampled_from(PASSAGES), min_size=1, max_size=3).map("\n\n".join)
puts = st.builds(Put, uris, st.sampled_from(TITLES), bodies)
steps = st.lists(st.lists(puts, min_size=1, max_size=4) | st.builds(Remove, uris), min_size=1, max_size=7)


async def _follow(steps: list[list[Put] | Remove], *, embedded: bool) -> Content:
    embedder = create_embedder("hashing") if embedded else None
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=embedder)
    for step in steps:
        match step:
            case Remove(uri):
                await knowledge_base.remove([uri])
            case _:
                await knowledge_base.add_documents([put.draft for put in step])
    await knowledge_base.worker.drain()
    found = content(knowledge_base.store)
    check_indexes(knowledge_base)
    knowledge_base.close()
    return found


def final(steps: list[list[Put] | Remove]) -> dict[str, Put]:
    documents: dict[str, Put] = {}
    for step in steps:
        if isinstance(step, Remove):
            documents.pop(step.uri, None)
        else:
            documents.update({put.uri: put for put in step})
    return documents


def assert_equals_rebuild(steps: list[list[Put] | Remove], *, embedded: bool = False) -> Content:
    grown = asyncio.run(_follow(steps, embedded=embedded))
    documents = list(final(steps).values())
    rebuilt = asyncio.run(_follow([documents] if documents else [], embedded=embedded))
    for name, rows in rebuilt.items():
        assert grown[name] == rows, name
    return grown


@pytest.mark.slow
@settings(max_examples=15)
@given(steps)
def test_any_history_gives_the_same_record_as_adding_the_final_documents_at_once(steps):
    assert_equals_rebuild(steps)


@settings(max_examples=6)
@given(steps)
def test_vectors_too_are_those_of_the_final_documents(steps):
    found = assert_equals_rebuild(steps, embedded=True)
    assert {row[0] for row in found["vectors"]} == {row[12] for row in found["chunks"]}


@pytest.mark.parametrize("title", [title for title in TITLES if title])
def test_a_title_is_linked_from_earlier_passages_as_from_later_ones(title: str):
    passages = Put("text:passages", "", "\n\n".join(PASSAGES))
    titled = Put("text:title", title, "Something else.")
    assert_equals_rebuild([[passages], [titled]])
    assert_equals_rebuild([[titled], [passages]])


def test_a_link_is_outside_of_longer_titles_whenever_these_come_and_go():
    passage = Put("text:passage", "", "A City of York and New York's streets.")
    york, city = Put("text:york", "York", "A town."), Put("text:city", "City of York", "A city.")
    new_york = Put("text:new", "New York", "Another one.")
    for steps in (
        [[passage], [york], [city]],
        [[passage], [city], [york]],
        [[passage, york, city], Remove("text:city")],
        [[passage, york], [new_york, city], Remove("text:city"), [city], Remove("text:york"), [york]],
    ):
        assert_equals_rebuild(steps)


def test_links_to_a_title_are_made_when_it_comes_and_gone_when_it_goes():
    passages = Put("text:passages", "", "They all met in the old town of Zell.")
    title = Put("text:title", "Old Town", "Nobody lives here.")  # plain-english: data
    links = [
        {row[1] for row in asyncio.run(_follow(steps, embedded=False))["mentions"] if row[6] == "title"}
        for steps in ([[passages]], [[passages], [title]], [[passages], [title], Remove("text:title")])
    ]
    assert links == [set(), {"old town"}, set()]


def test_nothing_is_left_when_everything_is_removed():
    documents = [Put(f"text:{n}", TITLES[n], PASSAGES[n % len(PASSAGES)]) for n in range(len(TITLES))]
    removals: list[list[Put] | Remove] = [Remove(put.uri) for put in documents]
    found = asyncio.run(_follow([documents, *removals], embedded=True))
    assert found == {name: [] for name in QUERIES}


def test_the_last_of_several_texts_with_one_address_counts():
    first = Put("text:0", "One", "The first text.")
    second = Put("text:0", "Two", "The second text.")
    assert_equals_rebuild([[first], [second, first]])
    assert_equals_rebuild([[first, second]])
