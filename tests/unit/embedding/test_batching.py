from __future__ import annotations

from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from loom_core.embedding.remote_models.base import Piece, batches, halves, windows
from loom_core.tokens import estimate_tokens

texts = st.text(st.sampled_from("ab 厦门市\n\ud800é"), max_size=200)
sizes = st.integers(min_value=1, max_value=50)


@given(text=texts, max_tokens=sizes)
def test_windows_are_the_whole_text_in_order_and_none_is_too_long(text: str, max_tokens: int):
    pieces = windows(7, text, max_tokens=max_tokens)
    assert "".join(piece.text for piece in pieces) == text
    assert all(piece.row == 7 and 1 <= piece.tokens <= max_tokens for piece in pieces)
    assert all(piece.tokens == estimate_tokens(piece.text) for piece in pieces)


@given(lengths=st.lists(sizes, max_size=60), max_texts=sizes, max_tokens=sizes)
def test_batches_hold_every_piece_once_in_order_within_the_limits(
    lengths: list[int], max_texts: int, max_tokens: int
):
    pieces = [Piece(row, "x", tokens) for row, tokens in enumerate(lengths)]
    made = list(batches(pieces, max_texts=max_texts, max_tokens=max_tokens))
    assert list(chain.from_iterable(made)) == pieces
    for batch in made:
        assert 1 <= len(batch) <= max_texts
        assert len(batch) == 1 or sum(piece.tokens for piece in batch) <= max_tokens


@given(lengths=st.lists(sizes, min_size=2, max_size=60), max_texts=sizes, max_tokens=sizes)
def test_a_batch_ends_only_where_the_next_piece_does_not_fit(
    lengths: list[int], max_texts: int, max_tokens: int
):
    pieces = [Piece(row, "x", tokens) for row, tokens in enumerate(lengths)]
    made = list(batches(pieces, max_texts=max_texts, max_tokens=max_tokens))
    for batch, following in pairwise(made):
        longer = sum(piece.tokens for piece in batch) + following[0].tokens
        assert len(batch) == max_texts or longer > max_tokens


def test_a_window_ends_between_words_where_one_is_near():
    text = "word " * 100
    assert [piece.text[-1] for piece in windows(0, text, max_tokens=30)] == [" "] * 5
    assert windows(0, "x" * 100, max_tokens=10)[0].text == "x" * 40
    assert windows(0, "厦" * 100, max_tokens=10)[0].text == "厦" * 15


def test_a_text_that_fits_is_one_window_and_an_empty_one_is_none():
    assert windows(3, "short", max_tokens=10) == [Piece(3, "short", 2)]
    assert windows(3, "", max_tokens=10) == []


def test_halves_are_the_piece():
    assert [half.text for half in halves(Piece(1, "厦门是城市", 4))] == ["厦门", "是城市"]
