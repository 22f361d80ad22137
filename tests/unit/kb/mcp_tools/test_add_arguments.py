"""The tool `add` offers and refuses by what the server may read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loom_kb.app import build
from loom_kb.settings import Settings
from mcp import Client
from mcp_types import Tool


def client(home: Path, **settings: Any) -> Client:
    return Client(build(Settings(home=home, embedder="hashing", version="1", **settings)).protocol)


async def offered(client: Client) -> Tool:
    return next(tool for tool in (await client.list_tools()).tools if tool.name == "add")


@pytest.mark.parametrize("roots", [False, True])
@pytest.mark.parametrize("allow_urls", [False, True])
async def test_files_and_web_pages_are_offered_only_where_they_can_be_read(tmp_path, roots, allow_urls):
    async with client(tmp_path, roots=(tmp_path,) if roots else (), allow_urls=allow_urls) as asked:
        tool = await offered(asked)
    assert ("paths" in tool.input_schema["properties"]) == roots
    assert ("urls" in tool.input_schema["properties"]) == allow_urls
    assert ("`paths`" in tool.description) == ("PDF" in tool.description and roots) == roots
    assert ("web pages to a knowledge base" in tool.description) == allow_urls
    assert tool.annotations.open_world_hint == allow_urls


async def test_what_cannot_be_read_is_refused_with_the_option_that_allows_it(tmp_path):
    async with client(tmp_path) as asked:
        for arguments, advice in (
            ({"paths": ["笔记.md"]}, "restart the server with --root FOLDER"),
            ({"urls": ["https://example.com/"]}, "restart the server with --allow-urls"),
            ({}, "Give `text`."),
        ):
            refused = await asked.call_tool("add", arguments)
            assert refused.is_error
            assert advice in refused.content[0].text


async def test_empty_arguments_count_as_left_out_where_another_is_given(tmp_path):
    async with client(tmp_path, roots=(tmp_path,), allow_urls=True) as asked:
        empty = {
            "paths": [],
            "urls": [],
            "source": None,
            "title": "",
            "uri": "",
            "tags": [],
            "description": "",
        }
        added = await asked.call_tool("add", {"text": "# 缆绳\n\n麻绳。", **empty})
        assert added.structured_content["job"]["counts"] == {"added": 1}
        refused = await asked.call_tool("add", {"text": "", "paths": [], "urls": []})
        assert "Give one of `text`, `paths` and `urls`." in refused.content[0].text
