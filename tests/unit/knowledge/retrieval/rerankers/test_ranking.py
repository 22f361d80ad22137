from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.retrieval.rerankers.ranking import (
    heading,
    logistic,
    order_by_relevance,
    text_with_headings,
)


def item(id_: str, **metadata: object) -> KnowledgeItem:
    return KnowledgeItem(id=id_, content=f"text {id_}", source="x", relevance=0.4, metadata=metadata)


def test_the_judged_come_first_by_score_and_the_others_follow_with_nothing():
    found = order_by_relevance([item("a"), item("b"), item("c"), item("d")], {3: 0.2, 1: 0.9}, limit=4)
    assert [(one.id, one.relevance) for one in found] == [("b", 0.9), ("d", 0.2), ("a", 0.0), ("c", 0.0)]


def test_a_passage_judged_worthless_is_still_before_one_that_was_not_judged():
    assert [one.id for one in order_by_relevance([item("a"), item("b")], {1: 0.0}, limit=2)] == ["b", "a"]


def test_scores_of_other_channels_stay_and_the_passage_itself_is_not_touched():
    before = item("a", scores={"bm25": 7.0}, title="T")
    (after,) = order_by_relevance([before], {0: 0.5}, limit=1, own={0: -3.0})
    assert after.metadata == {"scores": {"bm25": 7.0, "rerank": -3.0}, "title": "T"}
    assert before.metadata == {"scores": {"bm25": 7.0}, "title": "T"}
    (odd,) = order_by_relevance([item("a", scores="none")], {0: 0.5}, limit=1)
    assert odd.metadata["scores"] == {"rerank": 0.5}


@given(st.lists(st.floats(0, 1), max_size=8), st.integers(-1, 10))
def test_equals_keep_their_order_and_nothing_is_made_up(scores: list[float], limit: int):
    items = [item(str(place)) for place in range(len(scores))]
    relevance = {place: score for place, score in enumerate(scores) if score != 0.5}
    found = order_by_relevance(items, relevance, limit=limit)
    assert len(found) == max(0, min(limit, len(items)))
    keys = [(one.id not in {str(p) for p in relevance}, -one.relevance, int(one.id)) for one in found]
    assert keys == sorted(keys)
    assert {(one.id, one.content) for one in found} <= {(one.id, one.content) for one in items}


@pytest.mark.parametrize(("logit", "share"), [(0, 0.5), (1e9, 1.0), (-1e9, 0.0), (1, 1 / (1 + math.exp(-1)))])
def test_a_logit_becomes_a_share(logit: float, share: float):
    assert logistic(logit) == pytest.approx(share)


def test_a_passage_is_read_with_what_stands_above_it():
    assert (
        text_with_headings(item("a", title="手册", heading_path=["安装", "Linux"]))
        == "手册 › 安装 › Linux\ntext a"
    )
    assert text_with_headings(item("a", title="", heading_path=None)) == "text a"
    assert heading(item("a", title=3, heading_path="odd")) == ""
