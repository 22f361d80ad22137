from __future__ import annotations

import pytest
from loom_kb.app import build
from loom_kb.settings import Settings
from mcp import Client, MCPError
from mcp.types import PromptReference, ResourceTemplateReference

pytestmark = pytest.mark.slow

DOCUMENT = ResourceTemplateReference(uri="loom://{source}/{id}")
NOTES = {
    "notes": [("Harbour", "The harbour of Qingdao has a red lighthouse.", "note:harbour")],
    "产品文档": [
        ("灯塔", "青岛港的灯塔由李明看守。", "file:///文档/灯塔.md"),
        ("Lamp", "The lamp of the lighthouse has 500 W.", "file:///文档/lamp.md"),
    ],
}


@pytest.fixture(params=["auto", "legacy"])
async def connected(request, tmp_path):
    """Gives a client of a server with two knowledge bases, in both eras."""

    def connect():
        return Client(build(Settings(home=tmp_path, embedder="hashing")).protocol, mode=request.param)

    async with connect() as client:
        for source, notes in NOTES.items():
            for title, text, uri in notes:
                added = await client.call_tool(
                    "add", {"source": source, "title": title, "text": text, "uri": uri}
                )
                assert not added.is_error
    return connect


async def values(client, ref, argument, typed, **others):
    result = await client.complete(ref, {"name": argument, "value": typed}, context_arguments=others or None)
    return result.completion.values


async def test_a_question_comes_with_passages_and_how_to_cite_them(connected):
    async with connected() as client:
        (prompt,) = (await client.list_prompts()).prompts
        (message,) = (await client.get_prompt("ask", {"question": "谁看守灯塔？"})).messages

    assert (prompt.name, prompt.title) == ("ask", "Answer from my documents")
    assert [(argument.name, argument.required) for argument in prompt.arguments] == [
        ("question", True),
        ("source", False),
    ]
    assert message.role == "user"
    assert message.content.text.startswith("谁看守灯塔？\n\nAnswer from the passages")
    assert "青岛港的灯塔由李明看守。" in message.content.text
    assert "[1] " in message.content.text


async def test_a_question_is_asked_of_one_knowledge_base_if_it_is_named(connected):
    async with connected() as client:
        asked = await client.get_prompt("ask", {"question": "lighthouse 灯塔", "source": "notes"})
        with pytest.raises(MCPError, match="nothing"):
            await client.get_prompt("ask", {"question": "lighthouse", "source": "nothing"})

    text = asked.messages[0].content.text
    assert "red lighthouse" in text
    assert "李明" not in text


async def test_names_of_knowledge_bases_are_completed(connected):
    async with connected() as client:
        assert await values(client, PromptReference(name="ask"), "source", "") == ["notes", "产品文档"]
        assert await values(client, DOCUMENT, "source", "产") == ["产品文档"]
        assert await values(client, PromptReference(name="ask"), "question", "who") == []


async def test_addresses_of_documents_are_completed_and_can_be_read(connected):
    async with connected() as client:
        found = await values(client, DOCUMENT, "id", "file:///文档/灯", source="产品文档")
        everything = await values(client, DOCUMENT, "id", "", source="产品文档")
        nowhere = await values(client, DOCUMENT, "id", "file:")
        uri = "loom://产品文档/file%3A%2F%2F%2F文档%2F灯塔.md"
        (content,) = (await client.read_resource(uri)).contents

    assert found == ["file:///文档/灯塔.md"]
    assert everything == ["file:///文档/灯塔.md", "file:///文档/lamp.md"]
    assert nowhere == []
    assert "李明" in content.text


async def test_the_profile_for_chatgpt_has_no_prompts(tmp_path):
    server = build(Settings(home=tmp_path, embedder="hashing", profile="chatgpt"))
    async with Client(server.protocol) as client:
        assert (await client.list_prompts()).prompts == []
        assert client.server_capabilities.completions is None
