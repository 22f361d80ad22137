"""A server with all that the official conformance suite expects to find, made with our factory alone.

Run it as a program to serve over HTTP on a free port; the first line that it writes is the URL.

    server.py
"""

from __future__ import annotations

import base64
import json
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import anyio
import asking
import mcp_types as types
import tasks
from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import BaseModel, Field

from loom_core.errors import InvalidInputError
from loom_core.server.calls.context import ToolContext, progress
from loom_core.server.protocol.content import Audio, Embedded, Image
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.prompts import PromptMessage
from loom_core.server.protocol.resources import ResourceContent
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.protocol.tools import ToolFunction
from loom_core.server.serving.http_settings import HttpSettings
from loom_core.server.serving.run import serve

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SILENCE = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=")

# What no signature can say (SEP-1613, SEP-2106).
ADDRESS_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {"address": {"$ref": "#/$defs/address"}},
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
}


class Said(BaseModel):
    """Text of a fixture."""

    text: str


def fixture_server() -> LoomServer:
    """The server with all fixtures."""
    server = LoomServer("conformance", version="1", title="Conformance fixtures", resource_updates=True)
    _register_contents(server)
    _register_behaviour(server)
    _register_schemas(server)
    _register_changes(server)
    _register_resources(server)
    _register_prompts(server)
    _register_logging(server)
    asking.register(server)
    tasks.register(server)
    return server


def _register_contents(server: LoomServer) -> None:
    @_fixture(server)
    async def test_simple_text() -> ToolReply[Said]:
        """Says a sentence."""
        return _said("This is a simple text response for testing.")

    @_fixture(server)
    async def test_image_content() -> ToolReply[Said]:
        """Shows a picture."""
        return tool_result("", Said(text="a red pixel"), Image(PIXEL))

    @_fixture(server)
    async def test_audio_content() -> ToolReply[Said]:
        """Plays a sound."""
        return tool_result("", Said(text="silence"), Audio(SILENCE))

    @_fixture(server)
    async def test_embedded_resource() -> ToolReply[Said]:
        """Hands over a resource."""
        content = ResourceContent("This is an embedded resource content.")
        return tool_result("", Said(text="a resource"), Embedded("test://embedded-resource", content))

    @_fixture(server)
    async def test_multiple_content_types() -> ToolReply[Said]:
        """Says a sentence, shows a picture and hands over a resource."""
        content = ResourceContent(json.dumps({"test": "data", "value": 123}), "application/json")
        text = "Multiple content types test:"
        return tool_result(
            text, Said(text=text), Image(PIXEL), Embedded("test://mixed-content-resource", content)
        )


def _register_behaviour(server: LoomServer) -> None:
    @_fixture(server)
    async def test_error_handling() -> ToolReply[Said]:
        """Always fails."""
        raise InvalidInputError("This tool intentionally returns an error for testing")

    @_fixture(server)
    async def test_tool_with_progress(ctx: ToolContext) -> ToolReply[Said]:
        """Reports how far it is."""
        report = progress(ctx, total=100)
        for done in (0, 50, 100):
            await report.report(done)
            await anyio.sleep(0.15)  # two reports in a tenth of a second are one
        return _said("All is done.")

    @_fixture(server)
    async def test_streaming_elicitation() -> ToolReply[Said]:
        """Answers on its stream, which may carry nothing else."""
        return _said("There is nothing to ask.")


def _register_schemas(server: LoomServer) -> None:
    @_fixture(server, keywords=ADDRESS_SCHEMA)
    async def json_schema_2020_12_tool(
        name: str = "",
        address: dict[str, str] | None = None,
        contactMethod: Literal["phone", "email"] | None = None,  # noqa: N803 - the suite's name
        phone: str = "",
        email: str = "",
    ) -> ToolReply[Said]:
        """Takes arguments that depend on each other."""
        return _said(f"{name} {address} {contactMethod} {phone} {email}")

    @_fixture(server)
    async def test_custom_headers(
        region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
        priority: Annotated[int, Field(json_schema_extra={"x-mcp-header": "Priority"})] = 1,
        query: str = "",
    ) -> ToolReply[Said]:
        """Takes arguments that are repeated as headers."""
        return _said(f"{region} {priority} {query}")


def _register_changes(server: LoomServer) -> None:
    @_fixture(server)
    async def test_trigger_tool_change() -> ToolReply[Said]:
        """Says that the list of tools has changed."""
        await server.tools_changed()
        return _said("The list of tools has changed.")

    @_fixture(server)
    async def test_trigger_prompt_change() -> ToolReply[Said]:
        """Says that the list of prompts has changed."""
        await server.prompts_changed()
        return _said("The list of prompts has changed.")


def _register_resources(server: LoomServer) -> None:
    @server.resource(
        "test://static-text",
        name="static-text",
        title="Text",
        description="A text.",
        mime_type="text/plain",
        ttl_seconds=60,
    )
    async def text() -> ResourceContent:
        return ResourceContent("This is the content of the static text resource.")

    @server.resource(
        "test://static-binary",
        name="static-binary",
        title="Picture",
        description="A picture.",
        mime_type="image/png",
    )
    async def picture() -> ResourceContent:
        return ResourceContent(PIXEL, "image/png")

    @server.resource(
        "test://watched-resource", name="watched-resource", title="Watched", description="It may change."
    )
    async def watched() -> ResourceContent:
        return ResourceContent("Nothing has changed yet.")

    @server.resource(
        "test://template/{id}/data",
        name="template",
        title="Data",
        description="Data by id.",
        mime_type="application/json",
    )
    async def data(id: str) -> ResourceContent:  # noqa: A002 - the template's variable
        found = {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}
        return ResourceContent(json.dumps(found), "application/json")


def _register_prompts(server: LoomServer) -> None:
    @server.prompt(title="Simple")
    async def test_simple_prompt() -> Sequence[PromptMessage]:
        """A prompt without arguments."""
        return [PromptMessage("This is a simple prompt for testing.")]

    @server.prompt(title="With arguments")
    async def test_prompt_with_arguments(
        arg1: Annotated[str, Field(description="First test argument")],
        arg2: Annotated[str, Field(description="Second test argument")],
    ) -> Sequence[PromptMessage]:
        """A prompt with two arguments."""
        return [PromptMessage(f"Prompt with arguments: arg1={arg1!r}, arg2={arg2!r}")]

    @server.completion("arg1", prompt="test_prompt_with_arguments")
    async def cities(typed: str, others: Mapping[str, str]) -> list[str]:
        return [city for city in ("paris", "park", "party", "test town") if city.startswith(typed)]

    @server.prompt(title="With a resource")
    async def test_prompt_with_embedded_resource(
        resourceUri: Annotated[str, Field(description="URI of the resource")],  # noqa: N803 - the suite's name
    ) -> Sequence[PromptMessage]:
        """A prompt that hands over a resource."""
        content = ResourceContent("Embedded resource content for testing.")
        return [
            PromptMessage(Embedded(resourceUri, content)),
            PromptMessage("Please process the embedded resource above."),
        ]

    @server.prompt(title="With a picture")
    async def test_prompt_with_image() -> Sequence[PromptMessage]:
        """A prompt that shows a picture."""
        return [PromptMessage(Image(PIXEL)), PromptMessage("Please analyze the image above.")]


def _register_logging(server: LoomServer) -> None:
    """Messages of the protocol's log. They are deprecated: no Loom server sends any."""

    async def set_level(
        _ctx: ServerRequestContext[Any, Any], _params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        return types.EmptyResult()

    server.protocol.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)

    async def log(ctx: ToolContext) -> ToolReply[Said]:
        """Sends messages of the protocol's log."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
                await ctx.session.send_log_message("info", text, related_request_id=ctx.request_id)
                await anyio.sleep(0.05)
        return _said("Three messages were sent to every subscriber.")

    for name in ("test_tool_with_logging", "test_logging_tool"):
        _fixture(server, name=name)(log)


def _fixture(
    server: LoomServer, *, name: str = "", keywords: Mapping[str, Any] | None = None
) -> Callable[[ToolFunction], ToolFunction]:
    return server.tool(
        title="Fixture",
        name=name,
        keywords=keywords,
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    )


def _said(text: str) -> ToolReply[Said]:
    return tool_result(text, Said(text=text))


def _announce(url: str) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve(fixture_server, http=HttpSettings(port=0), on_ready=_announce)
