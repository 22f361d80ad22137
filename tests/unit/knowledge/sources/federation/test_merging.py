from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.retrieval.strategies import ScoreScale
from loom_core.knowledge.sources.federation.merging import candidates_for, merge

_HARBOUR = "The harbour of Visby was opened in 1901 and deepened twice since then by the town of Visby."


def item(id_: str, text: str, relevance: float = 0.0, **scores: float) -> KnowledgeItem:
    return KnowledgeItem(
        id_, text, f"note:{id_}", relevance, {"title": "", "scores": scores} if scores else {}
    )


async def order(query, found, *, limit=10, spaces=None) -> list[str]:
    return [one.id for one in await merge(query, found, limit=limit, spaces=spaces)]


def test_more_is_asked_of_several_sources_than_is_wanted():
    assert candidates_for(5) == 20
    assert candidates_for(30) == 60
    assert candidates_for(100) == 100
    assert candidates_for(20, shards=8) == 15


async def test_one_source_alone_keeps_its_order_and_its_relevances():
    items = [item("a", "Rope.", 0.9), item("b", "Sail.", 0.2)]
    (first, second) = await merge("sail", {"notes": items, "empty": []}, limit=5)
    assert [first, second] == [each.of_source("notes") for each in items]
    assert await merge("sail", {"empty": []}, limit=5) == []


async def test_a_source_that_has_nothing_to_say_is_not_heard_louder_for_its_own_high_scores():
    found = {
        "loud": [item("a", "Marzipan is made in Lübeck.", 1.0), item("b", "Rivers meet in Brno.", 0.99)],
        "quiet": [item("c", _HARBOUR, 0.03), item("d", "Visby has a wall.", 0.01)],
    }
    assert (await order("When was the harbour of Visby opened?", found))[0] == "quiet:c"


async def test_scores_on_any_scale_and_none_at_all_are_merged_by_what_the_passages_say():
    found = {
        "hundreds": [item("a", "Brno has no harbour.", 480.0), item("b", "Brno has two rivers.", 12.0)],
        "none": [item("c", _HARBOUR), item("d", "Visby has a wall.")],
        "nonsense": [item("e", "Lübeck is a port.", math.nan), item("f", "Marzipan.", math.inf)],
    }
    assert (await order("When was the harbour of Visby opened?", found))[0] == "none:c"


async def test_the_order_of_a_source_is_kept_where_words_say_nothing():
    found = {
        "en": [item(f"e{n}", f"Passage number {n}.", 1 - n / 10) for n in range(4)],
        "no scores": [item(f"n{n}", f"Text number {n}.") for n in range(4)],
    }
    ranked = await order("港口什么时候开放？", found)
    assert [id_ for id_ in ranked if id_.startswith("en")] == [f"en:e{n}" for n in range(4)]
    assert [id_ for id_ in ranked if id_.startswith("no")] == [f"no scores:n{n}" for n in range(4)]
    assert {ranked[0], ranked[1]} == {"en:e0", "no scores:n0"}


async def test_cosines_of_one_space_decide_across_languages_and_those_of_different_ones_do_not():
    found = {
        "en": [
            item("a", "The port opened long ago.", 1.0, vector=0.9),
            item("b", "A wall.", 0.4, vector=0.5),
        ],
        "zh": [item("c", "吃饭的地方很多。", 1.0, vector=0.4), item("d", "城墙。", 0.4, vector=0.3)],
    }
    question = "何时开港"
    assert (await order(question, found, spaces={"en": "e5", "zh": "e5"}))[0] == "en:a"
    different = await merge(question, found, limit=4, spaces={"en": "e5", "zh": "minilm"})
    unknown = await merge(question, found, limit=4)
    assert different == unknown


async def test_a_passage_that_two_sources_have_comes_once_and_says_where_else_it_is():
    found = {
        "wiki": [item("a", _HARBOUR, 0.9), item("b", "Visby has an old wall.", 0.5)],
        "笔记": [item("x", f"{_HARBOUR} See the map.", 0.8), item("y", "Brno has two rivers.", 0.1)],
    }
    ranked = await merge("When was the harbour of Visby opened?", found, limit=10)
    first = ranked[0]
    others = {"wiki:a": ["笔记:x"], "笔记:x": ["wiki:a"]}
    assert [one.metadata.get("also_in") for one in ranked] == [others[first.id], None, None]
    assert first.relevance == 1.0
    assert first.metadata["own_relevance"] == {"wiki:a": 0.9, "笔记:x": 0.8}[first.id]


async def test_a_copy_behind_the_limit_is_still_told():
    found = {
        "wiki": [item("a", _HARBOUR, 0.9)],
        "notes": [item("b", "The harbour of Visby opened.", 0.9), item("x", _HARBOUR, 0.01)],
    }
    ranked = await merge("When was the harbour of Visby opened in 1901?", found, limit=1)
    assert len(ranked) == 1
    (first,) = ranked
    assert first.metadata["also_in"] == [
        {"wiki": "notes:x", "notes": "wiki:a"}[first.metadata["knowledge_base"]]
    ]


_ITEMS = st.lists(
    st.tuples(st.sampled_from(["rope hemp", "sail", "港口", "rope", ""]), st.floats()), max_size=8
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from("abc"), _ITEMS, max_size=3), st.integers(1, 12))
async def test_whatever_sources_give_the_answer_is_ordered_bounded_and_made_of_it(sources, limit):
    found = {
        name: [item(f"{name}{place}", text, relevance) for place, (text, relevance) in enumerate(rows)]
        for name, rows in sources.items()
    }
    ranked = await merge("rope 港口", found, limit=limit)
    given_ids = {f"{name}:{one.id}" for name, items in found.items() for one in items}
    ids = [one.id for one in ranked]
    assert len(ids) == len(set(ids)) <= limit
    assert set(ids) <= given_ids
    if sum(map(bool, found.values())) > 1:
        relevances = [one.relevance for one in ranked]
        assert relevances == sorted(relevances, reverse=True)
        assert all(0 <= relevance <= 1 for relevance in relevances)


async def test_a_passage_that_holds_the_identifier_asked_for_comes_first_among_all_sources():
    loud = [
        item(f"a{n}", f"The ticket PAY-480{n} was entered on Monday by the night shift.", 1 - n / 10)
        for n in range(4)
    ]
    quiet = [item("b0", "The order was packed.", 1.0), item("b1", "On Monday came PAY-4817.", 0.3)]
    found = await order("Who entered the ticket PAY-4817 on Monday?", {"loud": loud, "quiet": quiet})
    assert found[0] == "quiet:b1"


async def test_a_field_of_a_document_does_not_pass_for_the_citations_of_copies():
    own = KnowledgeItem("a", "Rope.", "note:a", 0.9, {"also_in": "the yearbook"})
    (rope, _) = await merge("rope", {"notes": [own], "wiki": [item("b", "A sail of linen.", 0.2)]}, limit=5)
    assert rope.id == "notes:a"
    assert "also_in" not in rope.metadata


async def test_passages_of_shards_have_the_scores_that_they_would_have_in_the_whole():
    def passage(id_: str, relevance: float, **scores: float) -> KnowledgeItem:
        metadata = {"title": id_, "language": "en", "scores": scores}
        return KnowledgeItem(id=id_, content=id_, source=id_, relevance=relevance, metadata=metadata)

    near = {"per_graph": 0.3, "per_rise": 0.6, "zeros": {"alphabetic": 0.75}}
    scales = {
        "one": ScoreScale(top=1.3, per_bm25=0.4 / 20, rise=0.1, **near),
        "two": ScoreScale(top=1.3, per_bm25=0.4 / 10, rise=0.05, **near),
    }
    found = {
        "one": [
            passage("first", 1.0, bm25=20, vector=0.85, graph=1.0),
            passage("fourth", 0.12 / 1.3, vector=0.77),
        ],
        "two": [
            passage("second", 1.0, bm25=10, vector=0.80, graph=1.0),
            passage("third", 0.36 / 1.3, vector=0.78),
        ],
    }
    merged = await merge("qwerty", found, limit=4, scales=scales)
    assert [item.metadata["title"] for item in merged] == ["first", "second", "third", "fourth"]
    # The best of shard two has half the BM25, half the rise, and so half of the walk over the graph.
    assert [item.relevance for item in merged] == pytest.approx([1.0, 0.5, 0.18 / 1.3, 0.12 / 1.3], abs=0.001)
