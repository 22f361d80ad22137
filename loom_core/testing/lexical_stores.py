"""Contract of the lexical indexes that plug into a knowledge base, as pytest classes for those who write one.

    from loom_core.testing import LexicalServerContract

    class TestMyIndex(LexicalServerContract):
        url = "my-engine+http://localhost:1234"

The engine is found by its registration (see `loom_core.plugins`). Each test makes indexes of its own, named
`contract_…`, and deletes them.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise
from math import isclose
from typing import TYPE_CHECKING, ClassVar

from loom_core.errors import IndexDamagedError, InvalidInputError, StoreUnavailableError
from loom_core.knowledge.interface import LexicalQuery
from loom_core.testing.stores import assert_raises, temporary_name

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from contextlib import AbstractContextManager

    from pydantic import SecretStr

    from loom_core.knowledge.interface import LexicalIndex, LexicalSearch, LexicalServerIndex

__all__ = ["LexicalIndexContract", "LexicalServerContract"]

_LARGE_KEY = 2**62 + 1  # of the kind that a float cannot hold
_LARGEST_KEY = 2**63 - 1
_TOKENS = ["知识", "图谱", "知识图谱", "graph", "Graph", "c++", 'a"b', "AND", "-x"]
_ODD_TOKENS = [
    "body:y",
    "(",
    "😀",
    "\u3000",
    "\u00a0",
    "\u0085",
    "\u2028",
    "\x1c",
    "é",
    "e\u0301",
    "*",
    "\\",
    "\x00",
]
_LONG_TOKEN = "长" * 300


class LexicalIndexContract:
    """Contract of `LexicalIndex`: a subclass opens empty indexes, and pytest runs the rest."""

    @contextmanager
    def empty_index(self) -> Generator[LexicalIndex]:
        """Open an empty index, and delete it at the end."""
        raise NotImplementedError
        yield

    @contextmanager
    def index_of(self, *texts: str) -> Generator[LexicalIndex]:
        """Open an index of texts, whose keys are 1, 2 and so on."""
        with self.empty_index() as index:
            index.add([(key, text.split()) for key, text in enumerate(texts, start=1)])
            index.commit()
            yield index

    def test_any_of_the_tokens_is_enough(self) -> None:
        with self.index_of("知识 图谱", "图谱 检索", "other words") as index:
            assert _keys(_find(index, ["知识", "检索", "unknown"], 10)) == {1, 2}
            assert len(_find(index, ["图谱"], 1)) == 1

    def test_tokens_that_come_joined_are_the_same_as_a_list_of_them(self) -> None:
        with self.empty_index() as index:
            index.add([(1, "知识 图谱 c++"), (2, ["知识", "检索"]), (3, "")])
            index.commit()
            assert _keys(_find(index, ["知识"], 10)) == {1, 2}
            assert _holders(index, ["c++", "知识"]) == [1]
            assert sorted(index.keys()) == [1, 2, 3]

    def test_rare_tokens_weigh_more_and_every_score_is_positive(self) -> None:
        with self.index_of("common rare", "common x", "common y", "common z") as index:
            hits = _find(index, ["common", "rare"], 10)
            assert hits[0][0] == 1
            assert len(hits) == 4
            assert all(score > 0 for _, score in hits)

    def test_repeats_of_a_token_in_the_question_multiply_its_part(self) -> None:
        with self.index_of("a x", "b x", "c x") as index:
            [(_, once)] = _find(index, ["a"], 1)
            [(_, thrice)] = _find(index, ["a", "a", "a"], 1)
            assert isclose(thrice, 3 * once, rel_tol=1e-5)

    def test_tokens_are_indexed_and_searched_verbatim(self) -> None:
        words = [*_TOKENS, *_ODD_TOKENS]
        with self.empty_index() as index:
            for place, word in enumerate(words):
                index.add([(2 * place + 1, [word, "x"]), (2 * place + 2, [word + word, "z"])])
            index.commit()
            for place, word in enumerate(words):
                assert _keys(_find(index, [word], 10)) == {2 * place + 1}, repr(word)
                assert _holders(index, [word, "x"]) == [2 * place + 1], repr(word)
                assert _beginning(index, word + word, 10) == [2 * place + 2], repr(word)

    def test_long_tokens_are_whole(self) -> None:
        with self.index_of(f"{_LONG_TOKEN} x", f"{_LONG_TOKEN}长", _LONG_TOKEN[:-1]) as index:
            assert _keys(_find(index, [_LONG_TOKEN], 10)) == {1}
            assert _holders(index, [_LONG_TOKEN, "x"]) == [1]

    def test_questions_that_no_index_can_hold_find_nothing(self) -> None:
        with self.index_of("a b") as index:
            index.add([])
            assert _find(index, [], 5) == []
            assert _find(index, ["\ud800", "", "a b", "长" * 30_000], 5) == []
            assert _find(index, ["a"], 0) == []
            assert _holders(index, []) == []
            assert _holders(index, ["a", "\ud800"]) == []
            assert _holders(index, ["a", "长" * 30_000]) == []
            assert _beginning(index, "\ud800", 10) == []
            assert _beginning(index, "a", 0) == []

    def test_a_question_of_thousands_of_tokens_is_answered(self) -> None:
        words = [f"w{number}" for number in range(3000)]
        with self.index_of(" ".join(words), "w0 w1 other", "nothing") as index:
            assert _keys(_find(index, [*words, "w0", "w1"], 10)) == {1, 2}
            assert _holders(index, words) == [1]
            assert _holders(index, [*words, "other"]) == []

    def test_an_empty_index_finds_nothing(self) -> None:
        with self.empty_index() as index:
            assert _find(index, ["a"], 5) == []
            assert _holders(index, ["a", "b"]) == []
            assert _beginning(index, "a", 5) == []
            assert index.keys() == []
            assert index.count() == 0
            index.delete([1])
            index.commit()
            assert index.count() == 0

    def test_additions_and_deletions_show_after_the_commit(self) -> None:
        with self.empty_index() as index:
            index.add([(1, ["a"])])
            assert index.count() == 0
            assert _find(index, ["a"], 5) == []
            index.commit()
            index.delete([1, 99, 0, -3])
            assert index.count() == 1
            index.commit()
            assert index.count() == 0
            assert _find(index, ["a"], 5) == []

    def test_a_key_added_again_is_replaced(self) -> None:
        with self.empty_index() as index:
            index.add([(1, ["old"]), (2, ["x"])])
            index.commit()
            index.add([(1, ["older"]), (1, ["new"])])
            index.add([(1, ["newest"])])
            index.commit()
            assert index.count() == 2
            assert sorted(index.keys()) == [1, 2]
            assert _find(index, ["old", "older", "new"], 5) == []
            assert _keys(_find(index, ["newest"], 5)) == {1}

    def test_a_deletion_after_an_addition_of_the_same_commit_wins(self) -> None:
        with self.empty_index() as index:
            index.add([(1, ["a"]), (2, ["a"])])
            index.delete([1])
            index.commit()
            assert _keys(_find(index, ["a"], 5)) == {2}

    def test_a_passage_without_tokens_is_counted(self) -> None:
        with self.empty_index() as index:
            index.add([(1, []), (2, ["a"])])
            index.commit()
            assert index.count() == 2
            assert sorted(index.keys()) == [1, 2]
            assert _keys(_find(index, ["a"], 5)) == {2}

    def test_all_passages_that_hold_every_token_are_found(self) -> None:
        with self.index_of("知识 图谱 检索", "图谱 x 知识", "知识 x", "a a b", "b a") as index:
            assert _holders(index, ["知识", "图谱"]) == [1, 2]
            assert _holders(index, ["检索", "知识", "图谱"]) == [1]
            assert _holders(index, ["a", "a", "b"]) == [4, 5]
            assert _holders(index, ["知识"]) == [1, 2, 3]
            assert _holders(index, ["知识", "absent"]) == []

    def test_passages_that_hold_a_name_are_ranked_by_all_tokens(self) -> None:
        with self.index_of(*["x 知识"] * 4, "x y 知识 图谱", "z 图谱 知识 知识", "x y", "图谱") as index:
            name = ["知识", "图谱"]
            [every, held] = index.search(
                [LexicalQuery(["y", *name], 9), LexicalQuery(["y", *name], 9, holding=name)]
            )
            assert [key for key, _ in held] == [5, 6]
            assert all(isclose(score, dict(every)[key], rel_tol=1e-5) for key, score in held)
            asked = [
                LexicalQuery(["y", *name], 1, holding=name),
                LexicalQuery(["y", *name], 9, among=[6, 7, 999], holding=name),
                LexicalQuery(["y", "无"], 9, holding=["无"]),
                LexicalQuery(["x"], 2, holding=["x"], common=7),
                LexicalQuery(["x"], 2, holding=["x"], common=6),
                LexicalQuery(["x"], 2, among=[1, 2, 3, 4, 5, 7], holding=["x"], common=6),
            ]
            found = [[key for key, _ in hits] for hits in index.search(asked)]
            assert found[:3] == [[5], [6], []]
            assert [len(keys) for keys in found[3:]] == [2, 0, 0]

    def test_tokens_are_found_by_their_beginning(self) -> None:
        with self.index_of("550e8400 x", "550e84ff y", "z.5+ 1550e84", "知识图谱") as index:
            assert _beginning(index, "550e84", 10) == [1, 2]
            assert len(_beginning(index, "550e84", 1)) == 1
            assert _beginning(index, "z.5+", 10) == [3]
            assert _beginning(index, "z15", 10) == []
            assert _beginning(index, "知识", 10) == [4]

    def test_several_queries_are_answered_as_one_by_one(self) -> None:
        with self.index_of("知识 图谱", "图谱 graph", "graph graphs", "x") as index:
            queries = [
                LexicalQuery(["图谱", "graph"], 10),
                LexicalQuery([], 10),
                LexicalQuery(["图谱"], match="all", among=[2, 3]),
                LexicalQuery(["图谱", "知识"], match="all", among=[]),
                LexicalQuery(["graph"], match="prefix", among=range(3, 10)),
                LexicalQuery(["graph"], 1, "all"),
                LexicalQuery(["nowhere"], 10),
                LexicalQuery(["graph"], 0, "prefix"),
            ]
            answers = index.search(queries)
            assert answers == [index.search([query])[0] for query in queries]
            assert answers[0][0][0] == 2
            assert [len(hits) for hits in answers] == [3, 0, 1, 0, 1, 1, 0, 0]
            assert (answers[2], answers[4]) == ([(2, 0.0)], [(3, 0.0)])
            assert index.search([]) == []

    def test_tokens_with_white_space_are_refused(self) -> None:
        with self.empty_index() as index:
            for tokens in (["a b"], [""], ["a\n"], ["\ud800"]):
                assert_raises(InvalidInputError, lambda tokens=tokens: index.add([(1, tokens)]))

    def test_among_restricts_the_search_without_changing_scores(self) -> None:
        with self.index_of(*("a b" if number % 3 else "a c" for number in range(60))) as index:
            scores = dict(_find(index, ["a", "c"], 60))
            hits = _find(index, ["a", "c"], 60, among=[1, 2, 4, 5, 999, 0, -1])
            assert _keys(hits) == {1, 2, 4, 5}
            assert all(isclose(score, scores[key], rel_tol=1e-5) for key, score in hits)
            assert _find(index, ["a"], 5, among=[]) == []

    def test_a_search_among_many_keys_reaches_its_limit(self) -> None:
        with self.empty_index() as index:
            index.add((key, ["a"] * (1 + key % 7) + ["b"] * (key % 3)) for key in range(1, 2601))
            index.commit()
            every = dict(_find(index, ["a", "b"], 2600))
            assert len(every) == 2600
            worst = list(every)[-1100:]
            for chosen in (range(1, 1201), worst, range(1300, 100_000)):
                for limit in (2600, 1100, 20):
                    hits = _find(index, ["a", "b"], limit, among=chosen)
                    expected = sorted((every[key] for key in every.keys() & set(chosen)), reverse=True)[
                        :limit
                    ]
                    assert len(hits) == len(expected)
                    assert _keys(hits) <= set(chosen)
                    assert all(
                        isclose(score, best, rel_tol=1e-5)
                        for (_, score), best in zip(hits, expected, strict=True)
                    )
                    holding = {key for key in every.keys() & set(chosen) if key % 3}
                    [found] = index.search([LexicalQuery(["a", "b"], limit, "all", among=chosen)])
                    assert _keys(found) <= holding
                    assert len(found) == min(limit, len(holding))

    def test_takes_tens_of_thousands_and_large_keys(self) -> None:
        with self.empty_index() as index:
            keys = [*range(1, 12_000), _LARGE_KEY, _LARGEST_KEY]
            index.add((key, "a b" if key % 2 else "a") for key in keys)
            index.commit()
            assert index.count() == len(keys)
            assert sorted(index.keys()) == keys
            assert _holders(index, ["a"]) == keys
            assert _beginning(index, "b") == [key for key in keys if key % 2]
            assert len(_beginning(index, "b", 5500)) == 5500
            assert _keys(_find(index, ["a"], 100_000)) == set(keys)
            among = [_LARGE_KEY, _LARGEST_KEY, _LARGEST_KEY + 1]
            assert _keys(_find(index, ["b"], 10, among=among)) == {_LARGE_KEY, _LARGEST_KEY}
            index.delete(keys[:-1])
            index.commit()
            assert index.keys() == [_LARGEST_KEY]

    def test_any_sequence_of_changes_agrees_with_a_dictionary(self) -> None:
        dice = random.Random(1)
        model: dict[int, list[str]] = {}
        with self.empty_index() as index:
            for _ in range(12):
                for key in {dice.randint(1, 60) for _ in range(dice.randint(0, 16))}:
                    model[key] = dice.choices(_TOKENS, k=dice.randint(0, 6))
                    index.add([(key, model[key])])
                gone = [dice.randint(1, 70) for _ in range(dice.randint(0, 6))]
                index.delete(gone)
                model = {key: tokens for key, tokens in model.items() if key not in gone}
                index.commit()
                assert index.count() == len(model)
                question = dice.choices(_TOKENS, k=2)
                among = [dice.randint(1, 70) for _ in range(30)]
                matching = {key for key, tokens in model.items() if set(question) & set(tokens)}
                hits = _find(index, question, 100)
                assert _keys(hits) == matching
                assert all(one >= two for (_, one), (_, two) in pairwise(hits))
                assert _keys(_find(index, question, 100, among=among)) == matching & set(among)
                assert set(_holders(index, question)) == {
                    key for key, tokens in model.items() if set(question) <= set(tokens)
                }

    def test_short_passages_score_as_the_formula_says(self) -> None:
        texts = ["a b c", "a a b", "c d e f g", "知识 图谱 a"]
        with self.index_of(*texts) as index, _exact_index(texts) as exact:
            for question in (["a"], ["a", "b", "b"], ["知识", "g", "c"]):
                _assert_proportional(_find(index, question, 9), _find(exact, question, 9), 1e-5)

    def test_long_passages_rank_as_the_formula_says(self) -> None:
        """Engines keep a passage's length in one byte: exact up to 40 tokens, rounded down above."""
        dice = random.Random(5)
        vocabulary = [f"词{number}" for number in range(200)]
        weights = [1 / (rank + 1) for rank in range(200)]
        texts = [" ".join(dice.choices(vocabulary, weights, k=dice.randint(5, 150))) for _ in range(800)]
        with self.index_of(*texts) as index, _exact_index(texts) as exact:
            for _ in range(30):
                question = dice.choices(vocabulary, weights, k=5)
                hits, expected = _find(index, question, 800), _find(exact, question, 800)
                _assert_proportional(hits, expected, 0.06)
                assert len(_keys(hits[:14]) & _keys(expected[:10])) >= 9


class LexicalServerContract(LexicalIndexContract):
    """Contract of `LexicalServerIndex`: a subclass sets `url`, and pytest runs the rest.

    Attributes:
        url: the setting that chooses the engine and its server, without a password.
        secret: password or API key of the server.
        unreachable: the same engine at an address where none answers; empty skips that test.
    """

    url: ClassVar[str]
    secret: ClassVar[SecretStr | None] = None
    unreachable: ClassVar[str] = ""

    def open_index(self, collection: str, *, url: str = "") -> LexicalServerIndex:
        """Open an index, which need not exist on the server."""
        from loom_core.knowledge.indexes.engines.servers import open_lexical_index

        return open_lexical_index(url or self.url, secret=self.secret, collection=collection)

    def collection(self) -> AbstractContextManager[str]:
        """Name a new index, and delete it at the end."""
        return temporary_name(self.open_index)

    @contextmanager
    def empty_index(self) -> Generator[LexicalServerIndex]:
        """Make an index, and delete it at the end."""
        with self.collection() as name:
            index = self.open_index(name)
            index.create()
            yield index
            index.close()

    def test_indexes_know_nothing_of_each_other(self) -> None:
        with self.index_of("a", "b") as index, self.index_of("a b") as other:
            assert _keys(_find(index, ["b"], 5)) == {2}
            assert _keys(_find(other, ["b"], 5)) == {1}
            assert (index.count(), other.count()) == (2, 1)

    def test_a_reopened_index_is_the_same_until_it_is_created_again(self) -> None:
        with self.collection() as name:
            index = self.open_index(name)
            index.create()
            index.add([(1, "a"), (2, "b")])
            index.commit()
            index.close()
            index = self.open_index(name)
            assert index.count() == 2
            index.create()
            assert index.count() == 0
            index.drop()
            index.drop()
            index.close()

    def test_two_that_have_it_open_see_what_either_commits(self) -> None:
        with self.collection() as name:
            index, other = self.open_index(name), self.open_index(name)
            index.create()
            assert other.count() == 0
            index.add([(1, "a")])
            index.commit()
            assert _keys(_find(other, ["a"], 5)) == {1}
            other.delete([1])
            other.commit()
            assert _find(index, ["a"], 5) == []
            index.close()
            other.close()

    def test_an_index_that_is_gone_is_damage(self) -> None:
        with self.collection() as name:
            index = self.open_index(name)
            for _ in range(2):
                assert_raises(IndexDamagedError, lambda: _find(index, ["a"], 5))
                assert_raises(IndexDamagedError, lambda: _find(index, ["a"], 5, among=[1]))
                assert_raises(IndexDamagedError, lambda: _holders(index, ["a"]))
                assert_raises(IndexDamagedError, lambda: _beginning(index, "a", 5))
                assert_raises(IndexDamagedError, index.keys)
                assert_raises(IndexDamagedError, index.count)
                assert_raises(IndexDamagedError, lambda: _write(index, [(1, "a")]))
                index.create()
                _write(index, [(1, "a")])
                assert index.count() == 1
                index.drop()
            index.close()

    def test_a_server_that_is_away_is_no_damage(self) -> None:
        if not self.unreachable:
            return
        index = self.open_index("contract_nowhere", url=self.unreachable)
        error = assert_raises(StoreUnavailableError, index.count)
        assert error.advice, "An error says what to do next."
        assert_raises(StoreUnavailableError, lambda: _find(index, ["a"], 5))
        assert_raises(StoreUnavailableError, lambda: _write(index, [(1, "a")]))
        index.close()

    def test_questions_are_answered_while_passages_are_written(self) -> None:
        with self.index_of(*["a b"] * 200) as index:
            failures: list[BaseException] = []

            def ask() -> None:
                try:
                    for _ in range(20):
                        assert len(_find(index, ["b"], 3)) == 3
                except BaseException as error:  # noqa: BLE001 - asserted below, in the test's own thread
                    failures.append(error)

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            for start in range(201, 401, 50):
                _write(index, [(key, "b c") for key in range(start, start + 50)])
            for thread in threads:
                thread.join()
            assert failures == []
            assert index.count() == 400


def _find(
    index: LexicalSearch, tokens: Sequence[str], limit: int, *, among: Collection[int] | None = None
) -> list[tuple[int, float]]:
    [hits] = index.search([LexicalQuery(tokens, limit, among=among)])
    return hits


def _holders(index: LexicalSearch, tokens: Sequence[str]) -> list[int]:
    """Return the keys that hold all tokens, sorted."""
    [hits] = index.search([LexicalQuery(tokens, match="all")])
    assert all(score == 0 for _, score in hits)
    return sorted(key for key, _ in hits)


def _beginning(index: LexicalSearch, prefix: str, limit: int | None = None) -> list[int]:
    """Return keys that hold a token with a prefix, sorted."""
    [hits] = index.search([LexicalQuery([prefix], limit, "prefix")])
    assert all(score == 0 for _, score in hits)
    return sorted(key for key, _ in hits)


def _keys(hits: Sequence[tuple[int, float]]) -> set[int]:
    return {key for key, _ in hits}


def _write(index: LexicalIndex, documents: Sequence[tuple[int, str]]) -> None:
    index.add(documents)
    index.commit()


@contextmanager
def _exact_index(texts: Sequence[str]) -> Generator[LexicalIndex]:
    """Open an index that scores by the formula, with exact lengths."""
    from loom_core.knowledge.indexes.engines.memory_lexical import MemoryLexicalIndex

    index = MemoryLexicalIndex()
    _write(index, list(enumerate(texts, start=1)))
    yield index
    index.close()


def _assert_proportional(
    hits: Sequence[tuple[int, float]], expected: Sequence[tuple[int, float]], tolerance: float
) -> None:
    """Assert equal scores but for one factor: some engines leave out k1 + 1."""
    scores, exact = dict(hits), dict(expected)
    assert scores.keys() == exact.keys()
    factor = sum(exact.values()) / sum(scores.values())
    assert all(isclose(factor * scores[key], exact[key], rel_tol=tolerance) for key in exact)
