"""Answers of knowledge APIs as they are documented: which shapes are told, and what is read of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from loom_core.errors import SourceError
from loom_core.knowledge.sources.remote.result_mapping import ResultMapping, read_item, read_items

_PLAIN = ResultMapping()


def read(answer, mapping=_PLAIN, **options):
    return read_items(answer, mapping, source="api", **options)


@pytest.mark.parametrize(
    "answer",
    [
        ["Rope is of hemp."],
        {"results": [{"text": "Rope is of hemp."}]},
        {"data": [{"content": "Rope is of hemp."}]},
        {"data": {"list": [{"content": "Rope is of hemp."}]}, "code": 0},
        {"hits": {"total": 1, "hits": [{"_id": "7", "_source": {"body": "Rope is of hemp."}}]}},
        {"result": {"points": [{"id": 7, "payload": {"page_content": "Rope is of hemp."}}]}},
        {"records": [{"segment": {"content": "Rope is of hemp."}, "score": 0.5}]},
        {"ids": [["7"]], "documents": [["Rope is of hemp."]], "metadatas": [[{"title": "Rope"}]]},
        {"text": "Rope is of hemp."},
        {"items": [{"question": "What is rope of?", "answer": "Rope is of hemp."}]},
    ],
)
def test_the_usual_shapes_are_told_without_a_mapping(answer):
    assert [item.content for item in read(answer)] == ["Rope is of hemp."]


@pytest.mark.parametrize("answer", [[], {}, {"results": []}, {"data": {"items": []}, "total": 0}])
def test_an_empty_answer_is_nothing_found(answer):
    assert read(answer) == []


@pytest.mark.parametrize("answer", [None, 5, "text", {"error": "no"}, {"results": "none"}])
def test_an_answer_without_a_list_is_an_error_that_says_what_to_write(answer):
    with pytest.raises(SourceError, match="no list of passages under any of the usual names") as refused:
        read(answer)
    assert "`results`" in refused.value.advice


def test_a_passage_keeps_its_id_title_address_and_what_else_is_known_of_it():
    answer = {
        "passages": [
            {
                "number": 1, "id": "d1.a", "title": "麻绳", "heading_path": ["用途"], "uri": "note:rope",
                "text": "麻绳很结实。", "start": 3, "end": 9, "page": None, "relevance": 0.9,
                "scores": {"bm25": 2.5}, "why": ["shares words with the question"], "source": "notes",
            }
        ]
    }  # fmt: skip
    (item,) = read(answer)
    assert (item.id, item.content, item.source, item.relevance) == ("d1.a", "麻绳很结实。", "note:rope", 0.9)
    assert item.metadata["title"] == "麻绳"
    assert item.metadata["heading_path"] == ["用途"]
    assert (item.metadata["start"], item.metadata["end"]) == (3, 9)
    assert item.metadata["scores"] == {"bm25": 2.5}
    assert item.metadata["why"] == ["shares words with the question"]
    assert "page" not in item.metadata


def test_what_loom_reads_itself_is_kept_with_a_value_of_its_type_only():
    inner = {"title": {"en": 1}, "scores": {"bm25": math.nan}, "language": 7, "why": [1], "year": 1901}
    row = {
        "id": "1",
        "text": "Rope.",
        "title": ["Rope"],
        "heading_path": "Use",
        "scores": [1],
        "score": 10**400,
    }
    (item,) = read([{**row, "metadata": inner}])
    assert item.metadata == {"year": 1901, "id": "1", "score": 10**400}
    assert item.relevance == 0.0


def test_a_mapping_says_where_things_are_that_have_other_names():
    mapping = ResultMapping(
        results="/payload/wörter", id="nr", text="inhalt.lang", title="kopf", url="ort", score="güte",
        metadata="dazu",
    )  # fmt: skip
    row = {"nr": 12, "inhalt": {"lang": "Hanf."}, "kopf": "Seil", "ort": "https://a.example/", "güte": 3}
    answer = {"payload": {"wörter": [{**row, "dazu": {"jahr": 1901}}, {**row, "nr": 13, "güte": 1.5}]}}
    first, second = read(answer, mapping)
    assert (first.id, first.content, first.source) == ("12", "Hanf.", "https://a.example/")
    assert first.metadata == {"jahr": 1901, "title": "Seil", "scores": {"score": 3.0}}
    assert (first.relevance, second.relevance) == (1.0, 0.5)
    assert read({"payload": {}}, mapping) == []
    for wrong in ({"payload": {"wörter": "none"}}, {"other": []}, {"payload": []}):
        with pytest.raises(SourceError, match="under '/payload/wörter'"):
            read(wrong, mapping)


def test_a_passage_without_an_id_has_the_same_one_every_time():
    first, second = read(["Rope.", "Sail."])
    assert first.id != second.id
    assert read(["Rope."])[0].id == first.id
    assert first.relevance == 0, "there is no score: the order is all there is"


def test_a_row_with_a_title_alone_counts_only_where_its_text_can_be_read():
    answer = {"results": [{"id": "1", "title": "Rope", "url": "https://a.example/1"}]}
    with pytest.raises(SourceError, match="No passage of the answer has a text under any of the usual names"):
        read(answer)
    (item,) = read(answer, titles=True)
    assert (item.id, item.content, item.source) == ("1", "Rope", "https://a.example/1")


def test_a_path_to_texts_that_leads_nowhere_is_told():
    answer = {"results": [{"id": "1", "text": "麻绳"}]}
    with pytest.raises(SourceError, match="No passage of the answer has a text under 'body'") as refused:
        read_items(answer, ResultMapping(text="body"), source="api")
    assert "`text` in the source's mapping" in refused.value.advice
    assert read_items({"results": []}, ResultMapping(text="body"), source="api") == []


def test_one_document_is_read_as_such():
    item = read_item({"id": "1", "title": "Rope", "text": "Hemp.", "url": ""}, _PLAIN, source="api")
    assert item is not None
    assert (item.content, item.source) == ("Hemp.", "Rope")
    assert read_item({"error": "no"}, _PLAIN, source="api") is None
    assert read_item({"data": {"content": "Hemp."}}, _PLAIN, source="api") is not None


def test_a_path_that_is_none_is_refused_where_it_stands():
    with pytest.raises(ValidationError, match="is not a path into JSON"):
        ResultMapping(results="a..b")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["results", "data", "text", "id", "score", "metadata", "documents", "ids", "x"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@pytest.mark.hostile("HTTP answers")
@given(_JSON)
def test_whatever_is_answered_gives_passages_with_text_and_a_relevance_or_a_plain_error(answer):
    try:
        items = read(answer, titles=True)
    except SourceError:
        return
    for item in items:
        assert item.content
        assert item.id
        assert 0 <= item.relevance <= 1
