"""The servers of deploy/compose/nodes.yml behind its nginx, with PostgreSQL, without containers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import yaml
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from tests.fixtures import operating
from tests.fixtures.commands import run_command
from tests.fixtures.store_servers import free_port
from tests.fixtures.store_servers.postgres import PASSWORD, PostgresServer, run_postgres

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals"),
]

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose"
PACKAGES = {"agent": "loom_agent", "kb": "loom_kb"}
LISTENS = {"agent": 8765, "kb": 8766}  # where the front has them
KEYS = "a key that all of the nodes have and no other"


@dataclass
class Nodes:
    """Both servers of one kind, each with a home, and the front.

    Attributes:
        front: its address.
        token: for all of them.
        processes: those that run.
    """

    server: str
    folder: Path
    postgres: PostgresServer
    options: tuple[str, ...]
    front: str = ""
    token: str = ""
    ports: dict[str, int] = field(default_factory=dict[str, int])
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict[str, "subprocess.Popen[str]"])

    def home(self, name: str) -> Path:
        """The home of a server: agents have one, knowledge bases share their tokens."""
        first, home = self.folder / self.server, self.folder / name
        (first / "tokens").mkdir(parents=True, exist_ok=True)
        if self.server == "agent":
            return first
        if not home.exists():
            home.mkdir()
            (home / "tokens").symlink_to(first / "tokens")
        return home

    def url(self, name: str) -> str:
        """The address of a server itself."""
        return f"http://127.0.0.1:{self.ports[name]}/mcp"

    def start(self, name: str) -> None:
        """Start a server of the file, under an address of this machine."""
        services = yaml.safe_load((COMPOSE / "nodes.yml").read_text(encoding="utf-8"))["services"]
        port = self.ports[name]
        own = {
            "0.0.0.0": "127.0.0.1",
            f"http://{name}:8765": f"http://127.0.0.1:{port}",
            "/documents": str(self.folder),
        }
        arguments = [own.get(each, each) for each in services[name]["command"]]
        place = ["--port", str(port), "--home", str(self.home(name)), *self.options]
        process = subprocess.Popen(
            [sys.executable, "-m", PACKAGES[self.server], *arguments, *place],
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, **self.environment()},
        )
        assert process.stderr is not None
        self.processes[name] = process
        assert any(" serves http" in line for line in process.stderr), name

    def stop(self) -> None:
        """End all of them."""
        while self.processes:
            _, process = self.processes.popitem()
            process.terminate()
            process.communicate()  # else it may wait for a reader of its log
            process.wait(30)

    def kill(self, name: str) -> None:
        """End one of them without warning."""
        process = self.processes.pop(name)
        process.kill()
        process.communicate()

    def environment(self) -> dict[str, str]:
        """Environment of the servers and commands of all nodes."""
        return {
            "LOOM_DATABASE": self.postgres.url(),
            "LOOM_DATABASE_SECRET": PASSWORD,
            "LOOM_STATE_KEYS": KEYS,
        }

    def command(self, *arguments: str, name: str) -> str:
        """Run a command on a node, and return what it says."""
        line = [*arguments, "--home", str(self.home(name))]
        done = run_command(PACKAGES[self.server], *line, env=self.environment(), check=True)
        return done.stdout.decode().strip()

    @asynccontextmanager
    async def client(self, url: str, mode: str = "auto") -> AsyncGenerator[Client]:
        """A client of a server or of the front, who agrees to everything."""

        async def agree(_context: object, _params: object) -> ElicitResult:
            return ElicitResult(action="accept", content={})

        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {self.token}"}, timeout=60) as web,
            Client(
                streamable_http_client(url, http_client=web), mode=mode, elicitation_callback=agree
            ) as client,
        ):
            yield client


def run_nodes(stack: ExitStack, server: str, folder: Path, *options: str) -> Nodes:
    """Start both servers of one kind, and nginx before them."""
    nodes = Nodes(server, folder, stack.enter_context(run_postgres()), options)
    services = [f"{kind}{number}" for kind in PACKAGES for number in ("", "-2")]
    nodes.ports = {name: free_port() for name in services}
    fronts = {kind: free_port() for kind in PACKAGES}
    site = operating.exchanged(
        (COMPOSE / "nodes.conf").read_text(encoding="utf-8"),
        {
            **{f"listen {LISTENS[kind]};": f"listen 127.0.0.1:{port};" for kind, port in fronts.items()},
            **{
                f"server {name}:8765 resolve;": f"server 127.0.0.1:{port};"
                for name, port in nodes.ports.items()
            },
        },
    )
    (folder / "nginx").mkdir()
    proxy = operating.nginx_command(folder / "nginx", site)
    created = ["token", "create", "李", "--scope", "read", "--scope", "write"]
    nodes.token = nodes.command(*created, name=server)
    nodes.front = f"http://127.0.0.1:{fronts[server]}/mcp"
    stack.callback(nodes.stop)
    for name in (server, f"{server}-2"):
        nodes.start(name)
    stack.enter_context(operating.running(proxy, fronts[server], folder / "nginx"))
    return nodes


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with ExitStack() as stack:
        yield run_nodes(stack, "agent", tmp_path_factory.mktemp("agents"), "--provider", "mock")


@pytest.fixture
def knowledge_bases(tmp_path: Path) -> Iterator[Nodes]:
    with ExitStack() as stack:
        yield run_nodes(stack, "kb", tmp_path, "--embedder", "hashing")


async def call(client: Client, tool: str, **arguments: object) -> Mapping[str, Any]:
    """Call a tool that gives an answer."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def until_found(client: Client, question: str, text: str) -> None:
    """Ask until an answer has a text: indexes follow the store."""
    with anyio.fail_after(60):
        while text not in json.dumps(await call(client, "query", query=question), ensure_ascii=False):  # noqa: ASYNC110
            await anyio.sleep(0.1)


def working(nodes: Nodes) -> str:
    """The server that works for the knowledge base."""
    import psycopg

    with closing(psycopg.connect(nodes.postgres.url(), password=PASSWORD)) as connection:
        row = connection.execute("SELECT title FROM loom_kb_default.worker").fetchone()
    assert row is not None
    [name] = [name for name, each in nodes.processes.items() if f"pid {each.pid} " in row[0]]
    return name


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_run_is_begun_decided_and_found_through_any_of_them(agents: Nodes, mode: str) -> None:
    async with agents.client(agents.front, mode) as client:
        run = await call(client, "agent_run", goal="请记一条笔记：灯塔")
        for _ in range(4):
            found = await call(client, "agent_wait", run_id=run["run_id"])
            assert found["status"] == "completed"
            assert "灯塔" in found["output"]


async def test_documents_of_one_node_are_found_on_another_and_through_the_front(
    knowledge_bases: Nodes,
) -> None:
    nodes = knowledge_bases
    async with nodes.client(nodes.url("kb")) as one, nodes.client(nodes.url("kb-2")) as other:
        await call(one, "add", text="Jacquard built a loom in Lyon.")
        await until_found(other, "Who built a loom?", "Jacquard")
        await call(other, "add", text="青花瓷在景德镇烧成。")
        await until_found(one, "青花瓷在哪里烧成?", "景德镇")
    for mode in ("auto", "legacy"):
        async with nodes.client(nodes.front, mode) as client:
            for _ in range(4):  # in turn
                assert "Jacquard" in json.dumps(await call(client, "query", query="Who built a loom?"))
    nodes.command("token", "revoke", "李", name="kb")
    for name in nodes.processes:
        headers = {"Authorization": f"Bearer {nodes.token}"}
        assert httpx2.post(nodes.url(name), headers=headers, json={}).status_code == 401


async def test_a_client_goes_on_when_the_node_that_works_is_killed(knowledge_bases: Nodes) -> None:
    nodes = knowledge_bases
    async with nodes.client(nodes.front) as client:
        await call(client, "add", text="Jacquard built a loom in Lyon.")
        await until_found(client, "Who built a loom?", "Jacquard")
        killed = working(nodes)
        nodes.kill(killed)
        for _ in range(4):
            assert "Jacquard" in json.dumps(await call(client, "query", query="Who built a loom?"))
        added = await call(client, "add", text="青花瓷在景德镇烧成。")
        ended = await call(client, "job", id=added["job"]["id"], action="wait")
        assert [job["state"] for job in ended["jobs"]] == ["done"]
        await until_found(client, "青花瓷在哪里烧成?", "景德镇")
    async with nodes.client(nodes.front, "legacy") as client:
        await until_found(client, "青花瓷在哪里烧成?", "景德镇")
    nodes.start(killed)
    async with nodes.client(nodes.url(killed)) as client:
        await until_found(client, "青花瓷在哪里烧成?", "景德镇")
    names = list(nodes.processes)
    nodes.stop()
    for name in names:
        asked = partial(nodes.command, "check", "--json", name=name)
        assert json.loads(await anyio.to_thread.run_sync(asked))["sound"] is True
