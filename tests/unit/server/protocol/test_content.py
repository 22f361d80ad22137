from __future__ import annotations

import pytest
from mcp import Client
from pydantic import BaseModel

from loom_core.server.protocol.content import Audio, Embedded, Image
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.resources import ResourceContent, ResourceEntry
from loom_core.server.protocol.results import ToolReply, tool_result


class Answer(BaseModel):
    text: str


@pytest.fixture(params=["auto", "legacy"])
def call(request):
    """Calls a tool that answers with what is given, in both eras."""

    async def called(text, *contents):
        server = LoomServer("s", version="1", title="S")

        @server.tool(title="T", read_only=True, destructive=False, idempotent=True, open_world=False)
        async def answer() -> ToolReply[Answer]:
            """Answers."""
            return tool_result(text, Answer(text=text), *contents)

        async with Client(server.protocol, mode=request.param) as client:
            result = await client.call_tool("answer", {})
        assert result.structured_content == {"text": text}
        return [block.model_dump(exclude_none=True) for block in result.content]

    return called


async def test_what_is_not_text_follows_the_text(call):
    assert await call("看", Image(b"\x89PNG"), Audio(b"RIFF", "audio/mpeg")) == [
        {"type": "text", "text": "看"},
        {"type": "image", "data": "iVBORw==", "mime_type": "image/png"},
        {"type": "audio", "data": "UklGRg==", "mime_type": "audio/mpeg"},
    ]


async def test_there_is_no_empty_text_before_other_contents_but_always_something(call):
    assert [block["type"] for block in await call("", Image(b"x"))] == ["image"]
    assert await call("") == [{"type": "text", "text": ""}]


async def test_further_text_is_a_part_of_its_own(call):
    assert [block["text"] for block in await call("first", "第二", "third")] == ["first", "第二", "third"]


async def test_a_resource_can_be_handed_over_whole(call):
    text = Embedded("loom://docs/一", ResourceContent("# 你好", "text/markdown"))
    data = Embedded("loom://docs/raw", ResourceContent(b"\x00\x01", "application/octet-stream"))

    first, second = await call("", text, data)

    assert first["resource"] == {"uri": "loom://docs/一", "mime_type": "text/markdown", "text": "# 你好"}
    assert second["resource"] == {
        "uri": "loom://docs/raw",
        "mime_type": "application/octet-stream",
        "blob": "AAE=",
    }


async def test_a_resource_can_be_linked_to(call):
    (link,) = await call("", ResourceEntry("loom://runs/7", "run-7", "运行", "All of it.", "text/plain", 12))

    assert link == {
        "type": "resource_link",
        "uri": "loom://runs/7",
        "name": "run-7",
        "title": "运行",
        "description": "All of it.",
        "mime_type": "text/plain",
        "size": 12,
    }


@pytest.mark.hostile("MCP requests")
async def test_parts_that_are_not_valid_unicode_do_not_break_the_connection(call):
    broken = "\udce9"
    said, held, link = await call(
        "", broken, Embedded(broken, ResourceContent(broken)), ResourceEntry(broken, broken)
    )

    assert said["text"] == "?"
    assert (held["resource"]["uri"], held["resource"]["text"]) == ("?", "?")
    assert (link["uri"], link["name"]) == ("?", "?")


def test_bytes_are_not_written_into_logs():
    assert repr(Image(b"\x89PNG")) == "Image(mime_type='image/png')"
    assert repr(Embedded("loom://x", ResourceContent(b"secret"))).find("secret") == -1
