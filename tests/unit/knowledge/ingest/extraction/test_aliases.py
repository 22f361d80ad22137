"""Aliases: statements of passages about different names for the same thing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.ingest.extraction.aliases import aliases_in
from loom_core.knowledge.model import Mention


def said(text: str, *mentions: str, title: str = "") -> list[tuple[str, str, str]]:
    found = [Mention(name, text.index(name), text.index(name) + len(name)) for name in mentions]
    return [
        (alias.name, alias.other, alias.kind)
        for alias in aliases_in(text, found, title=title)
        if alias.confidence > 0.8
    ]


@pytest.mark.parametrize(
    ("text", "long", "short"),
    [
        ("The World Health Organization (WHO) met.", "World Health Organization", "WHO"),
        ("WHO (World Health Organization) met.", "World Health Organization", "WHO"),
        ("Cells make heat shock proteins (HSPs).", "heat shock proteins", "HSPs"),
        ("the United States of America (USA)", "United States of America", "USA"),
        ("At the Department of Motor Vehicles (DMV, 1915)", "Department of Motor Vehicles", "DMV"),
        (
            "International Business Machines Corporation (IBM)",
            "International Business Machines Corporation",
            "IBM",
        ),
        ("研究了 Natural Language Processing（NLP）的方法", "Natural Language Processing", "NLP"),
        ("American Telephone & Telegraph Company (AT&T)", "American Telephone & Telegraph Company", "AT&T"),
    ],
)
def test_an_acronym_stands_for_the_words_with_its_initials(text: str, long: str, short: str) -> None:
    assert said(text) == [(long, short, "acronym")]


@pytest.mark.parametrize(
    "text",
    [
        "The president (CEO) left.",
        "He moved to a big company (IBM) in Armonk.",
        "See the appendix (TABLE II) for more.",
        "World\nHealth Organization",
        "An unfinished World Health Organization (WHO",
        "WHO (founded in 1948) met.",
    ],
)
def test_letters_that_are_not_the_initials_say_nothing(text: str) -> None:
    assert said(text) == []


@pytest.mark.parametrize(
    ("text", "name", "other"),
    [
        ("Samuel Clemens, also known as Mark Twain, wrote it.", "Samuel Clemens", "Mark Twain"),
        ("The film Big Fish (otherwise called The Pond) ran.", "Big Fish", "The Pond"),
        ("Marie Curie, better known as Madame Curie, won.", "Marie Curie", "Madame Curie"),
        ("Robert Zimmerman a.k.a. Bob Dylan sang.", "Robert Zimmerman", "Bob Dylan"),
    ],
)
def test_english_words_say_that_names_are_the_same(text: str, name: str, other: str) -> None:
    assert (name, other, "also_called") in said(text)


@pytest.mark.parametrize(
    ("text", "name", "other"),
    [
        ("北京大学，简称北大，是中国的大学。", "北京大学", "北大"),
        ("世界卫生组织（简称世卫组织）是机构。", "世界卫生组织", "世卫组织"),
        ("《红楼梦》（又名《石头记》）是小说。", "红楼梦", "石头记"),
        ("鲁迅，原名周樟寿，是作家。", "鲁迅", "周樟寿"),
        ("國立臺灣大學（簡稱臺大）位於臺北。", "國立臺灣大學", "臺大"),
        ("世界卫生组织（英语：World Health Organization，缩写：WHO）", "世界卫生组织", "WHO"),
    ],
)
def test_chinese_words_say_that_names_are_the_same(text: str, name: str, other: str) -> None:
    assert (name, other, "also_called") in said(text)


def test_a_known_name_or_the_title_tells_where_a_chinese_name_begins() -> None:
    text = "位于日内瓦的世界卫生组织（简称世卫组织）是机构。"
    expected = [("世界卫生组织", "世卫组织", "also_called")]
    assert said(text) == []
    assert said(text, "世界卫生组织") == expected
    assert said(text, title="世界卫生组织") == expected


def test_a_name_inside_a_longer_word_is_not_taken_for_the_whole() -> None:
    assert said("我们参观了上海交通大学附属中学本部校区（简称交大附中）。", "本部校区") == []


def test_a_foreign_name_in_parentheses_is_only_a_guess() -> None:
    (alias,) = aliases_in("世界卫生组织（World Health Organization）是机构。", [])
    assert (alias.kind, alias.other) == ("translation", "World Health Organization")
    assert alias.confidence < 0.8


@given(st.text(alphabet=st.sampled_from("ABCabc （）()，,《》简称又名英语：: .\n北京大学WHO&-")))
def test_whatever_the_text_offsets_are_inside_and_names_stand_there(text: str) -> None:
    for alias in aliases_in(text, [], title="北京大学"):
        assert 0 <= alias.start < alias.end <= len(text)
        stretch = text[alias.start : alias.end]
        assert alias.name in stretch
        assert alias.other in stretch
        assert alias.name != alias.other
