"""The tokens by which names are matched, in English, Chinese and everything else."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loom_core.knowledge.text.scripts import normalise
from loom_core.knowledge.text.surface_forms import name_key, surface_keys, surface_spans, surface_tokens

# Everything that Unicode has, halves of surrogate pairs included, and often what this module looks at.
texts = st.text(st.characters(exclude_categories=()), max_size=80) | st.text(
    st.sampled_from("abAB12 _-.·'’，。(（)）的人大北京ｱﾞ한ก½İßŉ①ﬁthe \n"), max_size=40
)


@given(texts)
def test_keys_and_spans_are_those_of_the_surface_tokens(text: str):
    tokens = list(surface_tokens(text))
    assert surface_keys(text) == [token.key for token in tokens]
    assert surface_spans(text, []) == {}
    for numbers in (range(len(tokens)), range(len(tokens) // 2, -1, -2), range(0, len(tokens), 3)):
        spans = {
            number: (tokens[number].start, tokens[number].end) for number in numbers if number < len(tokens)
        }
        assert surface_spans(text, spans) == spans


@given(texts)
def test_surface_tokens_point_at_what_they_are_made_of(text: str):
    end = 0
    for token in surface_tokens(text):
        assert token.start >= end
        end = token.end
        assert token.start < end
        assert not any(char.isspace() for char in text[token.start : end])
        assert token.key
        if text[token.start : end].isascii():
            assert token.key in normalise(text[token.start : end])


def test_every_chinese_character_is_a_surface_token_of_its_own():
    assert [(t.key, t.start, t.end) for t in surface_tokens("去Zell’s 北京")] == [
        ("去", 0, 1),
        ("zell", 1, 7),
        ("北", 8, 9),
        ("京", 9, 10),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The Beatles", "beatles"),
        ("Mercury (planet)", "MERCURY"),
        ("水星（行星）", "水星"),
        ("ＨＴＴＰ　Server", "http server"),
        ("McDonald's", "mcdonald"),
        ("列奥纳多·达·芬奇", "列奥纳多达芬奇"),
        ("《红楼梦》", "红楼梦"),
        ("F-16", "F 16"),
        ("C语言", "c 语言"),
        ("臺灣大學", "台湾大学"),
        ("豈有此理", "岂有此理"),
        ("İstanbul", "istanbul"),
    ],
)
def test_two_spellings_of_a_name_have_one_key(one: str, other: str):
    assert name_key(one) == name_key(other)


@pytest.mark.parametrize(
    ("name", "key"), [("The", "the"), ("(x)", "x"), ("", ""), ("—!", ""), ("A", "a"), ("an An", "an")]
)
def test_names_with_little_in_them_keep_what_there_is(name: str, key: str):
    assert name_key(name) == key


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("--all", "--all"),
        ("--Force-With-Lease", "--force with lease"),
        ("-f", "-f"),
        ("-F", "-F"),
        (".git", ".git"),
        (".NET", ".net"),
        ("— all", "all"),
        ("--", ""),
        ("the --all option", "all option"),
    ],
)
def test_an_option_and_a_hidden_file_are_not_the_word_in_them(name: str, key: str):
    assert name_key(name) == key


@given(texts)
@example("½ Life")
@example("İstanbul")
@example("james's's")
@example("ŉ ß ﬁ")
def test_a_key_reads_as_the_tokens_it_was_made_of(name: str):
    key = name_key(name)
    if key.startswith(("-", ".")):  # marks that count only at the beginning of a name
        assert name_key(key) == key
        return
    assert name_key("Zq " + key) == ("zq " + key).strip()
