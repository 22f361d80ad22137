"""Contract of lexical indexes, run with each of them."""

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from loom_core.errors import InvalidInputError
from loom_core.knowledge.indexes.engines.memory_lexical import MemoryLexicalIndex
from loom_core.knowledge.indexes.engines.tantivy import TantivyIndex
from loom_core.knowledge.interface import LexicalIndex

WORDS = [
    "知识",
    "图谱",
    "知识图谱",
    "graph",
    "Graph",
    "c++",
    'a"b',
    "AND",
    "-x",
    "body:y",
    "(",
    "😀",
    "　",
    "é",
    "*",
]


@pytest.fixture(params=["memory", "tantivy"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LexicalIndex]:
    opened: dict[str, Callable[[], LexicalIndex]] = {
        "memory": MemoryLexicalIndex,
        "tantivy": lambda: TantivyIndex(tmp_path / "words"),
    }
    index = opened[request.param]()
    yield index
    index.close()


def filled(index: LexicalIndex, *texts: str) -> LexicalIndex:
    index.add([(key, text.split(" ")) for key, text in enumerate(texts, start=1)])
    index.commit()
    return index


def found(hits: list[tuple[int, float]]) -> set[int]:
    return {key for key, _ in hits}


def test_any_of_the_tokens_is_enough(index: LexicalIndex) -> None:
    filled(index, "知识 图谱", "图谱 检索", "other words")
    assert found(index.search(["知识", "检索", "unknown"], 10)) == {1, 2}


def test_tokens_that_come_joined_are_the_same_as_a_list_of_them(index: LexicalIndex) -> None:
    index.add([(1, "知识 图谱 c++"), (2, ["知识", "检索"]), (3, "")])
    index.commit()
    assert found(index.search(["知识"], 10)) == {1, 2}
    assert index.containing(["c++", "知识"]) == [1]
    assert sorted(index.keys()) == [1, 2, 3]


def test_rare_tokens_weigh_more_and_every_score_is_positive(index: LexicalIndex) -> None:
    filled(index, "common rare", "common x", "common y", "common z")
    hits = index.search(["common", "rare"], 10)
    assert hits[0][0] == 1
    assert len(hits) == 4
    assert all(score > 0 for _, score in hits)


def test_repeats_of_a_token_in_the_question_multiply_its_part(index: LexicalIndex) -> None:
    filled(index, "a x", "b x", "c x")
    ((_, once),) = index.search(["a"], 1)
    ((_, thrice),) = index.search(["a", "a", "a"], 1)
    assert thrice == pytest.approx(3 * once, rel=1e-5)


@pytest.mark.parametrize("word", WORDS)
def test_tokens_are_indexed_and_searched_verbatim(index: LexicalIndex, word: str) -> None:
    index.add([(1, [word, "x"]), (2, ["y", "z"]), (3, [word + word, "z"])])
    index.commit()
    assert found(index.search([word], 10)) == {1}
    assert index.containing([word, "x"]) == [1]


def test_questions_that_no_index_can_hold_find_nothing(index: LexicalIndex) -> None:
    filled(index, "a b")
    index.add([])
    assert index.search([], 5) == []
    assert index.search(["\ud800", "", "a b"], 5) == []
    assert index.search(["a"], 0) == []
    assert index.containing([]) == []
    assert index.containing(["a", "\ud800"]) == []


def test_an_empty_index_finds_nothing(index: LexicalIndex) -> None:
    assert index.search(["a"], 5) == []
    assert index.containing(["a", "b"]) == []
    assert index.count() == 0
    index.commit()
    assert index.count() == 0


def test_additions_and_deletions_show_after_the_commit(index: LexicalIndex) -> None:
    index.add([(1, ["a"])])
    assert index.count() == 0
    assert index.search(["a"], 5) == []
    index.commit()
    index.delete([1, 99, 0, -3])
    assert index.count() == 1
    index.commit()
    assert index.count() == 0
    assert index.search(["a"], 5) == []


def test_a_key_added_again_is_replaced(index: LexicalIndex) -> None:
    index.add([(1, ["old"]), (2, ["x"])])
    index.commit()
    index.add([(1, ["older"]), (1, ["new"])])
    index.add([(1, ["newest"])])
    index.commit()
    assert index.count() == 2
    assert index.search(["old", "older", "new"], 5) == []
    assert found(index.search(["newest"], 5)) == {1}


def test_a_deletion_after_an_addition_of_the_same_commit_wins(index: LexicalIndex) -> None:
    index.add([(1, ["a"]), (2, ["a"])])
    index.delete([1])
    index.commit()
    assert found(index.search(["a"], 5)) == {2}


def test_a_passage_without_tokens_is_counted(index: LexicalIndex) -> None:
    index.add([(1, []), (2, ["a"])])
    index.commit()
    assert index.count() == 2
    assert found(index.search(["a"], 5)) == {2}


def test_all_passages_that_hold_every_token_are_found(index: LexicalIndex) -> None:
    filled(index, "知识 图谱 检索", "图谱 x 知识", "知识 x", "a a b", "b a")
    assert sorted(index.containing(["知识", "图谱"])) == [1, 2]
    assert index.containing(["检索", "知识", "图谱"]) == [1]
    assert sorted(index.containing(["a", "a", "b"])) == [4, 5]
    assert sorted(index.containing(["知识"])) == [1, 2, 3]
    assert index.containing(["知识", "absent"]) == []


@pytest.mark.parametrize("tokens", [["a b"], [""], ["a\n"], ["\ud800"]])
def test_tokens_with_white_space_are_refused(index: LexicalIndex, tokens: list[str]) -> None:
    with pytest.raises(InvalidInputError):
        index.add([(1, tokens)])


def test_among_restricts_the_search_without_changing_scores(index: LexicalIndex) -> None:
    filled(index, *("a b" if number % 3 else "a c" for number in range(60)))
    scores = dict(index.search(["a", "c"], 60))
    hits = index.search(["a", "c"], 60, among=[1, 2, 4, 5, 999, 0])
    assert found(hits) == {1, 2, 4, 5}
    assert dict(hits) == pytest.approx({key: scores[key] for key in found(hits)}, rel=1e-5)
    assert index.search(["a"], 5, among=[]) == []


def test_among_more_keys_than_a_filter_takes_finds_the_same(index: LexicalIndex) -> None:
    index.add((key, ["a"] * (1 + key % 7) + ["b"] * (key % 3)) for key in range(1, 2601))
    index.commit()
    every = [key for key, _ in index.search(["a", "b"], 2600)]
    few = range(1, 1201)
    hits = index.search(["a", "b"], 2600, among=few)
    assert [key for key, _ in hits] == [key for key in every if key in few]
    assert [key for key, _ in index.search(["a", "b"], 20, among=few)] == [key for key, _ in hits[:20]]
    last = every[-1100:]
    assert [key for key, _ in index.search(["a", "b"], 1100, among=last)] == last
    assert {key for key, _ in index.search(["a", "b"], 3, among=last)} <= set(last)


@pytest.mark.parametrize("seed", [1, 2])
def test_any_sequence_of_changes_agrees_with_a_dictionary(index: LexicalIndex, seed: int) -> None:
    dice = random.Random(seed)
    model: dict[int, list[str]] = {}
    words = WORDS[:8]
    for _ in range(8):
        for key in {dice.randint(1, 60) for _ in range(dice.randint(0, 16))}:
            tokens = dice.choices(words, k=dice.randint(0, 6))
            index.add([(key, tokens)])
            model[key] = tokens
        gone = [dice.randint(1, 70) for _ in range(dice.randint(0, 6))]
        index.delete(gone)
        model = {key: tokens for key, tokens in model.items() if key not in gone}
        index.commit()
        assert index.count() == len(model)
        question = dice.choices(words, k=2)
        among = [dice.randint(1, 70) for _ in range(30)]
        matching = {key for key, tokens in model.items() if set(question) & set(tokens)}
        hits = index.search(question, 100)
        assert found(hits) == matching
        assert all(one >= two for (_, one), (_, two) in pairwise(hits))
        assert found(index.search(question, 100, among=among)) == matching & set(among)
        assert set(index.containing(question)) == {
            k for k, tokens in model.items() if set(question) <= set(tokens)
        }


def test_tantivy_ranks_as_the_exact_formula_does(tmp_path: Path) -> None:
    """Tantivy keeps a passage's length in one byte: exact up to 40 tokens, rounded down above."""
    dice = random.Random(5)
    vocabulary = [f"词{number}" for number in range(200)]
    weights = [1 / (rank + 1) for rank in range(200)]
    corpus = [(key, dice.choices(vocabulary, weights, k=dice.randint(5, 150))) for key in range(1, 801)]
    exact, engine = MemoryLexicalIndex(), TantivyIndex(tmp_path / "words")
    for index in (exact, engine):
        index.add(corpus)
        index.commit()
    for _ in range(30):
        question = dice.choices(vocabulary, weights, k=5)
        expected, got = dict(exact.search(question, 800)), dict(engine.search(question, 800))
        assert got == pytest.approx(expected, rel=0.06)
        top = sorted(expected, key=lambda key: -expected[key])[:10]
        assert len(set(top) & found(engine.search(question, 14))) >= 9
    engine.close()


def test_short_passages_score_exactly_alike(tmp_path: Path) -> None:
    exact, engine = MemoryLexicalIndex(), TantivyIndex(tmp_path / "words")
    for index in (exact, engine):
        filled(index, "a b c", "a a b", "c d e f g", "知识 图谱 a")
    for question in (["a"], ["a", "b", "b"], ["知识", "g", "c"]):
        assert dict(engine.search(question, 9)) == pytest.approx(dict(exact.search(question, 9)), rel=1e-5)
    engine.close()


def test_tokens_are_found_by_their_beginning(index: LexicalIndex) -> None:
    filled(index, "550e8400 x", "550e84ff y", "z.5+ 1550e84", "知识图谱")
    assert sorted(index.beginning_with("550e84", 10)) == [1, 2]
    assert len(index.beginning_with("550e84", 1)) == 1
    assert index.beginning_with("z.5+", 10) == [3]
    assert index.beginning_with("z15", 10) == []
    assert index.beginning_with("知识", 10) == [4]
    assert index.beginning_with("\ud800", 10) == []
