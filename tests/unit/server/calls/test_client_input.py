"""Client input during a call besides elicitation, in both eras."""

from __future__ import annotations

import pytest
from mcp import Client
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitResult,
    ListRootsRequest,
    ListRootsResult,
    Root,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

from loom_core.server.calls.client_input import InputUnavailableError, RoundTrips
from loom_core.server.calls.context import ToolContext
from loom_core.server.calls.elicitation import ask
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply, tool_result

JOKE = CreateMessageRequest(
    params=CreateMessageRequestParams(
        messages=[SamplingMessage(role="user", content=TextContent(text="讲个笑话"))], max_tokens=50
    )
)


class Got(BaseModel):
    got: list[str]


class Name(BaseModel):
    name: str


@pytest.fixture
def server():
    server = LoomServer("needy", version="1", title="Needy")

    async def gather(ctx: ToolContext) -> ToolReply[Got]:
        """Gets two things at once, and then a third."""
        both = await ctx.client_input.fetch({"joke": JOKE, "roots": ListRootsRequest()}, deadline=20.0)
        answer = await ask(ctx, "Your name?", Name)
        roots = [str(root.uri) for root in both["roots"].roots]
        return tool_result("", Got(got=[both["joke"].content.text, *roots, answer.value.name]))

    async def joke(ctx: ToolContext) -> ToolReply[Got]:
        """Gets a joke, or says why there is none."""
        try:
            await ctx.client_input.fetch({"joke": JOKE}, deadline=20.0)
        except InputUnavailableError as error:
            return tool_result(str(error), Got(got=[]))
        raise AssertionError

    for function in (gather, joke):
        server.tool(title="Get", read_only=True, destructive=False, idempotent=True, open_world=False)(
            function
        )
    return server


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_models_roots_and_users_are_asked_in_the_same_way(server, mode):
    asked = []

    async def sample(_context, params):
        asked.append(params.messages[0].content.text)
        return CreateMessageResult(role="assistant", content=TextContent(text="哈哈"), model="m")

    async def roots(_context):
        asked.append("roots")
        return ListRootsResult(roots=[Root(uri="file:///docs")])

    async def answer(_context, params):
        asked.append(params.message)
        return ElicitResult(action="accept", content={"name": "李明"})

    async with Client(
        server.protocol,
        mode=mode,
        sampling_callback=sample,
        list_roots_callback=roots,
        elicitation_callback=answer,
    ) as client:
        result = await client.call_tool("gather", {})
    assert result.structured_content == {"got": ["哈哈", "file:///docs", "李明"]}
    assert sorted(asked) == ["Your name?", "roots", "讲个笑话"]


async def test_a_client_that_refuses_a_live_request_is_an_error_with_advice(server):
    async with Client(server.protocol, mode="legacy") as client:
        result = await client.call_tool("joke", {})
    assert result.content[0].text.startswith("The client did not answer sampling/createMessage: ")
    assert result.content[0].text.endswith("Ask the user in the conversation.")


@pytest.mark.parametrize("state", ["not JSON", "[]", '{"answers": 1}'])
async def test_a_state_of_another_version_counts_as_none(state):
    rounds = RoundTrips({"requestState": state, "inputResponses": {"roots": {"roots": []}}})
    found = await rounds.fetch({"roots": ListRootsRequest()}, deadline=20.0)
    assert found["roots"] == ListRootsResult(roots=[])
