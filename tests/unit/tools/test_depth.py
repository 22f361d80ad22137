from __future__ import annotations

import pytest
from mcp import Client
from pydantic import BaseModel

from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.tools.depth import current_depth, inherit_depth


class Depth(BaseModel):
    depth: int


def asked() -> LoomServer:
    """A server whose tool tells how deep it is called."""
    server = LoomServer("s", version="1", title="S")

    @server.tool(title="Tell", read_only=True, destructive=False, idempotent=True, open_world=False)
    async def tell() -> ToolReply[Depth]:
        """Tells how deep it is called."""
        return tool_result("told", Depth(depth=current_depth()))

    return server


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_tool_of_ours_knows_how_many_stand_above_its_call(mode):
    async with Client(asked().protocol, mode=mode) as client:
        told = await client.call_tool("tell", {}, meta={"loom/depth": 2})
        assert told.structured_content == {"depth": 2}
        assert (await client.call_tool("tell", {})).structured_content == {"depth": 0}


@pytest.mark.parametrize(("said", "depth"), [(3, 3), (-1, 0), (10**30, 1000), (True, 0), ("2", 0), (None, 0)])
def test_nonsense_counts_as_nothing(said: object, depth: int):
    with inherit_depth({"loom/depth": said}):
        assert current_depth() == depth
    with inherit_depth(None):
        assert current_depth() == 0
