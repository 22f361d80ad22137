"""An MCP server's search tool as a source, over real connections to children of this process."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_core.errors import InvalidInputError, LoomError, SourceError
from loom_core.knowledge.sources.library import Library
from loom_core.knowledge.sources.remote.mcp import MCPKnowledgeBase
from loom_core.knowledge.sources.remote.mcp_search import MCPKnowledgeConfig
from loom_core.mcp_client.configuration.server_config import ServerConfig
from loom_core.mcp_client.connections.connection import ServerConnection

pytestmark = pytest.mark.slow

_SCRIPT = str(Path(__file__).with_name("knowledge_server.py"))


@asynccontextmanager
async def connected(entry: ServerConfig, **options: Any) -> AsyncGenerator[MCPKnowledgeBase]:
    """A source over a connection that lasts as long as the block."""
    connection = ServerConnection(entry)
    async with anyio.create_task_group() as tasks:
        await tasks.start(connection.run)
        try:
            yield MCPKnowledgeBase(connection, **options)
        finally:
            with anyio.CancelScope(shield=True):
                await connection.close()


def server(how: str, **fields: Any) -> ServerConfig:
    return ServerConfig(
        name="他人",
        transport="stdio",
        command=sys.executable,
        args=("-S", _SCRIPT, how),
        start_seconds=30,
        **fields,
    )


@pytest.mark.parametrize("how", ["structured", "json", "rows"])
async def test_passages_are_read_from_structured_content_and_from_json_in_text(how):
    async with connected(server(how)) as source:
        rope, chinese = await source.query("麻绳用什么制成？")
    assert (rope.id, rope.content, rope.source) == ("1", "Rope is made of hemp.", "https://a.example/1")
    assert (chinese.metadata["title"], chinese.content) == ("麻绳", "麻绳用麻制成，很结实。")
    assert rope.relevance > chinese.relevance


async def test_half_an_emoji_in_json_in_text_costs_its_character_only():
    async with connected(server("half")) as source:
        assert [item.content for item in await source.query("emoji")] == ["half \ufffd emoji"]


@pytest.mark.parametrize(
    ("how", "texts", "sources"),
    [
        ("plain", ["Rope is made of hemp.", "麻绳用麻制成，很结实。"], ["他人", "他人"]),
        ("wrapped", ["Rope is made of hemp."], ["他人"]),
        ("resources", ["Rope is made of hemp.", "麻绳用麻制成，很结实。"], ["note:rope", "note:麻绳"]),
    ],
)
async def test_plain_text_is_a_passage_for_each_block(how, texts, sources):
    async with connected(server(how)) as source:
        found = await source.query("rope")
        assert [item.content for item in found] == texts
        assert [item.source for item in found] == sources
        assert await source.get_by_id(found[0].id) == found[0]
        assert await source.get_by_id("nowhere") is None


async def test_where_only_titles_are_told_the_documents_are_read_for_the_stretch_that_fits():
    async with connected(server("titles")) as source:
        harbour, gone = await source.query("When was the harbour opened?")
        document = await source.get_by_id("long")
        assert await source.get_by_id("gone") == gone
        assert await source.get_by_id("other") is None
    assert "opened in 1901" in harbour.content
    assert len(harbour.content) < 1700
    assert harbour.source == "https://a.example/long"
    assert document is not None
    assert document.content[harbour.metadata["start"] : harbour.metadata["end"]] == harbour.content
    assert gone.content == "Gone", "a document that cannot be read is still told by its title"


async def test_a_document_that_is_plain_text_is_read_too():
    async with connected(server("titles")) as source:
        plain = await source.get_by_id("plain")
        assert await source.get_by_id("empty") is None
    assert plain is not None
    assert (plain.id, plain.content) == ("plain", "Rope is made of hemp.\n\n麻绳用麻制成，很结实。")


async def test_the_tool_is_called_with_what_its_schema_takes():
    config = MCPKnowledgeConfig(arguments={"lang": "zh"}, filters={"tags": "where.tags"})
    async with connected(server("echo"), config=config, name="echo", description="Echoes") as source:
        assert (source.name, source.description, list(source.supported_filters)) == (
            "echo",
            "Echoes",
            ["tags"],
        )
        (item,) = await source.query("麻绳", limit=50, filters={"tags": ["a"]})
        assert item.content == '{"lang": "zh", "limit": 2, "query": "麻绳", "where": {"tags": ["a"]}}.'
        with pytest.raises(InvalidInputError, match="There is no filter 'colour'"):
            await source.query("rope", filters={"colour": "red"})
        for asked in ({"query": " "}, {"query": "rope", "limit": 0}):
            with pytest.raises(InvalidInputError):
                await source.query(**asked)


async def test_nothing_found_is_no_error_and_a_refusal_is_one():
    async with connected(server("nothing")) as source:
        assert await source.query("rope") == []
    async with connected(server("refuses")) as source:
        with pytest.raises(SourceError, match="refuses: The index is being built"):
            await source.query("rope")
    wrong = MCPKnowledgeConfig.model_validate({"mapping": {"results": "data.items"}})
    async with connected(server("wrapped"), config=wrong) as source:
        with pytest.raises(SourceError, match=r"under 'data\.items'"):
            await source.query("rope")


async def test_tools_that_the_server_s_filter_denies_are_not_called():
    async with connected(server("structured", deny=("search",))) as source:
        with pytest.raises(SourceError, match="no recognizable search tool"):
            await source.query("rope")
    async with connected(server("toolless")) as source:
        with pytest.raises(SourceError) as refused:
            await source.query("rope")
    assert "delete" in refused.value.advice


async def test_a_server_that_is_not_there_is_an_error_with_advice():
    config = ServerConfig(name="none", transport="stdio", command="no-such-program-of-loom", start_seconds=5)
    async with connected(config) as source:
        with pytest.raises(LoomError) as refused:
            await source.query("rope")
    assert refused.value.advice


async def test_a_chained_knowledge_base_of_loom_keeps_titles_places_and_reasons(tmp_path):
    library = Library(tmp_path, embedder="hashing")
    base = await library.get("notes", create=True)
    await base.add_texts(["# 麻绳\n\n麻绳用麻制成。Rope is made of hemp."], uris=["note:rope"])
    library.close()
    config = ServerConfig(
        name="kb", transport="stdio", command=sys.executable, start_seconds=60,
        args=("-m", "loom_kb", "--home", str(tmp_path), "--embedder", "hashing"),
    )  # fmt: skip
    async with connected(config) as source:
        (item,) = await source.query("What is rope made of?", limit=3)
        assert item.source == "note:rope"
        assert item.metadata["title"] == "麻绳"
        assert item.metadata["end"] > item.metadata["start"]
        assert "shares words with the question" in item.metadata["why"]
        assert item.metadata["scores"]["bm25"] > 0
        read = await source.get_by_id(item.id)
        assert read is not None
        assert "麻绳用麻制成" in read.content
        assert read.source == "note:rope"
        with pytest.raises(SourceError, match="There is no filter 'colour'"):
            await source.query("rope", filters={"colour": "red"})
