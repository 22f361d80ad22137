"""Parsing of a language model's extraction reply, in whatever form it comes."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loom_core.knowledge.ingest.extraction.llm.reply import (
    MAX_FINDINGS,
    RawEntity,
    RawExtraction,
    RawRelation,
    parse_reply,
)

ADA = RawEntity("Ada Lovelace", "person", 1)
ENGINE = RawEntity("Analytical Engine", "machine", 1)
WROTE = RawRelation("Ada Lovelace", "wrote about", "Analytical Engine", 1)
PEKING = RawEntity("北京大学", "组织", 2)
ANSWER = {
    "passages": [
        {
            "passage": 1,
            "entities": [
                {"name": "Ada Lovelace", "type": "person"},
                {"name": "Analytical Engine", "type": "machine"},
            ],
            "relations": [
                {"subject": "Ada Lovelace", "predicate": "wrote about", "object": "Analytical Engine"}
            ],
        },
        {"passage": 2, "entities": [{"name": "北京大学", "type": "组织"}], "relations": []},
    ]
}
WHOLE = RawExtraction((ADA, ENGINE, PEKING), (WROTE,), frozenset({1, 2}))


def unnumbered(said: RawExtraction) -> RawExtraction:
    return RawExtraction(
        tuple(entity._replace(passage=None) for entity in said.entities),
        tuple(relation._replace(passage=None) for relation in said.relations),
        frozenset({None}),
    )


@pytest.mark.parametrize(
    "wrapping",
    [
        "{}",
        "```json\n{}\n```",
        "Here is what I found in [1] and [2]:\n\n{}\n\nI hope that helps!",
        '<think>They want {{"passages": []}}, so…</think>\n{}',
        "好的，结果如下：\n{}\n以上。",
    ],
)
def test_the_form_that_was_asked_for_is_read_whatever_stands_around_it(wrapping: str):
    answer = wrapping.replace("{}", json.dumps(ANSWER, ensure_ascii=False, indent=1)).replace("{{", "{")
    assert parse_reply(answer) == WHOLE


def test_of_an_answer_that_was_cut_off_the_whole_items_are_kept():
    text = json.dumps(ANSWER, ensure_ascii=False)
    for end in range(len(text)):
        said = parse_reply(text[:end])
        assert set(said.entities) <= set(WHOLE.entities)
        assert set(said.relations) <= {WROTE}
    cut = parse_reply(text[: text.index("wrote about")])
    assert cut == RawExtraction((ADA, ENGINE), (), frozenset({1}))
    assert parse_reply(text[: text.index("北京大学") + 7]) == RawExtraction(
        (ADA, ENGINE), (WROTE,), frozenset({1})
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"passages": [{"passage": 1, "entities": [{"name": "Ada", "type": "person"},], "relations": []}]}',
        "{'passages': [{'passage': 1, 'entities': [{'name': 'Ada', 'type': 'person'}]}]}",
        '{"passages": {"1": {"entities": {"Ada": "person"}}}}',
        '{"passage_1": {"entities": {"person": ["Ada"]}}}',
        '{"段落": 1, "实体": [{"名称": "Ada", "类型": "person"}]}',
        '{"Entities": [{"passage": 1, "id": 7, "Name": "Ada", "Type": "person"}]}',
        '{"id": "[1]", "text": "Ada was here.", "entities": [{"name": "Ada", "label": "person"}]}',
    ],
)
def test_other_forms_of_json_are_read(text: str):
    said = parse_reply(text)
    assert (said.entities, said.relations) == ((RawEntity("Ada", "person", 1),), ())
    assert 1 in said.passages


def test_names_alone_and_triples_are_read():
    said = parse_reply('{"entities": ["Ada", "Engine"], "triples": [["Ada", "built", "Engine"], ["a", "b"]]}')
    assert said == RawExtraction(
        (RawEntity("Ada", "", None), RawEntity("Engine", "", None)),
        (RawRelation("Ada", "built", "Engine", None),),
        frozenset({None}),
    )
    assert [entity.name for entity in parse_reply('["Ada", "Engine"]').entities] == ["Ada", "Engine"]


@pytest.mark.parametrize(
    ("text", "passages"),
    [
        ('{"passages": [{"passage": 1, "entities": [], "relations": []}]}', {1}),
        ('{"entities": [], "relations": []}', {None}),
        ('{"passages": []}', set()),
        ("", set()),
        ("I'm sorry, but I can't help with that. Ask me another time.", set()),
        ("抱歉，我无法完成这个任务。", set()),
        ("1 2 3", set()),
    ],
)
def test_it_is_known_whether_an_answer_says_that_there_is_nothing(text: str, passages: set[int | None]):
    assert parse_reply(text) == RawExtraction((), (), frozenset(passages))


TABLE = """
## Passage 1
| Name | Type |
|------|------|
| **Ada Lovelace** | person |
| Analytical Engine | machine |

| Subject | Predicate | Object |
|---|---|---|
| Ada Lovelace | wrote about | Analytical Engine |

[2]
| 北京大学 | 组织 |
"""
LIST = """
Sure! Passage 1 says this:
1. Ada Lovelace (person)
2. Analytical Engine: machine
- (Ada Lovelace, wrote about, Analytical Engine)
- 北京大学（组织）
"""
ARROWS = """
Entities:
Ada Lovelace - person
Analytical Engine - machine
北京大学：组织

Relations:
Ada Lovelace -> wrote about -> Analytical Engine
"""


def test_tables_are_read():
    assert parse_reply(TABLE) == WHOLE


@pytest.mark.parametrize("text", [LIST, ARROWS])
def test_lists_are_read(text: str):
    assert parse_reply(text) == unnumbered(WHOLE)


def test_a_third_column_that_is_no_entity_is_a_remark():
    said = parse_reply(
        "Ada | person | a mathematician\nEngine | machine | never built\nAda | planned | Engine"
    )
    assert said.relations == ()
    assert said.entities[:2] == (RawEntity("Ada", "person", None), RawEntity("Engine", "machine", None))


def test_names_without_types_are_read_from_a_list():
    said = parse_reply("实体：\n阿达、分析机\n关系：\n无")
    assert [entity.name for entity in said.entities] == ["阿达", "分析机"]


def test_a_model_that_repeats_itself_says_it_once():
    item = '{"name": "Ada", "type": "person"}'
    assert parse_reply(f'{{"entities": [{", ".join([item] * 500)}').entities == (
        RawEntity("Ada", "person", None),
    )
    assert len(parse_reply("- Ada\n" * 5000).entities) == 1
    counting = ", ".join(f'"name {n}"' for n in range(2 * MAX_FINDINGS))
    assert len(parse_reply(f'{{"entities": [{counting}]}}').entities) == MAX_FINDINGS
    assert (
        len(parse_reply("\n".join(f"- n{n} (t)" for n in range(2 * MAX_FINDINGS))).entities) <= MAX_FINDINGS
    )


def test_what_is_absurdly_long_is_not_taken():
    assert parse_reply(
        json.dumps({"entities": [{"name": "x" * 301}, {"name": "Ada", "type": "y" * 301}]})
    ) == (RawExtraction((), (), frozenset({None})))
    assert parse_reply("- " + "x" * 700).entities == ()
    assert parse_reply(f"a | {'b' * 400} | c").relations == ()


@pytest.mark.parametrize(
    "text",
    ['{"a":' * 60_000, "[" * 190_000, '{"entities": [' * 9000, "-" * 190_000, "(" * 190_000, " " * 190_000],
)
def test_what_is_made_to_take_long_is_read_in_no_time(text: str):
    assert parse_reply(text).entities == ()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["passage", "id", "name", "type", "subject", "object", "entities", "relations", "1"]
            )
            | st.text(max_size=4),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@example([""])
@example({"entities": {"": "person"}, "relations": [["", "in", " "]]})
@given(VALUES)
def test_any_json_is_read(value: object):
    said = parse_reply(json.dumps(value))
    for entity in said.entities:
        assert entity.name.strip()
        assert entity.passage in said.passages
    assert all(each.subject.strip() and each.object.strip() for each in said.relations)


@pytest.mark.hostile("answers of models")
@given(st.text(alphabet=st.sampled_from('Aa1[]{}()":,|->\n\t 。：、《》实体关系#*`\\')))
def test_any_text_is_read(text: str):
    said = parse_reply(text)
    assert all(each.passage in said.passages for each in (*said.entities, *said.relations))
