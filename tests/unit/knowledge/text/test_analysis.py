"""Words and names: what the indexes are made of, in English, Chinese and everything else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loom_core.knowledge.text.analysis import analyse, analyse_passage, is_stop_word, lookup_tokens, words
from loom_core.knowledge.text.surface_forms import surface_keys

# Everything that Unicode has, halves of surrogate pairs included, and often what this module looks at.
texts = st.text(st.characters(exclude_categories=()), max_size=80) | st.text(
    st.sampled_from("abAB12 _-.·'’，。(（)）的人大北京ｱﾞ한ก½İßŉ①ﬁthe \n"), max_size=40
)


def test_a_stop_word_in_capitals_is_a_name():
    assert analyse("What does WHO recommend?") == ["who", "recommend"]
    assert analyse("WHO's seat, 世卫组织（WHO）")[:2] == ["who", "seat"]
    assert analyse("世卫组织（WHO）").count("who") == 1
    assert analyse("Who's who, and I") == []


def test_english_words_are_stemmed_and_stop_words_dropped():
    assert analyse("The cats were running to the stations") == ["cat", "run", "station"]


def test_possessives_do_not_count():
    assert analyse("Mercury's orbit, the planets’ moons") == ["mercuri", "orbit", "planet", "moon"]


@pytest.mark.parametrize(
    ("identifier", "tokens"),
    [
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("snake_case_name", ["snake_case_nam", "snake", "case", "name"]),
        ("userById42", ["userbyid42", "user", "id", "42"]),
        ("utf-8", ["utf-8", "utf"]),
        ("module.sub.Class", ["module.sub.class", "modul", "sub", "class"]),
    ],
)
def test_an_identifier_gives_itself_and_its_parts(identifier: str, tokens: list[str]):
    assert analyse(identifier) == tokens


def test_chinese_gives_words_the_words_inside_them_and_pairs_of_characters():
    found = analyse("中华人民共和国的首都")
    assert {"中华人民共和国", "中华", "人民", "共和国", "首都", "华人"} <= set(found)
    assert "的" not in found


def test_a_name_the_dictionary_does_not_know_is_found_by_its_pairs():
    assert {"魑魅", "魅魍", "魍魉"} <= set(analyse("他叫魑魅魍魉先生"))


def test_chinese_and_english_stand_side_by_side():
    found = analyse("使用Python3编写的知识图谱")
    assert {"使用", "编写", "知识", "图谱"} <= set(found)
    assert any("python" in token for token in found)


def test_full_width_and_half_width_text_are_the_same():
    assert analyse("ＡＢＣ １２３ ｶﾀｶﾅ") == analyse("ABC 123 カタカナ")


@given(texts)
def test_tokens_of_any_text_hold_no_white_space_and_are_not_empty(text: str):
    for token in [*analyse(text), *lookup_tokens(text), *words(text)]:
        assert token
        assert not any(char.isspace() for char in token)


def test_words_are_given_as_they_are_written():
    assert words("Le Café, don’t 北京大学!") == ["Le", "Café", "don’t", "北京大学"]


@given(texts, texts)
@example("大学，北京·人 2 的", "北京")
@example("國立臺灣大學。北京，大", "臺灣")
@example("ﾞ", "ﾞ")
def test_a_passage_is_analysed_with_what_names_are_looked_up_by(text: str, title: str):
    joined = analyse_passage(text, above=title + "\n")
    tokens = joined.split()
    assert " ".join(tokens) == joined
    whole = f"{title}\n{text}"
    plain = analyse(whole)
    assert tokens[: len(plain)] == plain
    others = tokens[len(plain) :]
    assert len(set(others)) == len(others)
    assert set(tokens) == {*plain, *lookup_tokens(whole)}


@pytest.mark.parametrize(
    ("piece", "tokens", "keys"),
    [
        ("1952.", "1952", "1952"),
        ("(Running,", "run", "running"),
        ("Calcium-dependent", "calcium-depend calcium depend", "calcium dependent"),
        ("of-the-art", "of-the-art art", "of the art"),
        ("E-cadherins", "e-cadherin cadherin e", "e cadherins"),
        ("E－cadherins", "e-cadherin cadherin e", "e cadherins"),
        ("TLR4-Cerulean", "tlr4-cerulean tlr cerulean tlr4", "tlr4 cerulean"),
        ("don't", "", "don't"),
    ],
)
def test_every_form_of_word_has_its_tokens_and_keys(piece: str, tokens: str, keys: str):
    assert analyse_passage(piece) == tokens
    assert " ".join(surface_keys(piece)) == keys


@given(texts, texts, texts)
@example("", "McDonald-Smith", "")
@example("张", "列奥纳多·达·芬奇", "三")
def test_what_a_name_is_looked_up_by_is_always_among_what_its_passage_is_looked_up_by(
    before: str, name: str, after: str
):
    assert set(lookup_tokens(name)) <= set(lookup_tokens(f"{before} {name} {after}"))


def test_stop_words_of_both_languages_are_known():
    assert is_stop_word("the")
    assert is_stop_word("的")
    assert not is_stop_word("graph")


def test_many_threads_may_analyse_at_once():
    text = "Running stations of 中华人民共和国 " * 20
    with ThreadPoolExecutor(8) as threads:
        assert len({tuple(tokens) for tokens in threads.map(analyse, [text] * 64)}) == 1
