from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.sources.federation.cross_source_links import names_in, title_key


def item(text: str, title: object = "") -> KnowledgeItem:
    return KnowledgeItem("1", text, "note:1", 0.0, {"title": title})


def test_names_are_given_once_in_the_order_of_the_text():
    found = names_in(item("It was built by Mara Lindqvist for Tom Hale; Mara Lindqvist sold it. NATO paid."))
    assert [name.name for name in found] == ["Mara Lindqvist", "Tom Hale", "NATO"]
    assert found[0].key == "mara lindqvist"


def test_works_and_people_in_chinese_are_names():
    assert {"静港", "林若曦"} <= {name.name for name in names_in(item("《静港》由林若曦执导。"))}


def test_a_word_before_a_chinese_name_is_no_part_of_it():
    assert [name.name for name in names_in(item("此片由林若曦执导。"))] == ["林若曦"]


def test_what_the_title_says_is_no_name_to_follow():
    text = "It is by Mara Lindqvist, who shot The Silent Harbour in Visby."
    assert [name.name for name in names_in(item(text, "The Silent Harbour (film)"))] == [
        "Mara Lindqvist",
        "Visby",
    ]


def test_a_title_inside_another_word_is_another_name():
    assert [name.name for name in names_in(item("It was seen by Martha Hale.", "Art"))] == ["Martha Hale"]
    assert names_in(item("此片由林若曦执导。", "林若曦传")) == []


def test_words_and_dates_are_no_names():
    assert names_in(item("It was so. Others came on 3 May 1921, as they had said.")) == []
    assert names_in(item("后来他们在2021年5月3日又来了。")) == []


def test_a_passage_without_a_usable_title_has_no_key():
    assert title_key(item("x", "The Rank Organisation (company)")) == "rank organisation"
    assert [title_key(item("x", title)) for title in ("", None, 7)] == ["", "", ""]
    assert title_key(KnowledgeItem("1", "x", "note:1")) == ""


@given(st.text(max_size=300))
def test_any_text_has_at_most_24_names_and_each_is_in_it(text):
    found = names_in(item(text))
    assert len(found) <= 24
    assert all(name.name in " ".join(text.split()) and name.confidence >= 0.4 for name in found)
