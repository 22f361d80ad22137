"""The agent servers of deploy/compose/nodes.yml behind its nginx, with PostgreSQL, without containers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
import yaml
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from tests.fixtures import operating
from tests.fixtures.commands import run_command
from tests.fixtures.store_servers import free_port
from tests.fixtures.store_servers.postgres import PASSWORD, run_postgres

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals"),
]

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose"
NAMES = ("agent", "agent-2")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of both servers, and a token."""
    folder, home = tmp_path_factory.mktemp("nginx"), tmp_path_factory.mktemp("home")
    ports = {name: free_port() for name in (*NAMES, "front")}
    site = operating.exchanged(
        (COMPOSE / "nodes.conf").read_text(encoding="utf-8"),
        {
            "listen 8765;": f"listen 127.0.0.1:{ports['front']};",
            **{f"server {name}:8765;": f"server 127.0.0.1:{ports[name]};" for name in NAMES},
        },
    )
    command = operating.nginx_command(folder, site)
    created = run_command(
        "loom_agent",
        "token",
        "create",
        "李",
        "--scope",
        "read",
        "--scope",
        "write",
        "--home",
        home,
        check=True,
    )
    with ExitStack() as stack:
        postgres = stack.enter_context(run_postgres())
        for name in NAMES:
            stack.enter_context(serving(name, ports[name], home, postgres.url()))
        stack.enter_context(operating.running(command, ports["front"], folder))
        yield f"http://127.0.0.1:{ports['front']}/mcp", created.stdout.decode().strip()


@contextmanager
def serving(name: str, port: int, home: Path, database: str) -> Generator[None]:
    """A server of the file, under an address of this machine."""
    services = yaml.safe_load((COMPOSE / "nodes.yml").read_text(encoding="utf-8"))["services"]
    own = {"0.0.0.0": "127.0.0.1", f"http://{name}:8765": f"http://127.0.0.1:{port}"}
    arguments = [own.get(each, each) for each in services[name]["command"]]
    place = ["--port", str(port), "--home", home, "--provider", "mock"]
    process = subprocess.Popen(
        [sys.executable, "-m", "loom_agent", *arguments, *place],
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "LOOM_DATABASE": database, "LOOM_DATABASE_SECRET": PASSWORD},
    )
    assert process.stderr is not None
    try:
        assert any(line.startswith("loom-agent-server serves ") for line in process.stderr), name
        yield
    finally:
        process.terminate()
        process.communicate()  # else it may wait for a reader of its log
        process.wait(30)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_run_is_begun_decided_and_found_through_any_of_them(
    address: tuple[str, str], mode: str
) -> None:
    url, token = address

    async def agree(_context: object, _params: object) -> ElicitResult:
        return ElicitResult(action="accept", content={})

    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30) as web,
        Client(streamable_http_client(url, http_client=web), mode=mode, elicitation_callback=agree) as client,
    ):
        begun = await client.call_tool("agent_run", {"goal": "请记一条笔记：灯塔"})
        run = begun.structured_content
        assert run is not None
        for _ in range(4):
            found = await client.call_tool("agent_wait", {"run_id": run["run_id"]})
            assert found.structured_content is not None
            assert found.structured_content["status"] == "completed"
            assert "灯塔" in found.structured_content["output"]
