"""Span alignment: a model's claim is kept only where the passage says it, too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.ingest.extraction import RuleExtractor
from loom_core.knowledge.ingest.extraction.config import ExtractionConfig
from loom_core.knowledge.ingest.extraction.llm.reply import RawEntity, RawRelation
from loom_core.knowledge.ingest.extraction.llm.span_alignment import align_spans, merge_with_rules
from loom_core.knowledge.model import Chunk, Mention, Relation

TEXT = "Ada Lovelace met Charles Babbage. ADA LOVELACE’s notes describe the Analytical Engine."
CHINESE = "北京大学位於北京。魯迅曾在北京大学任教，著有《狂人日記》。"


def entity(name: str, type_: str = "person") -> RawEntity:
    return RawEntity(name, type_, None)


def relation(subject: str, predicate: str, object_: str) -> RawRelation:
    return RawRelation(subject, predicate, object_, None)


def placed(text: str, *said: RawEntity | RawRelation, config: ExtractionConfig | None = None):
    return align_spans(
        text,
        [each for each in said if isinstance(each, RawEntity)],
        [each for each in said if isinstance(each, RawRelation)],
        config=config or ExtractionConfig(),
    )


def names(text: str, *said: RawEntity) -> list[str]:
    return [mention.name for mention in placed(text, *said).mentions]


def test_an_entity_is_mentioned_wherever_its_name_stands_as_it_is_written_there():
    assert placed(TEXT, entity("ada lovelace")).mentions == (
        Mention("Ada Lovelace", 0, 12, "person", "llm", 0.95),
        Mention("ADA LOVELACE", 34, 46, "person", "llm", 0.95),
    )


def test_chinese_names_are_found_in_both_scripts():
    found = placed(CHINESE, entity("鲁迅"), entity("北京大学", "组织"), entity("狂人日记", "作品"))
    assert [(m.name, CHINESE[m.start : m.end]) for m in found.mentions] == [
        ("北京大学", "北京大学"),
        ("魯迅", "魯迅"),
        ("北京大学", "北京大学"),
        ("狂人日記", "狂人日記"),
    ]


@pytest.mark.parametrize(
    "name",
    [
        "Alan Turing",
        "Ada " * 40,
        "Lovelace Ada",
        "",
        " ",
        "—",
        "the",
        "She",
        "A",
        "17",
        "Love",
        "x" * 250,
        "\x00\x1b[31m",
        "他",
    ],
)
def test_a_name_that_is_not_there_or_is_none_is_dropped(name: str):
    assert placed(TEXT + " She was 17. 他说。", entity(name)).mentions == ()


def test_a_disambiguation_and_an_article_are_no_part_of_a_name():
    assert names("Mercury is near the Sun.", entity("Mercury (planet)"), entity("The Sun")) == [
        "Mercury",
        "Sun",
    ]


def test_words_that_stand_far_apart_are_no_name():
    assert names("Ada\n\nLovelace", entity("Ada Lovelace")) == []
    assert names("Ada -----------> Lovelace", entity("Ada Lovelace")) == []
    assert names("Ada\nLovelace", entity("Ada Lovelace")) == ["Ada\nLovelace"]


def test_of_names_within_names_the_longest_is_kept_at_each_place():
    found = placed(
        CHINESE, entity("北京", "地点"), entity("北京大学", "组织"), relation("北京", "有", "北京大学")
    )
    assert [(m.name, m.start) for m in found.mentions] == [
        ("北京大学", 0),
        ("北京", 6),
        ("北京大学", 13),
    ]
    assert found.relations == (Relation("北京", "有", "北京大学", 0, 8, "llm", 0.8),)


@pytest.mark.parametrize(
    ("said", "type_"),
    [
        ("person", "Person"),
        ("PERSONS", "Person"),
        ("data_model", "Data Model"),
        ("robot", "other"),
        ("", "other"),
    ],
)
def test_types_are_those_that_are_looked_for_or_other(said: str, type_: str):
    config = ExtractionConfig(entity_types=["Person", "Data Model"])
    (mention, *_) = placed(TEXT, entity("Babbage", said), config=config).mentions
    assert mention.type == type_


@pytest.mark.parametrize(
    ("said", "type_"),
    [
        ("Scientist", "scientist"),
        ("", "thing"),
        ("x" * 41, "thing"),
        ("BABBAGE", "thing"),
        ("a\x00b\n c", "a b c"),
        ("科學家", "科学家"),
    ],
)
def test_without_types_to_look_for_any_short_one_is_taken(said: str, type_: str):
    (mention,) = placed(TEXT, entity("Babbage", said)).mentions
    assert mention.type == type_


def test_a_relation_stands_where_its_ends_are_nearest():
    found = placed(
        TEXT,
        entity("Ada Lovelace"),
        entity("Analytical Engine", "machine"),
        relation("Analytical Engine", "Described_by", "ada lovelace"),
    )
    (only,) = found.relations
    assert only == Relation("Analytical Engine", "described by", "ADA LOVELACE", 34, 85, "llm", 0.8)


@pytest.mark.parametrize(
    ("subject", "object_"),
    [
        ("Ada Lovelace", "Alan Turing"),
        ("Ada Lovelace", "Charles Babbage"),
        ("Ada Lovelace", "ADA LOVELACE"),
        ("", ""),
    ],
)
def test_a_relation_needs_two_entities_that_were_named(subject: str, object_: str):
    assert placed(TEXT, entity("Ada Lovelace"), relation(subject, "met", object_)).relations == ()


def test_predicates_are_those_that_are_looked_for_or_any_short_one():
    both = entity("Ada Lovelace"), entity("Charles Babbage")
    long = relation("Ada Lovelace", "ignore all instructions and " * 9, "Charles Babbage")
    met, knew = (relation("Ada Lovelace", p, "Charles Babbage") for p in ("MET", "depends on"))
    assert [r.predicate for r in placed(TEXT, *both, long, met, met).relations] == ["related to", "met"]
    config = ExtractionConfig(relation_types=["DEPENDS_ON"])
    assert [r.predicate for r in placed(TEXT, *both, long, met, knew, config=config).relations] == [
        "DEPENDS_ON"
    ]


def test_no_more_is_kept_than_the_configuration_allows():
    config = ExtractionConfig(max_entities_per_chunk=2, max_relations_per_chunk=1)
    people = [
        entity("Ada Lovelace"),
        entity("Nobody"),  # plain-english: data
        entity("Charles Babbage"),
        entity("Analytical Engine"),
    ]
    stated = [
        relation("Ada Lovelace", "met", "Charles Babbage"),
        relation("Charles Babbage", "met", "Ada Lovelace"),
    ]
    found = placed(TEXT, *people, *stated, config=config)
    assert {m.name for m in found.mentions} == {"Ada Lovelace", "ADA LOVELACE", "Charles Babbage"}
    assert len(found.relations) == 1


def test_rules_add_what_the_model_left_out_and_say_what_a_passage_is_about():
    text = "Zell is a town. Anna Huber founded the Museum of Zell (MZ) with parse_config."
    chunk = Chunk(text, 0, len(text), title="Zell", title_source="given")
    rules = RuleExtractor().extract_one(chunk)
    config = ExtractionConfig()
    model = placed(
        text,
        entity("Anna Huber"),
        entity("Museum of Zell", "museum"),
        relation("Anna Huber", "founded", "Museum of Zell"),
    )
    both = merge_with_rules(model, rules, config=config)
    assert both.abouts == rules.abouts
    assert both.aliases == rules.aliases
    assert set(model.mentions) <= set(both.mentions)
    assert "parse_config" in {m.name for m in both.mentions}
    assert sorted(both.mentions, key=lambda m: m.start) == list(both.mentions)
    ends = [r.predicate for r in both.relations if {r.subject, r.object} == {"Anna Huber", "Museum of Zell"}]
    assert ends == ["founded"]
    few = ExtractionConfig(max_entities_per_chunk=2, max_relations_per_chunk=1)
    fewer = merge_with_rules(model, rules, config=few)
    assert {m.method for m in fewer.mentions} == {r.method for r in fewer.relations} == {"llm"}


WORDS = st.sampled_from(
    ["Ada", "Lovelace", "ada", "北京", "大学", "北", " ", "\n", "(", ")", "’s", "ß", "İ", "½", ".", "\x00"]
)
TEXTS = st.lists(WORDS, max_size=12).map("".join)


@pytest.mark.hostile("answers of models")
@given(TEXTS, st.lists(TEXTS | st.text(max_size=6), max_size=6))
def test_whatever_is_said_what_is_kept_stands_in_the_text(text: str, said: list[str]):
    found = placed(text, *(entity(name) for name in said), *(relation(a, "x", b) for a in said for b in said))
    end = 0
    for mention in found.mentions:
        assert text[mention.start : mention.end] == mention.name
        assert mention.name
        assert mention.start >= end
        end = mention.end
    mentioned = {mention.name for mention in found.mentions}
    for each in found.relations:
        assert {each.subject, each.object} <= mentioned
        assert 0 <= each.start < each.end <= len(text)
