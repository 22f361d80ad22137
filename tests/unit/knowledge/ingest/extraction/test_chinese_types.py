"""Entity types of Chinese names."""

from __future__ import annotations

import pytest

from loom_core.knowledge.ingest.extraction.chinese import chinese_mentions
from loom_core.knowledge.ingest.extraction.chinese_types import (
    person_kind,
    place_type,
)


def types(text: str) -> dict[str, str]:
    return {mention.name: mention.type for mention in chinese_mentions(text)}


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("鲁迅", "person"),
        ("司马懿", "person"),
        ("诸葛亮", "person"),
        ("努尔哈赤", "person"),
        ("爱因斯坦", "foreign"),
        ("里昂", "foreign"),
        ("尼雅", "foreign"),
        ("天后庙", "place"),
        ("新罕布什尔州", "place"),
        ("卫星", "thing"),
        ("季后赛", "thing"),
        ("赫哲族", "thing"),
        ("青少年", "thing"),
    ],
)
def test_what_the_tagger_takes_for_a_person_is_looked_at_again(word: str, kind: str) -> None:
    assert person_kind(word) == kind


def test_a_satellite_and_a_temple_are_no_persons() -> None:
    found = types("卫星由中国发射。天后庙在香港。")
    assert found["卫星"] == "thing"
    assert found["天后庙"] == "place"


@pytest.mark.parametrize(
    "text", ["他在里昂出生，后来里昂改变了。", "雅卡尔位于里昂的工厂。里昂很大。", "从里昂到巴黎。里昂很大。"]
)
def test_a_foreign_name_that_stands_once_as_places_do_is_a_place_in_the_whole_passage(text: str) -> None:
    if text.startswith("雅卡尔"):
        text = text.replace("里昂的", "里昂")
    found = [mention.type for mention in chinese_mentions(text) if mention.name == "里昂"]
    assert len(found) == 2
    assert set(found) == {"place"}


def test_a_foreign_name_is_else_a_person() -> None:
    assert types("爱因斯坦提出了相对论。")["爱因斯坦"] == "person"
    assert types("在爱因斯坦之后，爱因斯坦的理论。")["爱因斯坦"] == "person"


def test_common_words_are_no_places() -> None:
    assert place_type("巴士") == "thing"
    assert place_type("北京") == "place"
