"""Tools that come and go: described by a JSON Schema, behind those that are always there."""

from __future__ import annotations

import pytest
from mcp import Client
from pydantic import BaseModel

from loom_core.server.calls.elicitation import form_of
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.protocol.tools import SchemaTool, to_call_result


class Echo(BaseModel):
    given: dict[str, object]


async def echo(given, _context):
    return tool_result("ok", Echo(given=given))


def live(name, *, read_only=False, description="Echoes."):
    return SchemaTool(
        name=name,
        title=name,
        description=description,
        input_schema={"properties": {"数": {"type": "integer"}}, "required": ["数"]},
        output=Echo,
        function=echo,
        read_only=read_only,
        destructive=not read_only,
        idempotent=read_only,
        open_world=True,
    )


@pytest.fixture
def there():
    """The tools that there are now."""
    return []


@pytest.fixture
def server(there):
    server = LoomServer("s", version="1", title="S")

    @server.tool(
        title="A", description="Always.", read_only=True, destructive=False, idempotent=True, open_world=False
    )
    async def always() -> ToolReply[Echo]:
        return tool_result("always", Echo(given={}))

    server.live_tools(lambda: there)
    return server


async def test_they_are_listed_last_as_they_are_at_the_time(server, there):
    async with Client(server.protocol) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["always"]
        there += [live("one", read_only=True), live("always")]
        first, second = (await client.list_tools()).tools
        assert (first.name, first.description) == ("always", "Always."), "a name that is taken is not offered"
        assert second.name == "one"
        assert second.input_schema["type"] == "object"
        assert second.annotations.read_only_hint
        assert second.output_schema["properties"].keys() == {"given"}


async def test_their_arguments_come_as_they_are(server, there):
    there.append(live("one"))
    async with Client(server.protocol) as client:
        result = await client.call_tool("one", {"other": 1})
        assert result.structured_content == {"given": {"other": 1}}
        there.clear()
        gone = await client.call_tool("one", {})
        assert gone.is_error
        assert "There is no tool `one`" in gone.content[0].text


def test_one_that_changes_something_wants_the_scope_for_that(server, there):
    there += [live("reads", read_only=True), live("writes")]
    assert server.tool_scope("reads") == "read"
    assert server.tool_scope("writes") == "write"
    assert server.tool_scope("gone") is None


async def test_a_long_description_is_cut_at_a_character(server, there):
    there.append(live("one", description="流程" * 2000))
    async with Client(server.protocol) as client:
        described = (await client.list_tools()).tools[1].description
    assert described.endswith(("流 …", "程 …"))
    assert len(described.encode()) <= 2048


@pytest.mark.parametrize(
    "field",
    [
        {"type": "object"},
        {"type": ["string", "null"]},
        {"$ref": "#/$defs/a"},
        {"enum": [1, 2]},
        {"type": "array", "items": {"type": "string"}},
        True,
        {},
        {"enum": 5},  # the schema of a question of an MCP server may be anything
        {"oneOf": 3},
        {"type": "array", "items": 7},
    ],
)
def test_no_form_has_room_for(field):
    assert form_of({"properties": {"a": field}}) is None


def test_a_form_keeps_what_forms_know():
    form = form_of(
        {
            "type": "object",
            "title": "T",
            "properties": {
                "名": {"type": "string", "pattern": "^x", "minLength": 1, "format": "phone"},
                "kind": {"enum": ["年假", "病假"]},
                "when": {"type": "string", "format": "date"},
                "some": {"type": "array", "items": {"enum": ["a"]}, "minItems": 1},
            },
            "required": ["名"],
        }
    )
    assert form == {
        "type": "object",
        "properties": {
            "名": {"type": "string", "minLength": 1},
            "kind": {"enum": ["年假", "病假"], "type": "string"},
            "when": {"type": "string", "format": "date"},
            "some": {"type": "array", "items": {"enum": ["a"]}, "minItems": 1},
        },
        "required": ["名"],
    }
    assert form_of({}) == {"type": "object", "properties": {}}


@pytest.mark.hostile("MCP requests")
def test_a_name_in_the_data_that_is_not_valid_unicode_is_no_internal_error():
    result = to_call_result(ToolReply("ok", Echo(given={"外": [{"\udce9": "\udce9"}]})))
    assert result.structured_content == {"given": {"外": [{"?": "?"}]}}
