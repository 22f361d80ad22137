"""A server of both eras that asks its client, reports progress, and changes its tools.

asking_server.py
"""

from __future__ import annotations

from typing import Any

import anyio
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

from loom_core.server.calls.context import ToolContext, progress
from loom_core.server.calls.elicitation import ask
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply, tool_result


class Said(BaseModel):
    text: str


class Name(BaseModel):
    name: str


def said(text: str) -> ToolReply[Said]:
    return tool_result(text, Said(text=text))


def asking_server() -> LoomServer:
    server = LoomServer("asking", version="1", title="Asking", instructions="Ask away. 请问。")
    cancelled: list[str] = []

    def tool(function: Any) -> Any:
        return server.tool(title="T", read_only=True, destructive=False, idempotent=True, open_world=False)(
            function
        )

    @tool
    async def greet(ctx: ToolContext) -> ToolReply[Said]:
        """Asks for a name."""
        answer = await ask(ctx, "你叫什么名字？", Name)
        return said(f"{answer.outcome}: {answer.value.name if answer.value else ''}")

    @tool
    async def think(ctx: ToolContext) -> ToolReply[Said]:
        """Asks the client's model."""
        if not ctx.can("sampling"):
            return said("no model")
        message = SamplingMessage(role="user", content=TextContent(type="text", text="2+2?"))
        params = CreateMessageRequestParams(messages=[message], max_tokens=10, system_prompt="short")
        responses = await ctx.client_input.fetch({"m": CreateMessageRequest(params=params)}, deadline=10)
        return said(str(responses["m"].model_dump()["content"]["text"]))

    @tool
    async def look(ctx: ToolContext) -> ToolReply[Said]:
        """Asks for the roots."""
        responses = await ctx.client_input.fetch({"r": ListRootsRequest()}, deadline=10)
        return said(str([root["uri"] for root in responses["r"].model_dump(mode="json")["roots"]]))

    @tool
    async def work(steps: int, ctx: ToolContext) -> ToolReply[Said]:
        """Reports progress."""
        reporter = progress(ctx, total=steps)
        for step in range(1, steps + 1):
            await reporter.report(step, f"第{step}步")
        return said("done")

    @tool
    async def wait(name: str) -> ToolReply[Said]:
        """Waits until it is cancelled."""
        try:
            await anyio.sleep_forever()
        except BaseException:
            cancelled.append(name)
            raise
        raise AssertionError

    @tool
    async def ended() -> ToolReply[Said]:
        """Which calls of `wait` were cancelled."""
        return said(" ".join(cancelled))

    @tool
    async def change() -> ToolReply[Said]:
        """Tells that its tools have changed."""
        await server.tools_changed()
        return said("changed")

    return server


if __name__ == "__main__":
    from loom_core.server.serving.run import serve

    serve(asking_server)
