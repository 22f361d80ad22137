"""Which tool of a server searches: as ChatGPT's contract, Loom's own servers and others have it."""

from __future__ import annotations

from typing import Any

import mcp_types
import pytest

from loom_core.errors import InvalidInputError, SourceError
from loom_core.knowledge.filters import FILTERS_SCHEMA
from loom_core.knowledge.sources.remote.mcp_search import MCPKnowledgeConfig, fetch_call, search_call

_STRING = {"type": "string"}


def tool(
    name: str, *, read_only: bool | None = None, required: tuple[str, ...] = (), **properties: Any
) -> mcp_types.Tool:
    annotations = None if read_only is None else mcp_types.ToolAnnotations(read_only_hint=read_only)
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return mcp_types.Tool(name=name, input_schema=schema, annotations=annotations)


SEARCH = tool("search", query=_STRING, required=("query",))
FETCH = tool("fetch", id=_STRING, required=("id",))
LOOM = tool(
    "query", query=_STRING, required=("query",), read_only=True,
    limit={"type": "integer", "maximum": 50}, filters={"anyOf": [{"type": "object"}, {"type": "null"}]},
    source={"anyOf": [_STRING, {"type": "null"}]},
)  # fmt: skip
ADD = tool("add", text=_STRING, read_only=False)
_RECOGNISE = MCPKnowledgeConfig()


def test_the_contract_of_chatgpt_is_recognised():
    assert search_call([ADD, FETCH, SEARCH], _RECOGNISE).arguments("麻绳？", limit=5, filters={}) == {
        "query": "麻绳？"
    }
    fetch = fetch_call([ADD, FETCH, SEARCH], _RECOGNISE)
    assert fetch is not None
    assert fetch.arguments("7") == {"id": "7"}


def test_a_server_of_loom_is_asked_with_limit_and_filters():
    call = search_call([ADD, LOOM, FETCH], _RECOGNISE)
    assert call.tool == "query"
    assert call.arguments("rope", limit=80, filters={"tags": "a"}) == {
        "query": "rope", "limit": 50, "filters": {"tags": "a"},
    }  # fmt: skip


def test_a_server_that_takes_conditions_is_given_them_and_is_asked_in_detail():
    formats = {"type": "string", "enum": ["concise", "detailed"]}
    loom = tool(
        "query", query=_STRING, required=("query",), filters=dict(FILTERS_SCHEMA), response_format=formats
    )
    filters = {"标签": ["a", "b"], "date": {"gte": "2024", "lt": "2025"}}
    assert search_call([loom], _RECOGNISE).arguments("rope", limit=5, filters=filters) == {
        "query": "rope",
        "response_format": "detailed",
        "filters": [
            {"field": "标签", "op": "eq", "value": ["a", "b"]},
            {"field": "date", "op": "gte", "value": "2024"},
            {"field": "date", "op": "lt", "value": "2025"},
        ],
    }
    others = tool("query", query=_STRING, required=("query",), filters={"type": "array", "items": _STRING})
    with pytest.raises(InvalidInputError, match="There is no filter"):
        search_call([others], _RECOGNISE).arguments("rope", limit=5, filters=filters)


def test_others_are_told_by_a_reading_tool_that_takes_a_question_and_nothing_else():
    wiki = tool("wiki_lookup", q=_STRING, required=("q",), read_only=True)
    page = tool("page", title=_STRING, required=("title",), read_only=True)
    echo = tool("echo", text=_STRING, required=("text",))
    assert search_call([echo, page, wiki], _RECOGNISE).arguments("rope", limit=5, filters={}) == {"q": "rope"}


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([], "It has no tools at all"),
        ([tool("echo", text=_STRING)], "Set `tool` to one of: echo"),
        ([tool("search", query=_STRING, index=_STRING, required=("query", "index"))], "Set `tool`"),
        ([tool("search", query=_STRING, read_only=False)], "Set `tool`"),
        (
            [tool("find_a", q=_STRING, read_only=True), tool("find_b", q=_STRING, read_only=True)],
            "find_a, find_b",
        ),
    ],
)
def test_where_it_cannot_be_told_the_advice_says_what_to_write(tools, said):
    with pytest.raises(SourceError) as refused:
        search_call(tools, _RECOGNISE)
    assert said in refused.value.advice


def test_a_configuration_says_all_that_cannot_be_told():
    chroma = tool(
        "chroma_query_documents", collection_name=_STRING, query_texts={"type": "array"},
        n_results={"type": "integer"}, where={"type": "object"}, required=("collection_name", "query_texts"),
    )  # fmt: skip
    config = MCPKnowledgeConfig(
        tool="chroma_query_documents", arguments={"collection_name": "notes"}, filters_argument="where",
        filters={"year": "where.year"},
    )  # fmt: skip
    call = search_call([chroma], config)
    assert call.arguments("rope", limit=3, filters={"year": 1901}) == {
        "collection_name": "notes", "query_texts": ["rope"], "n_results": 3, "where": {"year": 1901},
    }  # fmt: skip
    assert call.arguments("rope", limit=3, filters={"tags": "a"})["where"] == {"tags": "a"}


def test_a_filter_that_the_tool_does_not_have_is_refused():
    with pytest.raises(InvalidInputError, match="There is no filter 'tags'"):
        search_call([SEARCH], _RECOGNISE).arguments("rope", limit=5, filters={"tags": "a"})


def test_configured_tools_must_be_there():
    with pytest.raises(SourceError, match="has no tool 'find'"):
        search_call([SEARCH], MCPKnowledgeConfig(tool="find"))
    with pytest.raises(SourceError, match="which argument of 'odd' takes the question"):
        search_call([tool("odd", number={"type": "integer"})], MCPKnowledgeConfig(tool="odd"))
    with pytest.raises(SourceError, match="has no tool 'read'"):
        fetch_call([SEARCH], MCPKnowledgeConfig(fetch_tool="read"))


def test_a_reading_tool_that_needs_more_than_an_id_is_none():
    assert fetch_call([tool("fetch", id=_STRING, base=_STRING, required=("id", "base"))], _RECOGNISE) is None
    many = tool("read", ids={"type": "array"}, required=("ids",))
    call = fetch_call([many], _RECOGNISE)
    assert call is not None
    assert call.arguments("7") == {"ids": ["7"]}
