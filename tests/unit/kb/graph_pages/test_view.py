"""View of a graph on a page, and its layout."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from anyio import to_thread
from hypothesis import given, settings
from hypothesis import strategies as st
from loom_kb.graph_pages.view import GraphView, lay_out, view_of

from loom_core.errors import NotFoundError
from loom_core.knowledge.rag import GraphRAGKnowledgeBase, RAGConfig

_TEXT = """# Ada Lovelace

Ada Lovelace wrote about the Analytical Engine. Charles Babbage designed the Analytical Engine in
London. 里昂的雅卡尔改进了提花机，
提花机在里昂使用。

## Lyon

Charles Babbage visited Lyon. Ada Lovelace never did.
"""


@pytest.fixture
async def knowledge_base() -> AsyncGenerator[GraphRAGKnowledgeBase]:
    async with _holding(_TEXT, title="Machines") as knowledge_base:
        yield knowledge_base


@asynccontextmanager
async def _holding(
    *texts: str, title: str = "", config: RAGConfig | None = None
) -> AsyncGenerator[GraphRAGKnowledgeBase]:
    knowledge_base = GraphRAGKnowledgeBase.from_config(name="织", description="机器", config=config)
    if texts:
        await knowledge_base.add_texts(
            list(texts), titles=[title] * len(texts), uris=[f"note:机器{n or ''}" for n in range(len(texts))]
        )
    try:
        yield knowledge_base
    finally:
        knowledge_base.close()


async def _view(knowledge_base: GraphRAGKnowledgeBase, **wanted: Any) -> GraphView:
    return await to_thread.run_sync(lambda: view_of(knowledge_base, **{"limit": 100, **wanted}))


def _marked(view: GraphView, name: str) -> list[str]:
    (entity,) = [entity for entity in view.entities if entity.name == name]
    return [view.passages[span.passage].text[span.start : span.end] for span in entity.spans]


async def test_every_entity_comes_with_the_passages_that_have_its_name(knowledge_base):
    view = await _view(knowledge_base)
    assert (view.name, view.description, view.focus) == ("织", "机器", None)
    assert view.entities_in_all == len(view.entities)
    assert set(_marked(view, "Charles Babbage")) == {"Charles Babbage"}
    assert set(_marked(view, "里昂")) == {"里昂"}
    assert {passage.uri for passage in view.passages} == {"note:机器"}
    assert view.without_passages == 0


async def test_a_relation_comes_with_the_words_that_say_it(knowledge_base):
    view = await _view(knowledge_base)
    names = [entity.name for entity in view.entities]
    said = {
        (names[relation.subject], relation.predicate, names[relation.object]): relation.span
        for relation in view.relations
    }
    span = said["Charles Babbage", "related to", "Lyon"]
    assert view.passages[span.passage].text[span.start : span.end] == "Charles Babbage visited Lyon"


async def test_what_a_passage_about_an_entity_mentions_is_connected_with_it_too(knowledge_base):
    view = await _view(knowledge_base)
    names = [entity.name for entity in view.entities]
    links = {(names[each.subject], names[each.object]) for each in view.relations if not each.predicate}
    assert ("Machines", "Lyon") in links
    assert ("Ada Lovelace", "Analytical Engine") not in links  # they are related


async def test_lines_of_a_paragraph_are_joined_without_moving_anything(knowledge_base):
    text = "".join(passage.text for passage in (await _view(knowledge_base)).passages)
    assert "Analytical Engine in London" in text
    assert "改进了提花机，\u200b提花机" in text
    assert "\n" in text  # between paragraphs


async def test_a_limit_keeps_the_best_connected_and_counts_the_rest(knowledge_base):
    everything, view = await _view(knowledge_base), await _view(knowledge_base, limit=2)
    assert [entity.name for entity in view.entities] == [entity.name for entity in everything.entities[:2]]
    assert view.entities_in_all == len(everything.entities)
    assert {end for each in view.relations for end in (each.subject, each.object)} <= {0, 1}


async def test_around_an_entity_only_what_is_near_is_shown(knowledge_base):
    await knowledge_base.add_texts(["Joseph Jacquard lived in Oullins."])
    view = await _view(knowledge_base, entity="lyon", hops=1)
    assert view.entities[view.focus].name == "Lyon"
    names = {entity.name for entity in view.entities}
    assert "Charles Babbage" in names
    assert "Oullins" not in names


async def test_an_entity_that_is_not_there_is_said_to_be_missing(knowledge_base):
    with pytest.raises(NotFoundError, match="no entity like 'Unknown'"):
        await _view(knowledge_base, entity="Unknown")


async def test_other_names_of_an_entity_are_told(knowledge_base):
    await to_thread.run_sync(knowledge_base.aliases.merge, "Lyon", "里昂")
    view = await _view(knowledge_base)
    (lyon,) = [entity for entity in view.entities if "Lyon" in (entity.name, *entity.also)]
    assert {lyon.name, *lyon.also} == {"Lyon", "里昂"}
    assert set(_marked(view, lyon.name)) == {"Lyon", "里昂"}


async def test_a_long_passage_is_shown_in_stretches_and_says_so():
    config = RAGConfig(chunker="simple", chunker_options={"chunk_size": 5000})
    async with _holding(
        "London is here. " + "Nothing here. " * 200 + "Ada Lovelace met Lord Byron there.", config=config
    ) as long:
        view = await _view(long)
    assert max(len(passage.text) for passage in view.passages) == 1200
    (entity,) = [entity for entity in view.entities if entity.name == "Ada Lovelace"]
    passage = view.passages[entity.spans[0].passage]
    assert (passage.before, passage.after) == (True, False)
    assert _marked(view, "Ada Lovelace") == ["Ada Lovelace"]


async def test_entities_whose_passages_do_not_fit_are_counted():
    async with _holding("Ada Lovelace met Lord Byron.", "Charles Babbage visited Lyon.") as two:
        view = await _view(two, text=1)
    assert len(view.passages) == 1
    assert view.without_passages == sum(not entity.spans for entity in view.entities) > 0


async def test_an_empty_knowledge_base_has_an_empty_view():
    async with _holding() as empty:
        view = await _view(empty)
    assert (view.entities, view.relations, view.passages) == ([], [], [])


def _clusters(size: int = 12) -> list[tuple[int, int, float]]:
    """Two groups in which everything is connected, and one edge between them."""
    edges = [(a + add, b + add, 1.0) for add in (0, size) for a in range(size) for b in range(a)]
    return [*edges, (0, size, 1.0)]


def test_what_is_connected_is_drawn_near():
    positions = lay_out(24, _clusters())
    one, other = positions[:12].mean(0), positions[12:].mean(0)
    spread = max(np.linalg.norm(positions[:12] - one, axis=1).mean(), 1)
    assert np.linalg.norm(one - other) > 1.5 * spread


def test_nodes_without_edges_stand_around_the_others():
    positions = lay_out(40, _clusters())
    distance = np.linalg.norm(positions, axis=1)
    assert distance[24:].min() > distance[:24].max()


def test_the_same_graph_is_always_drawn_the_same():
    assert np.array_equal(lay_out(24, _clusters()), lay_out(24, _clusters()))


@pytest.mark.parametrize(
    ("count", "edges"), [(0, []), (1, []), (3, []), (2, [(0, 1, 1.0)]), (2, [(0, 1, 1.0), (1, 0, 0.4)])]
)
def test_small_graphs_have_places_of_their_own(count, edges):
    positions = lay_out(count, edges)
    assert positions.shape == (count, 2)
    assert len({tuple(place) for place in positions.tolist()}) == count


@pytest.mark.slow
@settings(max_examples=10)
@given(st.integers(2, 30), st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=60))
def test_no_two_nodes_of_any_graph_are_in_the_same_place(count, pairs):
    positions = lay_out(count, [(a % count, b % count, 1.0) for a, b in pairs])
    assert np.isfinite(positions).all()
    gaps = np.linalg.norm(positions[:, None] - positions[None], axis=2) + np.eye(count) * 1e9
    assert gaps.min() > 1
