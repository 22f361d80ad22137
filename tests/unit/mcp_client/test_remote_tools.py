"""The servers that the runs of one process share."""

from __future__ import annotations

import json

import anyio

from loom_core.errors import ConfigError
from loom_core.mcp_client.remote_tools import EVERYTHING, RemoteTools
from tests.unit.mcp_client.conftest import Listed, offered


async def test_every_run_that_waits_for_a_server_that_is_not_configured_fails(tmp_path):
    remote = RemoteTools(tmp_path)
    problems = []

    async def run() -> None:
        try:
            await remote.wait_for_servers(["没有"], seconds=30)
        except ConfigError as error:
            problems.append(error.message)

    async with anyio.create_task_group() as tasks:
        remote.start_in(tasks)
        async with anyio.create_task_group() as runs:
            runs.start_soon(run)
            runs.start_soon(run)
        await run()
        await remote.close()
    assert len(problems) == 3
    assert all("There is no server '没有'" in problem for problem in problems)


async def test_servers_that_are_added_or_disabled_later_are_seen_by_who_uses_all(tmp_path):
    entries = {name: Listed(tmp_path, name, offered("read")).entry() for name in ("first", "later")}

    def configure(**servers):
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))

    remote = RemoteTools(tmp_path)
    async with anyio.create_task_group() as tasks:
        remote.start_in(tasks)
        configure(first=entries["first"])
        tools = remote.live(await remote.start_servers(EVERYTHING))
        shown = []
        for servers in (
            {"first": entries["first"]},
            entries,
            {**entries, "first": {**entries["first"], "disabled": True}},
        ):
            configure(**servers)
            await remote.wait_for_servers(EVERYTHING, seconds=30)
            shown.append([tool.name for tool in tools()])
        (tmp_path / "mcp.json").write_text("{")
        await remote.wait_for_servers(EVERYTHING, seconds=30)
        assert [*shown, [tool.name for tool in tools()]] == [
            ["first:read"],
            ["first:read", "later:read"],
            ["later:read"],
            ["later:read"],
        ]
        await remote.close()
