from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.sources.federation.cross_source_links import plan_follow_up


def item(title: str, text: str) -> KnowledgeItem:
    return KnowledgeItem(f"id-{title}", text, f"note:{title}", 0.0, {"title": title} if title else {})


FILM = item("The Silent Harbour", "The Silent Harbour is a film directed by Mara Lindqvist in Visby.")
静港 = item("静港", "《静港》是一部电影，由林若曦执导。")
QUESTION = "Where was the director of The Silent Harbour born?"


def test_what_the_best_passage_mentions_and_the_question_leaves_open_is_asked_for():
    found = plan_follow_up(QUESTION, [("films", FILM)], [1.0])
    assert found is not None
    assert found.names == (("Mara Lindqvist", "films"), ("Visby", "films"))
    assert found.query_for("people") == "Mara Lindqvist Visby director born"


def test_a_source_is_not_asked_for_what_its_own_passages_mention():
    other = item("Harbours", "A harbour of Tom Hale's, who was a director.")
    found = plan_follow_up(QUESTION, [("films", FILM), ("people", other)], [1.0, 0.9])
    assert found is not None
    assert found.query_for("people") == "Mara Lindqvist Visby director born"
    assert found.query_for("films") == "Tom Hale director born"
    assert plan_follow_up(QUESTION, [("films", FILM)], [1.0]).query_for("films") == ""


def test_chinese_names_are_asked_for():
    found = plan_follow_up("《静港》的导演生于哪里？", [("films", 静港)], [1.0])
    assert found is not None
    assert found.query_for("人物").split()[0] == "林若曦"


@pytest.mark.parametrize(
    ("question", "passage"),
    [
        (
            "When was the harbour of Visby opened?",
            "The harbour of Visby was opened in 1901 by Mara Lindqvist.",
        ),
        ("维斯比的港口什么时候开放？", "维斯比的港口于1901年开放，由林若曦主持。"),
    ],
)
def test_a_question_that_the_best_passage_answers_leads_nowhere(question, passage):
    assert plan_follow_up(question, [("notes", item("Notes", passage))], [1.0]) is None


def test_names_that_a_candidate_is_about_or_the_question_says_are_not_asked_for():
    person = item("Mara Lindqvist (director)", "She lived here.")
    candidates = [("films", FILM), ("people", person)]
    assert plan_follow_up("Where in Visby was the maker of a film born?", candidates, [1.0, 0.1]) is None


def test_passages_that_are_worth_little_lead_nowhere():
    weak = item("Sails", "Sails were cut by Tom Hale.")
    found = plan_follow_up(QUESTION, [("films", FILM), ("shop", weak)], [1.0, 0.2])
    assert found is not None
    assert {source for _, source in found.names} == {"films"}


def test_there_is_no_lead_without_candidates_words_or_names():
    assert plan_follow_up(QUESTION, [], []) is None
    assert plan_follow_up("?", [("films", FILM)], [1.0]) is None
    assert plan_follow_up(QUESTION, [("films", item("Rope", "it is so"))], [1.0]) is None


_TEXTS = st.text(st.sampled_from("AbC dé.林若曦《》\n\u200b1"), max_size=40)


@given(_TEXTS, st.lists(st.tuples(st.sampled_from("ab"), _TEXTS, _TEXTS), max_size=6))
def test_a_lead_has_few_names_and_words_of_the_question_only(question, rows):
    candidates = [(source, item(title, text)) for source, title, text in rows]
    found = plan_follow_up(question, candidates, [1.0] * len(rows))
    if found is not None:
        assert 1 <= len(found.names) <= 6
        assert all(word in question for word in found.left)
        for name, source in found.names:  # a name that a line break divides has a space there
            assert any(name in " ".join(i.content.split()) for s, i in candidates if s == source)
