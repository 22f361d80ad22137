"""Servers of a registry: loaded, tried again, closed; one that fails costs its own tools only."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.mcp_client.configuration.server_config import ServerConfig
from loom_core.mcp_client.registry import MCPToolRegistry
from tests.unit.mcp_client.conftest import Listed, Opened, offered, until

pytestmark = pytest.mark.slow


async def test_tools_of_a_configured_server_are_loaded_called_and_closed(tmp_path: Path) -> None:
    server = Listed(tmp_path, "文件", offered("读取", "读一个文件。"), offered("list"))
    (tmp_path / "mcp.json").write_text(
        json.dumps({"mcpServers": {"文件": server.entry(), "off": {**server.entry(), "disabled": True}}})
    )
    registry = MCPToolRegistry(home=tmp_path)

    names = await registry.discover_local_servers()
    tools = await registry.load_servers(names)
    output = await registry.find("文件:读取").call({"路径": "a"})
    await registry.close()
    await registry.close()

    assert names == ["文件"]
    assert [tool.name for tool in tools] == ["文件:读取", "文件:list"]
    assert json.loads(output.text) == {"tool": "读取", "arguments": {"路径": "a"}, "calls": 1}
    assert output.metadata["server"] == "文件"
    after = await tools[0].call({})
    assert after.is_error
    with pytest.raises(InvalidInputError, match="is closed"):
        await registry.load_servers()


async def test_a_tool_is_found_by_the_names_of_people_and_models(tmp_path: Path, opened: Opened) -> None:
    files = Listed(tmp_path, "files", offered("read_file"), offered("写入"))
    async with opened(files.config()) as registry:
        tool = registry.find("files:read_file")
        other = registry.find("files:写入")

        assert registry.find("files__read_file") is tool
        assert registry.find(other.wire_name) is other
        assert other.spec().name == other.wire_name
        with pytest.raises(NotFoundError, match="Did you mean files:read_file"):
            registry.find("read_file")
        with pytest.raises(NotFoundError, match="files:read_file"):
            registry.find("files:reed_file")


async def test_two_servers_may_have_tools_of_the_same_name(tmp_path: Path, opened: Opened) -> None:
    first, second = (Listed(tmp_path, name, offered("query")) for name in ("a", "b"))
    async with opened(first.config(), second.config()) as registry:
        assert [tool.wire_name for tool in registry.tools()] == ["a__query", "b__query"]
        await registry.find("a:query").call({})
        output = await registry.find("b:query").call({})

        assert json.loads(output.text)["calls"] == 1


async def test_a_server_that_fails_or_hangs_costs_its_own_tools_only(tmp_path: Path, opened: Opened) -> None:
    good = Listed(tmp_path, "good", offered("query"))
    hangs = Listed(tmp_path, "hangs", hang=True)
    broken = ServerConfig(name="broken", transport="stdio", command="no-such-command-anywhere")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "mcp.json").write_text('{"mcpServers": {"wrong": {"args": []}}}')

    async with opened(good.config(), hangs.config(start_seconds=3.0), broken) as registry:
        assert [tool.name for tool in registry.tools()] == ["good:query"]
        states = {status.name: status for status in registry.servers()}
        assert states["good"].state == "ready"
        assert states["good"].problem == ""
        assert "3 s" in states["hangs"].problem
        assert "no-such-command-anywhere" in states["broken"].problem
        assert states["wrong"].state == "misconfigured"
        assert "neither a command nor a url" in states["wrong"].problem


async def test_a_good_server_is_usable_before_a_slow_one_is_given_up(tmp_path: Path) -> None:
    good = Listed(tmp_path, "good", offered("query"))
    hangs = Listed(tmp_path, "hangs", hang=True)
    registry = MCPToolRegistry(home=tmp_path, servers=[good.config(), hangs.config(start_seconds=600.0)])
    async with registry, anyio.create_task_group() as tasks:
        tasks.start_soon(registry.load_servers)
        await until(registry, lambda: len(registry.tools()) == 1)

        assert not (await registry.find("good:query").call({})).is_error
        tasks.cancel_scope.cancel()


async def test_a_name_that_no_one_configured_is_told(tmp_path: Path) -> None:
    server = Listed(tmp_path, "files")
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"files": server.entry()}}))
    async with MCPToolRegistry(home=tmp_path) as registry:
        with pytest.raises(NotFoundError, match="Did you mean files"):
            await registry.load_servers(["filse"])


async def test_a_server_that_failed_is_tried_again_when_it_is_asked_for(tmp_path: Path) -> None:
    server = Listed(tmp_path, "s", offered("a"), hang=True)
    config = server.config(start_seconds=2.0)
    async with MCPToolRegistry(home=tmp_path, servers=[config]) as registry:
        assert await registry.load_servers(["s"]) == []

        server.says["hang"] = False
        server.offer(offered("a"))
        with anyio.fail_after(60):
            while not await registry.load_servers(["s"]):
                continue

        assert registry.servers()[0].problem == ""


async def test_a_server_that_crashed_comes_back_with_the_tools_it_has_then(
    tmp_path: Path, opened: Opened
) -> None:
    server = Listed(tmp_path, "s", offered("die"))
    async with opened(server.config()) as registry:
        server.offer(offered("die"), offered("新"))

        died = await registry.find("s:die").call({})
        await until(registry, lambda: len(registry.tools()) == 2)

        assert died.is_error
        assert not (await registry.find("s:新").call({})).is_error


async def test_who_no_longer_listens_is_not_told(tmp_path: Path) -> None:
    told: list[int] = []
    server = Listed(tmp_path, "s", offered("a"))
    async with MCPToolRegistry(home=tmp_path, servers=[server.config()]) as registry:
        forget = registry.on_change(lambda: told.append(1))
        forget()
        forget()
        await registry.load_servers()

    assert told == []


async def test_a_registry_is_closed_by_a_task_that_did_not_open_it(tmp_path: Path) -> None:
    server = Listed(tmp_path, "s", offered("a"))
    registry = MCPToolRegistry(home=tmp_path, servers=[server.config()])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(registry.load_servers)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(registry.close)

    assert registry.servers()[0].state == "closed"


async def test_hundreds_of_servers_that_cannot_start_are_told_in_bounded_time(tmp_path: Path) -> None:
    good = Listed(tmp_path, "good", offered("a"))
    entries = {f"s{number}": {"command": "no-such-command-anywhere"} for number in range(300)}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {**entries, "good": good.entry()}}))
    async with MCPToolRegistry(home=tmp_path) as registry:
        with anyio.fail_after(60):
            tools = await registry.load_servers()

        assert [tool.name for tool in tools] == ["good:a"]
        assert sum(bool(status.problem) for status in registry.servers()) == 300


async def test_an_error_of_ours_costs_one_server_and_no_one_waits_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Listed(tmp_path, "s", offered("a"))

    def broken() -> None:
        raise RuntimeError("a listener must not raise")

    async with MCPToolRegistry(home=tmp_path, servers=[server.config()]) as registry:
        forget = registry.on_change(broken)
        with anyio.fail_after(30):
            await registry.load_servers()
            await registry.load_servers()
        forget()

        assert "disabled after an internal error" in registry.servers()[0].problem
    assert "a listener must not raise" in caplog.text


async def test_who_leaves_because_of_a_cancellation_leaves_no_server_behind(tmp_path: Path) -> None:
    listed = Listed(tmp_path, "文件", offered("read"))
    with anyio.CancelScope() as scope:
        async with MCPToolRegistry(home=tmp_path / "home", servers=[listed.config()]) as registry:
            await registry.load_servers()
            scope.cancel()
            await anyio.sleep_forever()
    assert [server.state for server in registry.servers()] == ["closed"]
