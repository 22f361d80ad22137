from __future__ import annotations

from typing import Annotated

import pytest
from mcp import Client
from pydantic import BaseModel, Field

from loom_core.server.calls.context import ToolContext
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.protocol.tools import ToolWording

# One of two has to be given, and a place has a shape of its own.
KEYWORDS = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {
        "place": {
            "type": "object",
            "properties": {"city": {"type": "string", "minLength": 2}},
            "required": ["city"],
        }
    },
    "properties": {"place": {"$ref": "#/$defs/place"}},
    "anyOf": [{"required": ["phone"]}, {"required": ["email"]}],
}


class Answer(BaseModel):
    text: str


def served(function, **changes):
    server = LoomServer("s", version="1", title="S")
    options = {"title": "T", "read_only": True, "destructive": False, "idempotent": True, "open_world": False}
    server.tool(**{**options, **changes})(function)
    return server


async def contact(
    name: str, phone: str = "", email: str = "", place: dict[str, str] | None = None, times: int = 1
) -> ToolReply[Answer]:
    """Writes to someone."""
    return tool_result(f"{name} {phone} {email} {place} {times}", Answer(text=name))


@pytest.fixture(params=["auto", "legacy"])
def connect(request):
    """Connects to a server in memory, in both eras."""
    return lambda server: Client(server.protocol, mode=request.param)


def text(result):
    (content,) = result.content
    return content.text


async def test_keywords_that_no_signature_can_say_are_in_the_schema(connect):
    async with connect(served(contact, keywords=KEYWORDS)) as client:
        (tool,) = (await client.list_tools()).tools

    schema = tool.input_schema
    assert schema["$schema"] == KEYWORDS["$schema"]
    assert schema["$defs"] == KEYWORDS["$defs"]
    assert schema["anyOf"] == KEYWORDS["anyOf"]
    assert schema["properties"]["place"] == {"$ref": "#/$defs/place"}
    assert schema["properties"]["name"] == {"type": "string"}
    assert (schema["additionalProperties"], schema["required"]) == (False, ["name"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"name": "李明", "phone": "1"}, "李明 1  None 1"),
        ({"name": "a", "email": "b", "place": {"city": "青岛"}}, "a  b {'city': '青岛'} 1"),
        ({"name": "a", "email": "b", "times": "3", "place": '{"city": "青岛"}'}, "a  b {'city': '青岛'} 3"),
    ],
)
async def test_arguments_that_the_keywords_allow_are_passed_on(connect, arguments, expected):
    async with connect(served(contact, keywords=KEYWORDS)) as client:
        result = await client.call_tool("contact", arguments)

    assert not result.is_error
    assert text(result) == expected


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"name": "a"}, "is not valid under any of the given schemas"),
        ({"name": "a", "phone": "1", "place": {}}, "place: 'city' is a required property"),
        ({"name": "a", "phone": "1", "place": {"city": "x"}}, "place.city: 'x' is too short"),
        ({"phone": "1"}, "`name` is required"),
        ({"name": "a", "phone": "1", "more": 1}, "`more` is not an argument"),
    ],
)
async def test_arguments_that_the_keywords_forbid_are_refused_with_advice(connect, arguments, reason):
    async with connect(served(contact, keywords=KEYWORDS)) as client:
        result = await client.call_tool("contact", arguments)

    assert result.is_error
    assert reason in text(result)
    assert text(result).endswith("Valid arguments: name (required), phone, email, place, times.")


def test_keywords_that_make_no_schema_are_refused_at_registration():
    with pytest.raises(ValueError, match="The schema is wrong"):
        served(contact, keywords={"anyOf": "phone"})


async def regional(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> ToolReply[Answer]:
    """Works in a region."""
    return tool_result(region, Answer(text=region))


async def scattered(
    regions: Annotated[list[str], Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> ToolReply[Answer]:
    """Works in many regions."""
    raise AssertionError


async def nameless(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "my region"})],
) -> ToolReply[Answer]:
    """Works in a region."""
    raise AssertionError


async def test_an_argument_may_be_marked_to_be_repeated_as_a_header(connect):
    async with connect(served(regional)) as client:
        (tool,) = (await client.list_tools()).tools
        assert text(await client.call_tool("regional", {"region": "北"})) == "北"

    assert tool.input_schema["properties"]["region"] == {"type": "string", "x-mcp-header": "Region"}


@pytest.mark.parametrize(
    ("function", "reason"), [(scattered, "only permitted on"), (nameless, "not an RFC 9110 token")]
)
def test_a_mark_that_clients_would_drop_the_tool_for_is_refused_at_registration(function, reason):
    with pytest.raises(ValueError, match=reason):
        served(function)


async def test_a_wording_may_depend_on_who_asks(connect):
    async def wording(ctx: ToolContext) -> ToolWording:
        return ToolWording(f"For {ctx.protocol_version}.")

    async with connect(served(contact, wording=wording)) as client:
        (tool,) = (await client.list_tools()).tools
        assert tool.description == f"For {client.protocol_version}."


async def test_clients_may_keep_definitions_that_cannot_change():
    async def wording() -> ToolWording:
        return ToolWording("Now.")

    async with Client(served(contact).protocol) as client:
        assert (await client.list_tools()).ttl_ms == 300_000
    async with Client(served(contact, wording=wording).protocol) as client:
        assert (await client.list_tools()).ttl_ms == 0
