from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.sources.federation.cross_source_links import cross_links
from loom_core.knowledge.sources.federation.merging import merge


def item(title: str, text: str, relevance: float = 0.0) -> KnowledgeItem:
    return KnowledgeItem(f"id-{title}", text, f"note:{title}", relevance, {"title": title})


FILM = item("The Silent Harbour", "The Silent Harbour is a film directed by Mara Lindqvist.", 1.0)
PERSON = item("Mara Lindqvist (director)", "She was born in Visby, the daughter of a fisherman.", 0.1)
静港 = item("静港", "《静港》是一部电影，由林若曦执导。", 1.0)
林若曦 = item("林若曦", "生于厦门的一个渔民家庭。", 0.1)


@pytest.mark.parametrize(
    ("query", "seed", "target", "name"),
    [
        ("Where was the director of The Silent Harbour born?", FILM, PERSON, "Mara Lindqvist"),
        ("《静港》的导演生于哪里？", 静港, 林若曦, "林若曦"),
    ],
)
def test_what_a_good_passage_mentions_is_found_in_another_source(query, seed, target, name):
    other = item("Marzipan", "Marzipan was born in Lübeck, people say.", 0.3)
    (link,) = cross_links(query, [("films", seed), ("people", target), ("people", other)], [1.0, 0.1, 0.3])
    assert link.target == 1
    assert 0.3 < link.score <= 0.9
    assert link.why == (f"“{seed.metadata['title']}” (films) mentions “{name}”, which this passage is about")


def test_links_inside_a_source_are_its_own_affair():
    question = "Where was the director of The Silent Harbour born?"
    assert cross_links(question, [("films", FILM), ("films", PERSON)], [1.0, 0.1]) == []


def test_what_the_question_names_itself_needs_no_link():
    assert cross_links("Was Mara Lindqvist born?", [("films", FILM), ("people", PERSON)], [1.0, 0.1]) == []


def test_a_title_that_many_documents_have_is_no_name():
    many = [KnowledgeItem(str(n), "Text.", f"note:{n}", 0.0, {"title": "Overview"}) for n in range(4)]
    seed = item("Guide", "See the Overview first.")
    candidates = [("a", seed), *(("b", each) for each in many)]
    assert cross_links("rope", candidates, [1.0, 0.1, 0.1, 0.1, 0.1]) == []
    assert len(cross_links("rope", candidates[:3], [1.0, 0.1, 0.1])) == 2


@pytest.mark.parametrize("title", ["harbour", "Har", "H", "", None])
def test_what_is_no_name_in_the_text_is_not_followed(title):
    target = KnowledgeItem("1", "Text.", "note:1", 0.0, {"title": title})
    assert cross_links("rope", [("a", item("Port", "The harbour, a Harbour.")), ("b", target)], [1, 0]) == []


async def test_a_question_whose_two_passages_are_in_two_sources_finds_both():
    noise = [item(f"Birth {n}", f"Where a film director was born is asked: {n}.", 0.5) for n in range(4)]
    found = {"films": [FILM, *noise], "people": [item("Births", "Who was born where.", 0.9), PERSON]}
    question = "Where was the director of The Silent Harbour born?"
    ranked = await merge(question, found, limit=2)
    assert [one.metadata["title"] for one in ranked] == [
        FILM.metadata["title"],
        PERSON.metadata["title"],
    ]
    assert ranked[1].metadata["why"][0].endswith("which this passage is about")


_TITLES = st.sampled_from(["Rope", "Sail", "林若曦", "(x)", "a", ""])
_CANDIDATE = st.tuples(st.sampled_from("ab"), _TITLES, st.sampled_from(["Rope and Sail.", "林若曦的绳", ""]))


@given(st.lists(st.tuples(_CANDIDATE, st.floats(0, 1)), max_size=8))
def test_a_link_never_lifts_a_passage_above_the_best_one(rows):
    candidates = [(source, item(title, text)) for (source, title, text), _ in rows]
    scores = [score for _, score in rows]
    links = cross_links("rope", candidates, scores)
    assert len({link.target for link in links}) == len(links)
    for link in links:
        assert scores[link.target] < link.score <= 0.9 * max(scores)


@pytest.mark.parametrize(
    ("query", "seed", "target", "name"),
    [
        (
            "Of what church is the diocese of the birthplace of Meehan Bonnar?",
            item("Meehan Bonnar", "He was born in Fredericton, and skated there."),
            item("A diocese", "The diocese that has its seat in Fredericton is Anglican."),
            "Fredericton",
        ),
        (
            "执导《静港》的人在哪里获奖？",
            静港,
            item("电影节", "在厦门电影节上，林若曦获奖。"),
            "林若曦",
        ),
    ],
)
def test_what_two_sources_mention_connects_their_passages(query, seed, target, name):
    other = item("Marzipan", "It is made in Lübeck.")
    (link,) = cross_links(query, [("people", seed), ("places", target), ("places", other)], [1.0, 0.3, 0.3])
    assert link.target == 1
    assert 0.3 < link.score <= 0.75
    assert link.why.endswith(f"mentions “{name}”, and so does this passage")


def test_a_name_that_many_candidates_mention_connects_none():
    seed = item("Port", "It lies in Visby.")
    many = [("b", item(f"No {n}", f"Number {n} is in Visby, too.")) for n in range(9)]
    assert cross_links("rope", [("a", seed), *many], [1.0] + [0.1] * 9) == []
    assert len(cross_links("rope", [("a", seed), *many[:8]], [1.0] + [0.1] * 8)) == 8


def test_what_a_lead_has_found_counts_by_its_link_alone():
    question = "Where was the director of The Silent Harbour born?"
    born = item("Births", "Where a director was born is asked here.")
    (link,) = cross_links(question, [("films", FILM)], [1.0], led_to=[("people", born), ("people", PERSON)])
    assert link.target == 2
    assert 0.5 < link.score <= 0.9
