"""The profile `chatgpt` keeps the contract of ChatGPT's connectors to the letter."""

from __future__ import annotations

import json

import pytest


@pytest.fixture(scope="module")
def server(shared_kb, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    ship = "# Aster\n\nThe Aster is a ship of the Veld Company."
    port = "# 青岛港\n\n青岛港的港长是李明。" + "很长的历史。" * 4000
    with shared_kb(home=home) as writer:
        writer.call("add", text=ship, uri="https://example.org/aster")
        writer.call("add", text=port, source="知识库", tags=["港"])
        assert writer.close_input() == 0
    with shared_kb("--profile", "chatgpt", home=home) as server:
        yield server


def both(result):
    """The structured content, which must be the text, too."""
    (content,) = result["content"]
    assert json.loads(content["text"]) == result["structuredContent"]
    return result["structuredContent"]


def test_search_and_fetch_are_all_there_is_and_answer_as_agreed(server):
    tools = {tool["name"]: tool for tool in server.request("tools/list")["tools"]}
    assert list(tools) == ["search", "fetch"]
    for name, argument in [("search", "query"), ("fetch", "id")]:
        properties = tools[name]["inputSchema"]["properties"]
        assert {key: value["type"] for key, value in properties.items()} == {argument: "string"}
        assert tools[name]["inputSchema"]["required"] == [argument]
        assert tools[name]["annotations"]["readOnlyHint"] is True

    results = both(server.call("search", query="Which ship belongs to the Veld Company?"))["results"]
    assert all(set(hit) == {"id", "title", "url"} for hit in results)
    assert all(hit["url"] and isinstance(hit["url"], str) for hit in results)
    assert (results[0]["title"], results[0]["url"]) == ("Aster", "https://example.org/aster")

    document = both(server.call("fetch", id=results[0]["id"]))
    assert set(document) == {"id", "title", "text", "url", "metadata"}
    assert document["id"] == results[0]["id"]
    assert document["url"] == "https://example.org/aster"
    assert "ship of the Veld Company" in document["text"]


def test_a_long_chinese_document_stays_below_what_hosts_take(server):
    hit = both(server.call("search", query="青岛港的港长是谁？"))["results"][0]
    assert hit["url"]
    document = both(server.call("fetch", id=hit["id"]))
    assert "李明" in document["text"]
    assert 5_000 < len(document["text"]) <= 20_000


def test_what_cannot_be_is_refused_with_advice(server):
    unknown = server.call("fetch", id="d0")
    assert unknown["isError"] is True
    assert "There is no document or passage" in unknown["content"][0]["text"]
    assert server.call("search", query="")["isError"] is True
    assert server.call("search", query="x", limit=3)["isError"] is True
    assert server.call("query", query="x")["isError"] is True
