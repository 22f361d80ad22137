from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.model import RetrievedPassage
from loom_core.knowledge.retrieval.patterns import CITATION, cited_numbers, cited_sentences


def passage(text: str, **metadata: object) -> RetrievedPassage:
    return RetrievedPassage(
        chunk_id=text, text=text, score=1.0, metadata=dict(metadata), knowledge_base_id="kb",
        document_id=None, source="words",
    )  # fmt: skip


_PASSAGES = [
    passage("The harbour opened in 1901.", title="Visby"),
    passage("港口于1901年开放。"),
    passage("Marzipan is from Lübeck."),
]


def judged(answer: str) -> list[tuple[str, tuple[int, ...], tuple[int, ...], bool]]:
    return [(s.text, s.citations, s.weak, s.supported) for s in cited_sentences(answer, _PASSAGES)]


def test_a_citation_counts_for_the_sentence_it_stands_in_or_behind():
    answer = "The harbour opened in 1901 [1]. It is in Visby. [1] The harbour is deep.[1] Dr. Ek says no."
    assert judged(answer) == [
        ("The harbour opened in 1901 [1].", (1,), (), True),
        ("It is in Visby. [1]", (1,), (), True),
        ("The harbour is deep.[1]", (1,), (), True),
        ("Dr. Ek says no.", (), (), False),
    ]


def test_chinese_sentences_are_told_with_their_citations():
    assert judged("港口在1901年开放。[2]码头很大【2】。有人不同意！") == [
        ("港口在1901年开放。[2]", (2,), (), True),
        ("码头很大【2】。", (2,), (2,), False),
        ("有人不同意！", (), (), False),
    ]


def test_a_citation_whose_passage_shares_no_word_is_weak():
    assert judged("The harbour opened in 1901 [3]. The harbour opened in 1901 [1, 3].") == [
        ("The harbour opened in 1901 [3].", (3,), (3,), False),
        ("The harbour opened in 1901 [1, 3].", (1, 3), (3,), True),
    ]


def test_words_do_not_judge_between_languages():
    assert judged("The port was opened long ago [2].") == [
        ("The port was opened long ago [2].", (2,), (), True)
    ]


def test_a_citation_of_no_passage_supports_nothing():
    assert judged("The harbour opened [4][0].") == [("The harbour opened [4][0].", (), (), False)]
    assert cited_numbers("a [4] b [1，2] c【2】") == [4, 1, 2]


def test_headings_and_marks_are_no_sentences():
    assert [text for text, *_ in judged("# Visby\n\n---\n- The harbour opened [1].\n\n[1]\n")] == [
        "- The harbour opened [1]."
    ]
    assert judged("") == []


@given(st.text(alphabet="ab .。！?[]【】12,，\n#-港口", max_size=120))
def test_no_citation_and_no_word_is_lost(answer):
    sentences = cited_sentences(answer, _PASSAGES)
    for sentence in sentences:
        assert sentence.text in answer
        assert set(sentence.weak) <= set(sentence.citations)
    if "#" not in answer and "-" not in answer:
        told = "".join(CITATION.sub("", sentence.text) for sentence in sentences)
        assert [c for c in told if c in "ab港口"] == [c for c in answer if c in "ab港口"]
