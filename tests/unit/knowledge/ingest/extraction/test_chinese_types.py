"""Entity types of Chinese names."""

from __future__ import annotations

import pytest

from loom_core.knowledge.ingest.extraction import RuleExtractor
from loom_core.knowledge.ingest.extraction.chinese_types import (
    person_kind,
    place_type,
    type_of_chinese_noun,
    type_of_chinese_subject,
)
from loom_core.knowledge.model import Chunk


def types(text: str, *, title: str = "") -> dict[str, str]:
    chunk = Chunk(text=text, start=0, end=len(text), title=title, title_source="given", language="zh")
    return {mention.name: mention.type for mention in RuleExtractor().extract_one(chunk).mentions}


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
    chunk = Chunk(text=text, start=0, end=len(text), language="zh")
    found = [m.type for m in RuleExtractor().extract_one(chunk).mentions if m.name == "里昂"]
    assert len(found) == 2
    assert set(found) == {"place"}


def test_a_foreign_name_is_else_a_person() -> None:
    assert types("爱因斯坦提出了相对论。")["爱因斯坦"] == "person"
    assert types("在爱因斯坦之后，爱因斯坦的理论。")["爱因斯坦"] == "person"


def test_common_words_are_no_places() -> None:
    assert place_type("巴士") == "thing"
    assert place_type("北京") == "place"


@pytest.mark.parametrize(
    ("noun", "type_"),
    [
        ("现代作家", "person"),
        ("港口城市", "place"),
        ("长篇小说", "work"),
        ("股份有限公司", "organisation"),
        ("世界锦标赛", "event"),
        ("天然卫星", "thing"),
        ("方法", "thing"),
        ("", "thing"),
    ],
)
def test_a_noun_tells_a_type_by_its_end(noun: str, type_: str) -> None:
    assert type_of_chinese_noun(noun) == type_


@pytest.mark.parametrize(
    ("title", "text", "type_"),
    [
        ("王处直", "王处直（862年－922年），字允明，唐末军阀。", "person"),
        ("王处直", "王处直（862年－922年）。", "person"),
        ("班杰", "班杰（），本名王宏文，在台湾。", "person"),
        ("赵鹏", "赵鹏（），中国足球运动员，司职后卫。", "person"),
        ("艾蒂安·拉莫特", "他研究佛教。", "person"),
        ("津蓟铁路", "它联接天津市区和蓟州区。", "place"),
        ("锣鼓经", "锣鼓经（1939年－1945年），很短。", "thing"),
        ("康熙", "康熙字典收字很多。", "thing"),
        ("甲乙", "别的。", "thing"),
    ],
)
def test_the_subject_of_a_passage_is_told_by_its_name_or_what_stands_behind_it(
    title: str, text: str, type_: str
) -> None:
    assert type_of_chinese_subject(title, text) == type_


def test_a_title_that_the_tagger_does_not_know_gets_its_type_where_the_text_begins_with_it() -> None:
    assert types("王处直（），字允明，京兆万年人。", title="王处直")["王处直"] == "person"
    assert types("《红楼梦》是清代的长篇小说。", title="红楼梦（小说）")["红楼梦"] == "work"
