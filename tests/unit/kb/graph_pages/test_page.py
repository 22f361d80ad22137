"""The graph's page as text: what is in it, and what cannot get out of it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from loom_kb.graph_pages.page import graph_app_html, graph_html
from loom_kb.graph_pages.view import GraphView, TextSpan, ViewEntity, ViewPassage, ViewRelation

_HOSTILE = "</script><script>alert(1)</script><!-- 𝒳 织机"


def _view(**changes: Any) -> GraphView:
    passage = ViewPassage("d1.a", "𝒳 and 织机 are here.", "T", "note:1", ("H",), before=False, after=True)
    view: dict[str, Any] = {
        "name": "织",
        "description": "",
        "focus": None,
        "entities": [
            ViewEntity(_HOSTILE, "thing", 3, ("Loom",), (TextSpan(0, 6, 8),)),
            ViewEntity("Ada", "person", 1),
        ],
        "relations": [ViewRelation(1, "uses", 0, 2, TextSpan(0, 0, 8)), ViewRelation(0, "", 1, 1)],
        "passages": [passage],
        "entities_in_all": 9,
        "relations_in_all": 5,
        "without_passages": 1,
    }
    return GraphView(**{**view, **changes})


def _data(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.hostile("pages")
def test_names_of_documents_stay_data_whatever_they_are() -> None:
    html = graph_html(_view())
    assert "alert(1)</script>" not in html
    assert _data(html)["entities"][0][0] == _HOSTILE


def test_rows_point_at_types_predicates_passages_and_documents() -> None:
    data = _data(graph_html(_view()))
    assert data["types"] == ["thing", "person"]
    assert data["predicates"] == ["uses", ""]
    assert [row[:4] for row in data["relations"]] == [[1, 0, 0, 2], [0, 1, 1, 1]]
    assert data["passages"] == [[0, "𝒳 and 织机 are here.", ["H"], 0, 1]]
    assert data["documents"] == [["T", "note:1"]]
    assert data["inAll"] == {"entities": 9, "relations": 5}
    assert data["withoutPassages"] == 1


def test_offsets_are_those_of_a_browser() -> None:
    data = _data(graph_html(_view()))
    text = data["passages"][0][1].encode("utf-16-le")
    passage, start, end = data["entities"][0][7]
    assert passage == 0
    assert text[2 * start : 2 * end].decode("utf-16-le") == "织机"
    start, end = data["relations"][0][5:]
    assert text[2 * start : 2 * end].decode("utf-16-le") == "𝒳 and 织机"


def test_the_same_graph_makes_the_same_page() -> None:
    assert graph_html(_view()) == graph_html(_view())


def test_a_graph_without_entities_makes_a_page_too() -> None:
    data = _data(graph_html(_view(entities=[], relations=[], passages=[], entities_in_all=0)))
    assert data["entities"] == []


def test_nothing_in_a_page_leads_anywhere() -> None:
    for html in (graph_html(_view()), graph_app_html()):
        assert "default-src &#x27;none&#x27;" in html
        assert not re.findall(r"(?:src|href)=\"(?!data:,)[^\"]*\"|@import|url\(|https?://", html)


def test_the_page_of_the_app_waits_for_a_graph() -> None:
    data = _data(graph_app_html())
    assert data["waits"] is True
    assert data["entities"] == []
    assert "passages" not in data
