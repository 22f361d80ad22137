from __future__ import annotations

import json

import pytest

from loom_core.errors import DocumentError


def test_keys_are_headings_and_records_rows(load, outline) -> None:
    draft = load(
        "a.json",
        '{"name": "织机", "version": 1.10, "on": true, "none": null, "deps": {"a": "1", "b": ["x", 2]},'
        ' "ships": [{"id": 1, "size": {"m": 3}}, {"id": 2, "tags": ["p", "q"]}], "empty": []}',
    )
    assert outline(draft) == [
        ("paragraph", "name: 织机\nversion: 1.10\non: true"),
        ("heading", "deps"),
        ("paragraph", "a: 1"),
        ("heading", "b"),
        ("list", "- x"),
        ("list", "- 2"),
        ("heading", "ships"),
        ("row", "id: 1; size.m: 3"),
        ("row", "id: 2; tags: p, q"),
    ]
    assert draft.blocks[4].path == ("deps", "b")
    assert (draft.title, draft.title_source) == ("a", "filename")


def test_a_title_member_is_the_title(load) -> None:
    assert load("a.json", '{"title": "Tides", "x": 1}').title == "Tides"


def test_comments_and_trailing_commas_are_forgiven(load) -> None:
    source = '{\n// one\n"url": "http://x/*y*/", /* two */ "list": [1, 2,],\n}'
    assert load("a.json", source).text == "url: http://x/*y*/\n\nlist\n\n- 1\n- 2"


@pytest.mark.parametrize("value", ["12", '"织机"', "[1, 2]", "[[1, 2], [3]]"])
def test_any_value_is_a_document(load, value: str) -> None:
    assert load("a.json", value).text


def test_json_lines_under_the_name_of_json_are_read(load, outline) -> None:
    assert outline(load("a.json", '{"a": 1}\n{"a": 2}\n')) == [("row", "a: 1"), ("row", "a: 2")]


@pytest.mark.parametrize("source", ["{", "[1] [2]", '{"a": 1,,}', "nonsense", "[" * 100_000])
def test_what_is_not_json_is_refused_with_the_reason(load, source: str) -> None:
    with pytest.raises(DocumentError, match=r"a\.json cannot be read as JSON: .+ Check that"):
        load("a.json", source)


@pytest.mark.hostile("files of any kind")
def test_values_deeper_than_headings_are_flattened(load, outline) -> None:
    value: object = {"leaf": "x"}
    for depth in range(9):
        value = {f"k{depth}": value}
    assert outline(load("a.json", json.dumps(value)))[-1] == ("paragraph", "k3.k2.k1.k0.leaf: x")


def test_a_large_record_with_a_name_is_a_section(load) -> None:
    record = {"name": "Seagull", "log": {str(day): "calm " * 50 for day in range(30)}}
    draft = load("a.json", json.dumps([record, {"name": "Tern"}]))
    assert draft.blocks[1].path == ("Seagull",)
    assert draft.blocks[-1].path == ()


def test_titled_records_of_json_lines_read_as_sections(load, outline) -> None:
    source = (
        '\ufeff{"_id": "1", "title": "港口", "text": "第一段。"}\n\n'
        '{"id": 2, "title": "B", "text": "second", "tags": ["x", "y"]}\nbad\n'
        '{"body": "alone"}\n[1, {"a": 2}]\n7\n'
    )
    draft = load("a.jsonl", source)
    assert outline(draft) == [
        ("heading", "港口"),
        ("paragraph", "第一段。"),
        ("heading", "B"),
        ("paragraph", "second"),
        ("row", "tags: x, y"),
        ("paragraph", "alone"),
        ("row", "1; a: 2"),
        ("row", "7"),
    ]
    assert draft.metadata == {"skipped_lines": 1}
    assert draft.blocks[1].path == ("港口",)
    assert draft.blocks[5].path == ()


def test_json_lines_without_json_are_refused(load) -> None:
    with pytest.raises(DocumentError, match="2 of 3 lines are not JSON"):
        load("a.jsonl", '{"a": 1}\n{\nx\n')


@pytest.mark.hostile("files of any kind")
def test_lone_surrogates_become_replacement_characters(load) -> None:
    assert load("a.json", '{"a": "x\\ud800y"}').text == "a: x\ufffdy"
