from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from loom_core.mcp_client.configuration.server_config import ServerConfig
from loom_core.mcp_client.registry import MCPToolRegistry
from loom_core.tools.interface import CallContext, ToolAnnotations

pytestmark = pytest.mark.slow

_SCRIPT = str(Path(__file__).parents[1] / "listed_server.py")


def _config(folder: Path, says: dict[str, Any], **fields: Any) -> ServerConfig:
    file = folder / "says.json"
    file.write_text(json.dumps({"tools": [], **says}), encoding="utf-8")
    args = ("-S", _SCRIPT, str(file))
    return ServerConfig(
        name="手册",
        transport="stdio",
        command=sys.executable,
        args=args,
        era="legacy",
        start_seconds=40,
        **fields,
    )


async def test_a_model_is_told_what_they_are_for_and_take(tmp_path: Path) -> None:
    servers = [_config(tmp_path, {"resources": {}, "prompts": {}})]
    async with MCPToolRegistry(home=tmp_path, servers=servers) as registry:
        tools = await registry.load_servers()

        assert [tool.own_name for tool in tools] == [
            "list_resources",
            "read_resource",
            "list_prompts",
            "get_prompt",
        ]
        assert all("手册" in tool.description for tool in tools)
        assert [tool.args_schema["required"] for tool in tools] == [[], ["uri"], [], ["name"]]
        assert len({tool.spec().name for tool in tools}) == 4


async def test_a_server_without_resources_and_prompts_has_no_such_tools(tmp_path: Path) -> None:
    async with MCPToolRegistry(home=tmp_path, servers=[_config(tmp_path, {})]) as registry:
        assert await registry.load_servers() == []


@pytest.mark.parametrize("trusted", [True, False])
async def test_that_they_only_read_is_believed_of_a_trusted_server(tmp_path: Path, trusted: bool) -> None:
    servers = [_config(tmp_path, {"resources": {}}, trusted=trusted)]
    async with MCPToolRegistry(home=tmp_path, servers=servers) as registry:
        await registry.load_servers()
        annotations = registry.find("手册:read_resource").annotations

    worst = ToolAnnotations()
    assert annotations == (
        ToolAnnotations(read_only=True, destructive=False, idempotent=True) if trusted else worst
    )


async def test_long_lists_come_in_pages(tmp_path: Path) -> None:
    servers = [_config(tmp_path, {"resources": {f"kb://{n}": "" for n in range(149)}, "prompts": {}})]
    async with MCPToolRegistry(home=tmp_path, servers=servers) as registry:
        await registry.load_servers()
        listing = registry.find("手册:list_resources")

        first = await listing.call({})
        second = await listing.call({"start": 100})
        prompts = await registry.find("手册:list_prompts").call({})

    assert first.text.count("- kb://") == 100
    assert first.text.endswith("[50 more: ask with start=100]")
    assert second.text.count("- kb://") == 50
    assert prompts.text == "There are no prompts."


async def test_wrong_arguments_are_told(tmp_path: Path) -> None:
    servers = [_config(tmp_path, {"resources": {}})]
    async with MCPToolRegistry(home=tmp_path, servers=servers) as registry:
        await registry.load_servers()
        output = await registry.find("手册:read_resource").call({"url": "kb://a"})

    assert output.is_error
    assert "`uri` is required; `url` is not an argument, did you mean `uri`" in output.text


async def test_a_resource_is_not_read_again_for_as_long_as_the_server_says(tmp_path: Path) -> None:
    script = str(Path(__file__).parents[1] / "lasting_server.py")
    config = ServerConfig(
        name="s", transport="stdio", command=sys.executable, args=(script,), start_seconds=40
    )
    async with MCPToolRegistry(home=tmp_path, servers=[config]) as registry:
        await registry.load_servers()
        read = registry.find("s:read_resource")

        texts = [(await read.call({"uri": uri})).text for uri in ("kb://一", "kb://一", "kb://二")]

    assert [text.splitlines()[-1] for text in texts] == ["read 1", "read 1", "read 2"]


async def test_who_calls_says_how_long_a_resource_may_take(tmp_path: Path) -> None:
    servers = [_config(tmp_path, {"resources": {"kb://慢": None}})]
    async with MCPToolRegistry(home=tmp_path, servers=servers) as registry:
        await registry.load_servers()
        read = registry.find("手册:read_resource")

        output = await read.call({"uri": "kb://慢"}, context=CallContext(seconds=0.2))

        assert output.is_error
        assert output.text == "The server 手册 did not answer within 0.2 s."
