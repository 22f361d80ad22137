"""How much two texts have in common."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.text.shingles import TextSketch, bands_of, jaccard_similarity, shingles, text_hash

WORDS = st.lists(
    st.sampled_from("harbour lighthouse keeper Velden sea 灯塔 的 看守人 是 李明 ๆ 𠀀 x1 ½".split()),
    max_size=40,
)


def real(one: str, other: str) -> float:
    """The Jaccard index of the triples of words, by the book."""

    def triples(text: str) -> set[tuple[str, ...]]:
        words: list[str] = []
        for word in text.casefold().split():
            words += list(word) if word[0] in "灯的看是李ๆ𠀀" else [word]
        return set(zip(words, words[1:], words[2:], strict=False))

    a, b = triples(one), triples(other)
    return len(a & b) / len(a | b) if a | b else 0.0


@given(WORDS, WORDS)
def test_the_likeness_is_that_of_the_triples_of_words(one, other):
    one, other = " ".join(one).replace("½", "half"), " ".join(other).replace("½", "half")
    assert abs(jaccard_similarity(shingles(one), shingles(other)) - real(one, other)) < 1e-9


@given(st.text())
def test_any_text_has_a_hash_shingles_and_bands(text):
    found = shingles(text)
    assert sorted(set(found.tolist())) == found.tolist()
    assert len(bands_of(found)) in {0, 6}
    assert len(text_hash(text)) == 16
    assert jaccard_similarity(found, found) == (1.0 if len(found) else 0.0)


def test_spaces_case_and_punctuation_make_no_difference_and_chinese_needs_no_spaces():
    assert jaccard_similarity(shingles("The harbour, of Veld!"), shingles("the\nharbour of   veld")) == 1
    assert jaccard_similarity(shingles("灯塔的看守人"), shingles("灯塔，的 看守人。")) == 1
    assert text_hash("Ａ b\r\n c") == text_hash("A b c ")
    assert text_hash("a b") != text_hash("A b")


def test_texts_that_are_nearly_the_same_share_a_band_and_others_do_not():
    lines = [f"line {n} says word{n * 7} and 第{n}行" for n in range(60)]
    whole = shingles("\n".join(lines))
    near = shingles("\n".join([*lines[:30], "one changed line", *lines[31:]]))
    other = shingles("\n".join(f"other {n} tells thing{n} or 页{n}" for n in range(60)))
    assert jaccard_similarity(whole, near) > 0.9
    assert set(bands_of(whole)) & set(bands_of(near))
    assert not set(bands_of(whole)) & set(bands_of(other))


_ENGLISH = "The harbour of Visby was opened in 1901 and has been deepened twice since then by the town."
_CHINESE = "厦门港是福建省的一个大港口，每年有许多船只停靠，码头在一九零一年开放。"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_ENGLISH, _ENGLISH.upper()),
        (_ENGLISH, _ENGLISH.replace("twice", "three times")),
        (_ENGLISH, f"Before it there was a pier. {_ENGLISH} Nobody remembers why."),  # plain-english: data
        (_CHINESE, _CHINESE.replace("，", ",")),
        (_CHINESE, f"这里说的是港口。{_CHINESE}后来又扩建过。"),
        ("Rope.", " rope. "),
    ],
)
def test_texts_that_say_the_same_are_told(one, other):
    assert TextSketch(one).is_near_duplicate_of(TextSketch(other))
    assert TextSketch(other).is_near_duplicate_of(TextSketch(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_ENGLISH, _CHINESE),
        (_ENGLISH, "The harbour of Visby has a wall that was built in the thirteenth century by monks."),
        ("The harbour of Visby", _ENGLISH),
        (_CHINESE, "厦门港是福建省的一个海滨旅游胜地，鼓浪屿上有许多老房子和钢琴。"),
        ("Rope.", "Sail."),
    ],
)
def test_texts_that_share_a_phrase_are_not_the_same(one, other):
    assert not TextSketch(one).is_near_duplicate_of(TextSketch(other))


def test_a_text_is_within_a_longer_one_and_not_the_other_way_round():
    longer = TextSketch(f"{_ENGLISH} {_CHINESE}")
    assert TextSketch(_CHINESE).is_within(longer)
    assert not longer.is_within(TextSketch(_CHINESE))
