"""Vectors by language give the same answers as one plain table, whatever came and went before."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import InvalidInputError
from loom_core.knowledge.indexes.language_vectors import LanguageVectors

DIMENSION = 3
LANGUAGES = ("alphabetic", "zh", "ja")
QUESTION = np.float32([0.6, 0.0, 0.8])


def unit(*values: float) -> np.ndarray:
    vector = np.array(values, dtype=np.float32)
    return vector / np.linalg.norm(vector)


units = st.tuples(*[st.integers(-4, 4)] * DIMENSION).filter(any).map(lambda values: unit(*values))
keys = st.integers(1, 12)
upserts = st.lists(st.tuples(keys, units, st.sampled_from(LANGUAGES)), max_size=8)
deletes = st.lists(st.integers(1, 15), max_size=6)
steps = st.lists(st.one_of(upserts, deletes), max_size=12)


def filled(*rows: tuple[int, np.ndarray, str]) -> LanguageVectors:
    index = LanguageVectors(DIMENSION)
    store(index, list(rows))
    return index


def store(index: LanguageVectors, rows: list[tuple[int, np.ndarray, str]]) -> None:
    matrix = np.array([vector for _, vector, _ in rows], dtype=np.float32).reshape(-1, DIMENSION)
    index.upsert([key for key, _, _ in rows], matrix, {key: language for key, _, language in rows})


def ranked(model: dict[int, tuple[np.ndarray, str]], chosen: set[int]) -> list[tuple[int, float]]:
    hits = [(key, float(vector @ QUESTION)) for key, (vector, _) in model.items() if key in chosen]
    return sorted(hits, key=lambda hit: (-hit[1], hit[0]))


def assert_same(found: list[tuple[int, float]], expected: list[tuple[int, float]]) -> None:
    """The same cosines in the same order; keys of equal cosine may change places by rounding."""
    assert [cosine for _, cosine in found] == pytest.approx([cosine for _, cosine in expected], abs=1e-6)
    of = dict(expected)
    assert all(of[key] == pytest.approx(cosine, abs=1e-6) for key, cosine in found if key in of)


@given(steps=steps, among=st.none() | st.frozensets(st.integers(1, 15)), limit=st.integers(1, 15))
def test_after_any_changes_it_is_as_a_plain_table(steps, among, limit):
    index = LanguageVectors(DIMENSION)
    model: dict[int, tuple[np.ndarray, str]] = {}
    for step in steps:
        if step and isinstance(step[0], tuple):
            store(index, step)
            languages = {key: language for key, _, language in step}
            model |= {key: (vector, languages[key]) for key, vector, _ in step}
        else:
            index.delete(step)
            model = {key: row for key, row in model.items() if key not in step}
    allowed = set(model) if among is None else set(model) & among

    assert index.count() == len(model)
    assert index.languages(range(16)) == {key: language for key, (_, language) in model.items()}
    assert index.scores(QUESTION, range(1, 16)) == pytest.approx(dict(ranked(model, set(model))), abs=1e-6)
    rows = index.vectors(list(range(16)))
    for key in range(16):
        np.testing.assert_array_equal(rows[key], model[key][0] if key in model else np.zeros(DIMENSION))

    found = index.search(QUESTION, limit, among=among)
    assert {key for key, _ in found} <= allowed
    assert_same(found, ranked(model, allowed)[:limit])

    groups = {group.language: group for group in index.by_language(QUESTION, limit, among=among)}
    assert groups.keys() == {language for key, (_, language) in model.items() if key in allowed}
    for language, group in groups.items():
        whole = {key for key, row in model.items() if row[1] == language}
        assert group.size == len(whole)
        mean = np.mean([model[key][0] for key in whole], axis=0)
        assert group.mean == pytest.approx(float(mean @ QUESTION), abs=1e-5)
        assert {key for key, _ in group.hits} <= whole & allowed
        assert_same(group.hits, ranked(model, whole & allowed)[:limit])
        assert index.by_language(QUESTION, limit, among=among, only={language, "absent"}) == [group]
    assert index.by_language(QUESTION, limit, among=among, only=()) == []


def test_of_a_key_that_is_given_twice_the_last_row_counts_once():
    index = LanguageVectors(DIMENSION)
    index.upsert([1, 1], np.stack([unit(1, 0, 0), unit(0, 0, 1)]), {1: "zh"})
    (group,) = index.by_language(QUESTION, 5)
    assert (group.size, group.mean) == (1, pytest.approx(0.8))
    assert group.hits == [(1, pytest.approx(0.8))]


def test_a_chunk_without_a_language_is_forgotten():
    index = filled((1, unit(1, 0, 0), "zh"), (2, unit(0, 1, 0), "zh"))
    index.upsert([1], unit(0, 0, 1)[None], {})
    assert index.languages([1, 2]) == {2: "zh"}
    assert index.count() == 1


def test_a_chunk_may_change_its_language():
    index = filled((1, unit(1, 0, 0), "zh"), (2, unit(0, 1, 0), "alphabetic"))
    store(index, [(1, unit(1, 0, 0), "alphabetic")])
    assert [(g.language, g.size) for g in index.by_language(QUESTION, 5)] == [("alphabetic", 2)]
    assert index.language_groups() == {"alphabetic"}


def test_one_far_passage_of_a_language_is_among_its_neighbours():
    crowd = [(key, unit(0.6, 0.01 * key, 0.8), "zh") for key in range(1, 40)]
    index = filled(*crowd, (99, unit(-0.6, 0, -0.8), "alphabetic"))
    assert 99 not in [key for key, _ in index.search(QUESTION, 5)]
    groups = {group.language: group.hits for group in index.by_language(QUESTION, 5)}
    assert groups["alphabetic"] == [(99, pytest.approx(-1))]
    assert len(groups["zh"]) == 5


def test_without_vectors_there_is_nothing():
    index = LanguageVectors(DIMENSION)
    index.delete([1])
    assert (index.count(), index.search(QUESTION, 5), index.by_language(QUESTION, 5)) == (0, [], [])
    assert index.language_groups() == frozenset()
    assert index.scores(QUESTION, [1]) == {}
    assert index.vectors([]).shape == (0, DIMENSION)


def test_a_row_that_does_not_fit_is_refused():
    with pytest.raises(InvalidInputError, match="shape"):
        LanguageVectors(DIMENSION).upsert([1], np.ones((1, 2), dtype=np.float32), {1: "zh"})


@pytest.mark.slow
def test_it_is_searched_while_languages_come_and_go():
    index = LanguageVectors(DIMENSION)
    failures: list[Exception] = []
    done = threading.Event()

    def search() -> None:
        while not done.is_set():
            try:
                for group in index.by_language(QUESTION, 3):
                    assert group.size > 0
                index.search(QUESTION, 3)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a failure
                failures.append(error)
                return

    readers = [threading.Thread(target=search) for _ in range(2)]
    for reader in readers:
        reader.start()
    for round_ in range(150):
        store(index, [(key, unit(key, 1, 1), f"l{round_ + key % 2}") for key in range(1, 5)])
        index.delete([2, 3])
    done.set()
    for reader in readers:
        reader.join()
    assert failures == []
