from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import pytest
from mcp import Client, MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS
from pydantic import Field

from loom_core.server.calls.context import ToolContext
from loom_core.server.protocol.content import Embedded, Image
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.prompts import PromptMessage
from loom_core.server.protocol.resources import ResourceContent, ResourceEntry


@pytest.fixture(params=["auto", "legacy"])
def connect(request):
    """Connects to a server in memory, in both eras."""
    return lambda server: Client(server.protocol, mode=request.param)


@pytest.fixture
def server():
    server = LoomServer("s", version="1", title="S")

    @server.prompt(title="Summarise")
    async def summarise(
        topic: Annotated[str, Field(description="What about.")], ctx: ToolContext, language: str = "中文"
    ) -> Sequence[PromptMessage]:
        """Summarises what is known."""
        return [PromptMessage(f"{topic} in {language} for {ctx.protocol_version}")]

    @server.prompt(title="Look", name="look_at", description="Looks at things.")
    async def look() -> list[PromptMessage]:
        return [
            PromptMessage(Image(b"\x89PNG")),
            PromptMessage(Embedded("loom://docs/一", ResourceContent("你好", "text/markdown"))),
            PromptMessage(ResourceEntry("loom://docs/2", "two", size=3), role="assistant"),
        ]

    @server.prompt(title="Break")
    async def crash() -> Sequence[PromptMessage]:
        """Breaks."""
        raise RuntimeError("a secret detail")

    return server


async def test_prompts_are_listed_with_their_arguments_in_the_order_of_registration(server, connect):
    async with connect(server) as client:
        first, second, third = (await client.list_prompts()).prompts

    assert (first.name, first.title, first.description) == (
        "summarise",
        "Summarise",
        "Summarises what is known.",
    )
    assert [(a.name, a.description, a.required) for a in first.arguments] == [
        ("topic", "What about.", True),
        ("language", None, False),
    ]
    assert (second.name, second.description, second.arguments) == ("look_at", "Looks at things.", [])
    assert third.name == "crash"


async def test_a_prompt_gets_its_arguments_and_the_call(server, connect):
    async with connect(server) as client:
        result = await client.get_prompt("summarise", {"topic": "灯塔"})
        version = client.protocol_version

    (message,) = result.messages
    assert result.description == "Summarises what is known."
    assert (message.role, message.content.text) == ("user", f"灯塔 in 中文 for {version}")


async def test_a_prompt_may_show_pictures_resources_and_links(server, connect):
    async with connect(server) as client:
        picture, resource, link = (await client.get_prompt("look_at")).messages

    assert (picture.content.data, picture.content.mime_type) == ("iVBORw==", "image/png")
    held = resource.content.resource
    assert (held.uri, held.text, held.mime_type) == ("loom://docs/一", "你好", "text/markdown")
    assert (link.role, link.content.uri, link.content.name, link.content.size) == (
        "assistant",
        "loom://docs/2",
        "two",
        3,
    )


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("sumarise", {}, "There is no prompt 'sumarise', did you mean `summarise`."),
        (
            "summarise",
            {},
            "Invalid arguments for `summarise`: `topic` is required. "
            "Valid arguments: topic (required), language.",
        ),
        (
            "summarise",
            {"topic": "a", "langage": "b"},
            "Invalid arguments for `summarise`: `langage` is not an argument, did you mean `language`. "
            "Valid arguments: topic (required), language.",
        ),
    ],
)
async def test_what_is_wrong_with_a_request_for_a_prompt_is_told(server, connect, name, arguments, message):
    async with connect(server) as client:
        with pytest.raises(MCPError) as refused:
            await client.get_prompt(name, arguments)

    assert (refused.value.error.code, refused.value.error.message) == (INVALID_PARAMS, message)


async def test_a_prompt_that_breaks_does_not_show_its_details(server, connect):
    async with connect(server) as client:
        with pytest.raises(MCPError, match=r"Internal error in prompt 'crash'\.") as refused:
            await client.get_prompt("crash")

    assert refused.value.error.code == INTERNAL_ERROR


async def test_prompts_may_be_kept_by_clients_for_a_while(server):
    async with Client(server.protocol) as client:
        assert (await client.list_prompts()).ttl_ms == 300_000
        assert (await client.list_prompts()).cache_scope == "private"


async def good(topic: str) -> Sequence[PromptMessage]:
    """Is good."""
    return [PromptMessage(topic)]


async def counting(number: int) -> Sequence[PromptMessage]:
    """Counts."""
    raise AssertionError


async def undescribed() -> Sequence[PromptMessage]:
    raise AssertionError


async def starred(*topics: str) -> Sequence[PromptMessage]:
    """Takes many."""
    raise AssertionError


def blocking(topic: str) -> Sequence[PromptMessage]:
    """Blocks."""
    raise AssertionError


@pytest.mark.parametrize(
    ("function", "changes", "reason"),
    [
        (good, {"name": "Bad"}, "prompt 'Bad': a name is lower case"),
        (good, {"title": " "}, "a title and a description are required"),
        (undescribed, {}, "a title and a description are required"),
        (counting, {}, "argument 'number' is not text"),
        (starred, {}, "prompt 'starred': parameter 'topics' cannot be given by name"),
        (blocking, {}, "must be async"),
    ],
)
def test_a_prompt_that_breaks_a_rule_is_refused_at_registration(function, changes, reason):
    server = LoomServer("s", version="1", title="S")
    with pytest.raises(ValueError, match=reason):
        server.prompt(**{"title": "T", **changes})(function)


def test_the_name_of_a_prompt_is_registered_once():
    server = LoomServer("s", version="1", title="S")
    server.prompt(title="T")(good)
    with pytest.raises(ValueError, match="prompt 'good' is registered already"):
        server.prompt(title="T")(good)
