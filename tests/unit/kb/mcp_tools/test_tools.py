"""The `query` tool called with arguments that no one should send, over the protocol in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from loom_kb.app import build
from loom_kb.settings import Settings
from mcp import Client

from loom_core.mcp_client.tools.pins import definition_hash

pytestmark = pytest.mark.slow

OPERATORS = {"eq", "gte", "gt", "lte", "lt", "ne", "contains"}

UNDERSTOOD: list[tuple[Any, str]] = [
    ({"tags": "plan"}, "Mooring"),
    ({"tags": ["计划"]}, "停泊"),
    ({"tags": {"ne": "plan"}}, "停泊"),
    ({"title": {"contains": "moor"}}, "Mooring"),
    ({"source": "note:停泊"}, "停泊"),
    ('{"language": "zh"}', "停泊"),
    ([{"field": "tags", "op": "eq", "value": "plan"}], "Mooring"),
    ([{"field": "tags", "op": "eq", "value": ["计划", "x"]}, {"field": "language", "value": "zh"}], "停泊"),
    ([{"field": "tags", "op": "ne", "value": "plan"}], "停泊"),
    (
        [{"field": "title", "op": "contains", "value": "moor"}, {"field": "title", "op": "ne", "value": "x"}],
        "Mooring",
    ),
    ({"field": "title", "op": "eq", "value": "停泊"}, "停泊"),
    ('[{"field": "language", "op": "eq", "value": "zh"}]', "停泊"),
]

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"query": ""}, "at least 1 character"),
    ({"query": " \n"}, "The question is empty."),
    ({"query": "mooring \ud83d"}, "a valid string"),
    ({"query": "x", "limit": 0}, "greater than or equal to 1"),
    ({"query": "x", "limit": -1}, "greater than or equal to 1"),
    ({"query": "x", "limit": 10**6}, "less than or equal to 50"),
    ({"query": "x", "filters": {"colour": "red"}}, "Use: source, path,"),
    ({"query": "x", "filters": {"tag": "red"}}, "Did you mean 'tags'?"),
    ({"query": "x", "filters": {"tags": []}}, "allows no value"),
    ({"query": "x", "filters": {"tags": None}}, "has no value"),
    ({"query": "x", "filters": {"tags": {"$in": ["a"]}}}, "no operator '$in'"),
    ({"query": "x", "filters": {"tags": [["a"]]}}, "cannot compare with list"),
    ({"query": "x", "filters": "tags=a"}, "valid dictionary"),
    ({"query": "x", "filters": ["a"]}, "One of the filters is 'a', not a condition."),
    ({"query": "x", "filters": [{"field": "tags"}]}, 'Give each as {"field"'),
    ({"query": "x", "filters": [{"field": "tag", "op": "eq", "value": "red"}]}, "Did you mean 'tags'?"),
    ({"query": "x", "filters": [{"field": "tags", "op": "like", "value": "red"}]}, "no operator 'like'"),
    ({"query": "x", "filters": [{"field": "tags", "value": "a"}] * 2}, "cannot be combined"),
]

ANSWERED = ["?!…", "🎉👩‍👩‍👧‍👦", "moor\0ing \x07", "\u202eالميناء", "mooring " * 12_500, "停泊" * 17_000]


@asynccontextmanager
async def connected(home: Path) -> AsyncGenerator[Client]:
    """A client of a server with two tagged documents, in English and Chinese."""
    server = build(Settings(home=home, roots=(), embedder="hashing", version="1"))
    async with Client(server.protocol) as client:
        for title, text, tag in (
            ("Mooring", "Ships moor at the quay.", "Plan"),
            ("停泊", "船停在码头。", "计划"),
        ):
            arguments = {"text": text, "title": title, "uri": f"note:{title}", "tags": [tag]}
            await client.call_tool("add", {**arguments, "source": "notes"})
        yield client


async def ask(client: Client, **arguments: Any) -> tuple[bool, str]:
    result = await client.call_tool("query", arguments)
    (content,) = result.content
    return bool(result.is_error), content.text


async def test_a_source_more_leaves_the_tools_what_they_are_but_for_their_words(tmp_path: Path):
    server = build(Settings(home=tmp_path, roots=(), embedder="hashing", version="1"))
    async with Client(server.protocol) as client:
        before = {tool.name: tool for tool in (await client.list_tools()).tools}
        await client.call_tool("add", {"text": "船停在码头。", "title": "停泊", "source": "笔记"})
        after = {tool.name: tool for tool in (await client.list_tools()).tools}

    assert definition_hash(after["query"]) != definition_hash(before["query"])
    assert {name: definition_hash(tool, words=False) for name, tool in after.items()} == {
        name: definition_hash(tool, words=False) for name, tool in before.items()
    }


async def test_the_schema_of_filters_is_small_and_names_the_operators(tmp_path: Path):
    async with connected(tmp_path) as client:
        (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "query"]
    filters = tool.input_schema["properties"]["filters"]
    condition = filters["items"]
    assert set(condition["properties"]["op"]["enum"]) == OPERATORS
    assert condition["additionalProperties"] is False
    assert len(str(condition)) < 500
    assert filters["description"].endswith("by source: notes: source, path, language, type, title, tags.")


async def test_filters_of_every_form_are_understood(tmp_path: Path):
    async with connected(tmp_path) as client:
        for filters, title in UNDERSTOOD:
            failed, text = await ask(client, query="mooring 停泊", filters=filters)
            assert not failed, text
            assert text.startswith(f"[1] {title}"), filters
            assert "[2]" not in text


async def test_what_cannot_be_used_is_refused_in_words(tmp_path: Path):
    async with connected(tmp_path) as client:
        for arguments, said in REFUSED:
            failed, text = await ask(client, **arguments)
            assert failed, arguments
            assert said in text
            assert "Internal error" not in text


async def test_an_odd_question_is_answered(tmp_path: Path):
    async with connected(tmp_path) as client:
        for question in ANSWERED:
            failed, text = await ask(client, query=question)
            assert not failed, text
