from __future__ import annotations

from loom_core.knowledge.text.memoization import memoize


def test_a_known_word_is_not_asked_again():
    asked: list[str] = []

    @memoize
    def doubled(word: str) -> str:
        asked.append(word)
        return word * 2

    assert [*map(doubled, ["a", "知识", "a", "知识"])] == ["aa", "知识知识", "aa", "知识知识"]
    assert asked == ["a", "知识"]


def test_what_is_long_is_answered_but_not_kept():
    asked: list[int] = []

    @memoize
    def length(word: str) -> int:
        asked.append(len(word))
        return len(word)

    assert [length("x" * 1000), length("x" * 1000)] == [1000, 1000]
    assert asked == [1000, 1000]


def test_of_many_words_those_that_come_again_stay():
    asked: dict[str, int] = {}

    @memoize
    def count(word: str) -> int:
        asked[word] = asked.get(word, 0) + 1
        return asked[word]

    for number in range(140_000):
        assert count(str(number)) == 1
        assert count("common") == 1
    assert count("0") == 2
