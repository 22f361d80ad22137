"""The servers that the runs of one process share."""

from __future__ import annotations

import anyio

from loom_core.errors import ConfigError
from loom_core.mcp_client.remote_tools import RemoteTools


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
