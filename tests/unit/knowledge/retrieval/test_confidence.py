"""Confidence that passages answer: calibrated on words and cosine, and told in words where it is low."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.retrieval.confidence import LanguageSimilarity, Match, assess_match, combine_matches


def item(text: str, language: str = "en", relevance: float = 1.0) -> KnowledgeItem:
    return KnowledgeItem(
        id="p", content=text, source="s", relevance=relevance, metadata={"language": language}
    )


def near(best: float, *, language: str = "alphabetic", mean: float = 0.75, size: int = 1000, usual=0.72):
    return LanguageSimilarity(language, best=best, mean=mean, size=size, usual=usual)


BREAD = "How do I bake sourdough bread?"
VACUUM = [item("VACUUM reclaims storage that dead rows take."), item("Autovacuum runs it by itself.")]


def test_a_passage_that_is_near_and_holds_the_words_is_a_strong_match_and_needs_no_note():
    match = assess_match("When does autovacuum reclaim storage?", VACUUM, nearness=[near(0.88)])
    assert match.verdict == "strong"
    assert match.confidence > 0.9
    assert match.note == ""


def test_a_weak_match_names_the_words_that_no_passage_holds_as_they_were_written():
    match = assess_match(BREAD, VACUUM, nearness=[near(0.84)])
    assert match.verdict == "weak"
    assert match.note == "Weak match: no passage found contains “bake”, “sourdough”, “bread”."


def test_where_nothing_is_near_and_no_word_is_held_there_is_no_match_and_advice():
    match = assess_match(BREAD, VACUUM, nearness=[near(0.78)])
    assert match.verdict == "none"
    assert match.note.startswith(
        "No match: nothing here is close to the question, and no passage found contains"
    )
    assert "Try other words or another source" in match.note


def test_a_weak_match_that_holds_all_words_says_so_otherwise():
    assert "only loosely related" in Match(0.3).note


def test_chinese_words_are_named_too():
    passages = [item("备份数据的方法有很多种。", "zh")]
    match = assess_match(
        "怎样做红烧肉？", passages, nearness=[near(0.86, language="zh", mean=0.83, usual=0.82)]
    )
    assert match.verdict != "strong"
    assert "“红烧肉”" in match.note


def test_a_question_in_another_language_is_judged_by_meaning_and_by_names_in_both():
    passages = [item("VACUUM reclaims storage in PostgreSQL.")]
    held = assess_match("PostgreSQL 怎样回收空间？", passages, nearness=[near(0.83)])
    other = assess_match("MongoDB 怎样回收空间？", passages, nearness=[near(0.83)])
    assert held.confidence > other.confidence
    assert (held.missing, other.missing) == ((), ("MongoDB",))


def test_a_question_over_chinese_passages_is_judged_by_how_near_they_are_to_such_questions():
    passages = [item("龙烟铁路是环渤海高速铁路的重要组成部分。", "zh")]
    far, close = (
        assess_match(
            "Which railway is Longyan part of?",
            passages,
            nearness=[near(best, language="zh", mean=0.77, usual=0.76)],
        )
        for best in (0.79, 0.81)
    )
    assert (far.verdict, close.verdict) == ("weak", "strong")


def test_an_untranslated_passage_under_a_translated_heading_is_no_match_for_any_question_in_that_language():
    headed = {"language": "en", "title": "LOGIN.DEFS(5) - 影子密码套件配置"}
    passages = [KnowledgeItem("p", "CREATE_HOME (boolean)", "s", relevance=1.0, metadata=headed)]
    half_translated = [
        near(0.846, language="zh", mean=0.821, usual=0.823),
        near(0.84, mean=0.813, usual=0.733),
    ]
    assert assess_match("怎样做酸菜鱼？", passages, nearness=half_translated).verdict == "none"
    close = [near(0.92, language="zh", mean=0.821, usual=0.823), half_translated[1]]
    assert assess_match("怎样配置影子密码？", passages, nearness=close).verdict == "strong"
    # Without any passage in the question's language, only the cosine in the other one is known.
    assert assess_match("怎样配置登录？", passages, nearness=[near(0.86, usual=0.733)]).verdict == "strong"


def test_words_alone_call_a_match_weak_but_never_none():
    assert assess_match(BREAD, VACUUM).verdict == "weak"
    assert assess_match("autovacuum storage", VACUUM).verdict == "strong"
    # A cosine says nothing where it is not known what is usual: one passage is its own average.
    assert assess_match(BREAD, VACUUM, nearness=[near(0.78, size=1, usual=None)]).verdict == "weak"


def test_one_passage_is_compared_with_what_is_usual_in_its_language():
    own = near(0.86, mean=0.86, size=1)
    assert own.rise() > 0.4
    assert assess_match("When does autovacuum run?", VACUUM[1:], nearness=[own]).verdict == "strong"


def test_no_passages_are_told_apart_from_passages_that_do_not_fit():
    assert assess_match(BREAD, []) == Match(0.0)
    assert Match(0.0).note.startswith("Nothing was found.")


def test_of_several_sources_the_best_counts_and_a_word_is_missing_where_none_holds_it():
    passages = [*VACUUM, item("Bake the bread for an hour.")]
    match = combine_matches(BREAD, [Match(0.1, ("bread",)), Match(0.9)], passages)
    assert match == Match(0.9, ("sourdough",))
    assert combine_matches(BREAD, [], []) == Match(0.0)


cosines = st.floats(-1, 1, allow_nan=False)


@given(
    question=st.text(max_size=40),
    texts=st.lists(st.text(max_size=40), max_size=7),
    best=cosines,
    mean=cosines,
    usual=st.none() | cosines,
    size=st.integers(1, 10**6),
)
def test_confidence_is_a_probability_whatever_is_asked_and_found(question, texts, best, mean, usual, size):
    nearness = [LanguageSimilarity(language, best, mean, size, usual) for language in ("alphabetic", "zh")]
    for given_nearness in (None, nearness):
        match = assess_match(question, [item(text) for text in texts], nearness=given_nearness)
        assert 0 <= match.confidence <= 1
        assert (match.confidence == 0) == (not texts)
        assert all(word in question for word in match.missing)


@pytest.mark.parametrize("share", range(4))
def test_each_word_more_that_is_held_raises_the_confidence(share):
    words = ["harbour", "mooring", "tariff", "quay"]
    confidences = [
        assess_match(
            " ".join(words), [item(" ".join(words[:count]) or "x")], nearness=[near(0.83)]
        ).confidence
        for count in (share, share + 1)
    ]
    assert confidences[0] < confidences[1]


@pytest.mark.parametrize("question", ["When was PAY-4817 entered?", "PAY-4817是何时录入的？"])
def test_an_identifier_decides_whether_passages_that_are_all_alike_fit(question):
    like = [item("PAY-4816 was entered on Monday."), item("PAY-4815 was entered on Monday.")]
    absent = assess_match(question, like, nearness=[near(0.95)])
    assert absent.verdict == "weak"
    assert absent.note.startswith("Weak match: no passage found contains “PAY-4817”")
    held = assess_match(
        question, [item("PAY-4817 was entered on Monday."), *like], nearness=[near(0.7, mean=0.7)]
    )
    assert held.verdict == "strong"
