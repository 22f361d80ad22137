"""Contract of the vector indexes that plug into a knowledge base, as a pytest class for those who write one.

    from loom_core.testing import VectorIndexContract

    class TestMyIndex(VectorIndexContract):
        url = "my-engine+http://localhost:1234"

The engine is found by its registration (see `loom_core.plugins`). Each test makes collections of its own,
named `contract_…`, and deletes them. The package `numpy` is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from secrets import token_hex
from typing import TYPE_CHECKING, ClassVar, TypeVar

from loom_core.errors import IndexDamagedError, StoreUnavailableError
from loom_core.knowledge.interface import PassageVectors, VectorQuery

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray
    from pydantic import SecretStr

    from loom_core.knowledge.interface import LexicalServerIndex, RemoteGraphStore, VectorIndex

__all__ = ["VectorIndexContract", "assert_raises", "temporary_name"]

_Error = TypeVar("_Error", bound=Exception)

_DIMENSION = 32
_LANGUAGES = ("alphabetic", "han")
_CLOSE = 0.01
_LARGE_KEY = 2**62 + 1  # of the kind that a float cannot hold


class VectorIndexContract:
    """Contract of `VectorIndex`: a subclass sets `url`, and pytest runs the rest.

    Attributes:
        url: the setting that chooses the engine and its server, without a password.
        secret: password or API key of the server.
        unreachable: the same engine at an address where none answers; empty skips that test.
    """

    url: ClassVar[str]
    secret: ClassVar[SecretStr | None] = None
    unreachable: ClassVar[str] = ""

    def open_index(self, collection: str, *, dimension: int = _DIMENSION, url: str = "") -> VectorIndex:
        """Open an index over a collection, which need not exist."""
        from loom_core.knowledge.indexes.engines.servers import open_vector_index

        return open_vector_index(
            url or self.url, secret=self.secret, collection=collection, dimension=dimension
        )

    def collection(self) -> AbstractContextManager[str]:
        """Name a new collection, and delete it at the end."""
        return temporary_name(self.open_index)

    @contextmanager
    def filled(self, count: int = 300) -> Generator[tuple[VectorIndex, PassageVectors]]:
        """Make a collection with passages 1 to `count`, ten to a document, every fifth in Chinese."""
        with self.collection() as name:
            index = self.open_index(name)
            index.create()
            passages = _passages(count)
            index.upsert(passages)
            index.build()
            yield index, passages
            index.close()

    def test_finds_the_nearest_with_their_cosine_best_first(self) -> None:
        with self.filled() as (index, passages):
            found = 0
            for row in range(0, 300, 10):
                [hits] = index.search([VectorQuery(passages.vectors[row], 10)])
                expected = _nearest(passages, passages.vectors[row], 10)
                assert len(hits) == 10
                assert hits[0][0] == passages.keys[row]
                assert hits == sorted(hits, key=lambda hit: -hit[1])
                exact = dict(_nearest(passages, passages.vectors[row], 300))
                assert all(abs(exact[key] - cosine) < _CLOSE for key, cosine in hits)
                found += len({key for key, _ in hits} & {key for key, _ in expected})
            assert found >= 0.9 * 300

    def test_finds_no_more_than_there_are(self) -> None:
        with self.filled(20) as (index, passages):
            [hits] = index.search([VectorQuery(passages.vectors[0], 50)])
            assert sorted(key for key, _ in hits) == list(range(1, 21))
            assert index.search([VectorQuery(passages.vectors[0], 0)]) == [[]]
            assert index.search([]) == []

    def test_finds_before_it_is_built(self) -> None:
        with self.collection() as name:
            index = self.open_index(name)
            index.create()
            passages = _passages(50)
            assert index.search([VectorQuery(passages.vectors[3], 5)]) == [[]]
            index.upsert(passages)
            [hits] = index.search([VectorQuery(passages.vectors[3], 5)])
            assert hits[0][0] == 4
            assert len(hits) == 5
            index.build()
            index.build()  # again, after more passages, say
            assert index.search([VectorQuery(passages.vectors[3], 5)])[0][0][0] == 4
            index.close()

    def test_a_language_restricts(self) -> None:
        with self.filled() as (index, passages):
            query = passages.vectors[0]
            [chinese, other, none] = index.search(
                [VectorQuery(query, 60, language=language) for language in (*_LANGUAGES[::-1], "cyrillic")]
            )
            assert {key for key, _ in chinese} == set(range(5, 301, 5))
            assert len(other) == 60
            assert not {key for key, _ in other} & set(range(5, 301, 5))
            assert none == []

    def test_documents_restrict_and_the_limit_is_reached(self) -> None:
        with self.filled(1000) as (index, passages):
            far = -passages.vectors[0]
            [two, both, nothing, many] = index.search(
                [
                    VectorQuery(far, 20, documents={1, 7}),
                    VectorQuery(far, 4, language="han", documents=[1, 7]),
                    VectorQuery(far, 20, documents=()),
                    VectorQuery(far, 10, documents=range(1, 20_000)),
                ]
            )
            assert {key for key, _ in two} == {*range(1, 11), *range(61, 71)}
            assert {key for key, _ in both} == {5, 10, 65, 70}
            assert nothing == []
            assert len(many) == 10

    def test_several_queries_are_answered_as_one_by_one(self) -> None:
        with self.filled(100) as (index, passages):
            queries = [VectorQuery(passages.vectors[row], 5) for row in (0, 50, 99)]
            assert [[key for key, _ in hits] for hits in index.search(queries)] == [
                [key for key, _ in index.search([query])[0]] for query in queries
            ]

    def test_an_existing_key_is_overwritten_with_its_fields(self) -> None:
        with self.filled(30) as (index, passages):
            moved = PassageVectors([7], -passages.vectors[:1], ["han"], [99])
            index.upsert(moved)
            index.upsert(moved)
            assert index.count() == 30
            [hits] = index.search([VectorQuery(-passages.vectors[0], 1, language="han", documents=[99])])
            assert [key for key, _ in hits] == [7]
            [left] = index.search([VectorQuery(passages.vectors[6], 30, documents=[1])])
            assert {key for key, _ in left} == {*range(1, 11)} - {7}
            _assert_equal(index.vectors([7]), {7: -passages.vectors[0]})

    def test_deleted_keys_are_gone_and_unknown_ones_are_ignored(self) -> None:
        with self.filled(30) as (index, passages):
            index.delete([1, 2, 77, 1])
            index.delete([])
            assert sorted(index.keys()) == list(range(3, 31))
            assert index.count() == 28
            [hits] = index.search([VectorQuery(passages.vectors[0], 30)])
            assert {key for key, _ in hits} == set(range(3, 31))
            index.delete(range(1, 31))
            assert index.count() == 0
            assert index.keys() == []
            assert index.search([VectorQuery(passages.vectors[0], 5)]) == [[]]

    def test_vectors_are_returned_as_they_were_stored(self) -> None:
        with self.filled(30) as (index, passages):
            wanted = {key: passages.vectors[key - 1] for key in (3, 17, 30)}
            _assert_equal(index.vectors([17, 3, 30, 44]), wanted)
            assert index.vectors([]) == {}

    def test_takes_thousands_at_once_and_large_keys(self) -> None:
        with self.collection() as name:
            index = self.open_index(name)
            index.create()
            passages = _passages(3000)
            keys = [*passages.keys[:-1], _LARGE_KEY]
            index.upsert(PassageVectors(keys, passages.vectors, passages.languages, passages.documents))
            index.build()
            assert index.count() == 3000
            assert sorted(index.keys()) == keys
            [hits] = index.search([VectorQuery(passages.vectors[-1], 1)])
            assert hits[0][0] == _LARGE_KEY
            assert len(index.vectors(keys)) == 3000
            index.delete(keys[:2500])
            assert index.count() == 500
            index.close()

    def test_collections_know_nothing_of_each_other(self) -> None:
        with self.filled(30) as (index, passages):
            with self.collection() as other:
                empty = self.open_index(other)
                empty.create()
                assert empty.count() == 0
                empty.close()
            assert index.count() == 30
            assert index.search([VectorQuery(passages.vectors[0], 1)])[0][0][0] == 1

    def test_a_reopened_collection_is_the_same_until_it_is_created_again(self) -> None:
        with self.collection() as name:
            index = self.open_index(name)
            index.create()
            index.upsert(_passages(20))
            index.close()
            index = self.open_index(name)
            assert index.count() == 20
            index.create()
            assert index.count() == 0
            index.drop()
            index.drop()
            index.close()

    def test_a_collection_that_is_gone_is_damage(self) -> None:
        with self.filled(10) as (index, passages):
            index.drop()
            query = VectorQuery(passages.vectors[0], 5)
            for act in (
                lambda: index.search([query]),
                index.count,
                index.keys,
                lambda: index.upsert(passages),
                lambda: index.vectors([1]),
            ):
                assert_raises(IndexDamagedError, act)

    def test_another_dimension_is_damage(self) -> None:
        with self.collection() as name:
            index = self.open_index(name)
            index.create()
            index.upsert(_passages(10))
            index.close()
            wider = self.open_index(name, dimension=2 * _DIMENSION)
            query = VectorQuery(_unit(1, 2 * _DIMENSION)[0], 5)
            assert_raises(IndexDamagedError, lambda: wider.search([query]))
            wider.close()

    def test_a_server_that_is_away_is_no_damage(self) -> None:
        if not self.unreachable:
            return
        index = self.open_index("contract_nowhere", url=self.unreachable)
        error = assert_raises(StoreUnavailableError, index.count)
        assert error.advice, "An error says what to do next."
        assert_raises(StoreUnavailableError, lambda: index.search([VectorQuery(_unit(1)[0], 5)]))
        index.close()

    def test_questions_are_answered_while_passages_are_written(self) -> None:
        with self.filled(200) as (index, passages):
            failures: list[BaseException] = []

            def ask() -> None:
                try:
                    for row in range(20):
                        [hits] = index.search([VectorQuery(passages.vectors[row], 3)])
                        assert len(hits) == 3
                except BaseException as error:  # noqa: BLE001 - asserted below, in the test's own thread
                    failures.append(error)

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            more = _passages(400)
            for start in range(200, 400, 50):
                index.upsert(
                    PassageVectors(
                        more.keys[start : start + 50],
                        more.vectors[start : start + 50],
                        more.languages[start : start + 50],
                        more.documents[start : start + 50],
                    )
                )
            for thread in threads:
                thread.join()
            assert failures == []
            assert index.count() == 400


def _unit(count: int, dimension: int = _DIMENSION) -> NDArray[np.float32]:
    """Return unit vectors around a few centres, the same at every call."""
    import numpy as np

    random = np.random.default_rng(7)
    centres = random.standard_normal((8, dimension))
    vectors = centres[np.arange(count) % 8] + random.standard_normal((count, dimension))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def _passages(count: int) -> PassageVectors:
    return PassageVectors(
        keys=range(1, count + 1),
        vectors=_unit(count),
        languages=[_LANGUAGES[key % 5 == 0] for key in range(1, count + 1)],
        documents=[1 + row // 10 for row in range(count)],
    )


def _nearest(passages: PassageVectors, vector: NDArray[np.float32], limit: int) -> list[tuple[int, float]]:
    cosines = (passages.vectors @ vector).tolist()
    return sorted(zip(passages.keys, cosines, strict=True), key=lambda hit: -hit[1])[:limit]


def _assert_equal(found: dict[int, NDArray[np.float32]], wanted: dict[int, NDArray[np.float32]]) -> None:
    import numpy as np

    assert found.keys() == wanted.keys()
    assert all(np.allclose(found[key], wanted[key], atol=_CLOSE / 10) for key in wanted)


@contextmanager
def temporary_name(
    open_: Callable[[str], VectorIndex | LexicalServerIndex | RemoteGraphStore],
) -> Generator[str]:
    """Name something new of a server, and delete it at the end."""
    name = f"contract_{token_hex(8)}"
    try:
        yield name
    finally:
        made = open_(name)
        made.drop()
        made.close()


def assert_raises(kind: type[_Error], act: Callable[[], object]) -> _Error:
    """Assert that an act raises an error of a kind, and return it."""
    try:
        act()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised.")
