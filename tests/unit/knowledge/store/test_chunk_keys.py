"""A set of chunk keys: as a plain set, and as an array."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.store.chunk_keys import ChunkKeys

keys = st.lists(st.integers(-5, 30), max_size=20)


@given(keys, keys)
def test_it_is_as_a_plain_set_in_ascending_order(given_, asked):
    chunk_keys, plain = ChunkKeys(given_), set(given_)
    assert list(chunk_keys) == sorted(plain)
    assert len(chunk_keys) == len(plain)
    assert chunk_keys == plain
    assert [key in chunk_keys for key in asked] == [key in plain for key in asked]
    assert chunk_keys.places(asked) == [place for place, key in enumerate(asked) if key in plain]
    assert chunk_keys.array.tolist() == sorted(plain)
    assert chunk_keys.first(3) == sorted(plain)[:3]


def test_what_is_no_number_is_not_in_it():
    assert "1" not in ChunkKeys([1])


def test_many_keys_are_shown_by_the_first_of_them():
    assert repr(ChunkKeys([2, 1])) == "ChunkKeys([1, 2])"
    assert repr(ChunkKeys(range(100))) == "ChunkKeys([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]…)"
