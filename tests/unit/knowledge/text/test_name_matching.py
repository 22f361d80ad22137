"""Which names are looked for in passages, and where they are found."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loom_core.knowledge.text.analysis import lookup_tokens
from loom_core.knowledge.text.name_matching import NameIndex, inner_names, plain_latin
from loom_core.knowledge.text.passage_text import index_tokens
from loom_core.knowledge.text.surface_forms import name_key

texts = st.text(
    st.sampled_from("ab AB12_-.·'’，。!(北京大学人的李ｱ½İ\n") | st.characters(exclude_categories=("Cs",)),
    min_size=1,
    max_size=20,
)


def index_of(*names: str) -> NameIndex:
    index = NameIndex()
    for entity, name in enumerate(names, start=1):
        index.add(entity, name_key(name))
    return index


def found(index: NameIndex, text: str) -> list[tuple[int, str]]:
    return [(match.entity, text[match.start : match.end]) for match in index.find(text)]


def test_names_are_found_where_they_stand_however_they_are_spelled():
    index = index_of("New York City", "水星（行星）")
    text = "From NEW YORK  CITY's port one sees 水星, not just New York."
    assert found(index, text) == [(1, "NEW YORK  CITY's"), (2, "水星")]


def test_names_inside_longer_names_are_found_too():
    index = index_of("New York City", "York")
    assert found(index, "New York City") == [(1, "New York City"), (2, "York")]


@pytest.mark.parametrize(
    ("entity", "near"),
    [
        (1, ["New York City", "York", "York"]),  # the name inside it may have to move, from all of its places
        (2, ["New York City", "York", "York"]),
        (3, ["Paris"]),
        (4, []),
    ],
)
def test_only_names_near_those_of_an_entity_are_found_for_it(entity: int, near: list[str]):
    index, text = index_of("New York City", "York", "Paris", "Rome"), "From New York City to York and Paris."
    assert sorted(text[match.start : match.end] for match in index.find(text, near={entity})) == near


@pytest.mark.parametrize(
    ("name", "inner"),
    [
        ("New York City", {"new", "york", "city", "new york", "york city"}),
        ("北京大学", {"北", "京", "大", "学", "北京", "京大", "大学", "北京大", "京大学"}),
        ("York", set[str]()),
    ],
)
def test_a_name_holds_the_names_of_its_parts(name: str, inner: set[str]):
    assert inner_names(name_key(name)) == inner


def test_a_single_word_counts_only_where_it_is_marked_as_a_name():
    index = index_of("Example", "f16", "Café")
    assert found(index, "an example of an Example; the f16, the café") == [
        (1, "Example"),
        (2, "f16"),
        (3, "café"),
    ]


@pytest.mark.parametrize("name", ["The", "of the", "人", "2001", "12 of 30", "", "word " * 25])
def test_names_that_tell_nothing_are_not_looked_for(name: str):
    index = NameIndex()
    assert index.add(1, name_key(name)) is False
    assert len(index) == 0
    assert found(index, f"X {name} Y") == []


def test_a_chinese_name_is_found_across_its_own_punctuation():
    assert found(index_of("列奥纳多·达·芬奇"), "画家列奥纳多・达・芬奇的画") == [(1, "列奥纳多・达・芬奇")]
    assert found(index_of("列奥纳多·达·芬奇"), "画家列奥纳多达芬奇的画") == [(1, "列奥纳多达芬奇")]


def test_a_name_that_comes_again_belongs_to_the_newer_entity():
    index = index_of("York", "York")
    assert len(index) == 1
    assert found(index, "York") == [(2, "York")]


@given(texts, texts, texts)
@example("", "½ Life", "")
@example("", "U.S.", " Navy")
@example("北", "李·白诗", "集")
@example("0", "港A", ":")
def test_a_passage_in_which_a_name_is_found_is_also_found_by_looking_the_name_up(
    before: str, name: str, after: str
):
    id_ = name_key(name)
    text = before + name + after
    if found(index_of(name), text):
        assert lookup_tokens(id_)
        assert set(lookup_tokens(id_)) <= set(index_tokens("", (), text))


@given(texts, texts)
def test_matches_point_at_spellings_of_the_name(name: str, text: str):
    index = NameIndex()
    index.add(7, name_key(name))
    for match in index.find(text + name):
        assert match.entity == 7
        spelled = (text + name)[match.start : match.end]
        # The key is compared after another word, as a leading article is no part of a key by itself.
        assert name_key("Zq " + spelled) == name_key("Zq " + name_key(name))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("John's Book", "in JOHNS’ —  book"),
        ("Straße 5", "STRASSE  (5)"),
        ("İstanbul", "istanbul"),
        ("ＷＨＯ report", "the who-report"),
        ("½ Café", "a ½\ncafe\u0301"),
        ("水星 X", "水星x"),
    ],
)
def test_what_is_bare_of_a_name_is_in_that_of_a_text_that_holds_it(name: str, text: str):
    assert plain_latin(name_key(name)) in plain_latin(text)


def test_what_is_bare_of_a_name_is_not_in_a_text_with_its_words_elsewhere():
    assert plain_latin("new york city") not in plain_latin("A new city near York, seen from York City.")


@pytest.mark.slow
@settings(max_examples=300)
@given(texts, texts, texts)
@example("a", "½A", "B")
@example("A's", "", "'b")
@example("0", "0🄐B", "0")
def test_a_text_that_holds_a_name_holds_what_is_bare_of_it(before: str, name: str, after: str):
    id_ = name_key(name)
    index = NameIndex()
    if not index.add(1, id_):
        return
    for text in (f"{before} {name} {after}", before + name + after):
        if list(index.find(text)):
            assert plain_latin(id_) in plain_latin(text)
