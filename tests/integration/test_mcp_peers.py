"""MCP servers of others as tools: what the makers of the protocol publish, in TypeScript and Python.

They know nothing of Loom, and run on the first generation of MCP's SDKs, as most servers out there do.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
import pytest_asyncio

from loom_core.mcp_client.callbacks import Callbacks, SamplingRequest, SamplingResult
from loom_core.mcp_client.registry import MCPToolRegistry
from loom_core.tools.interface import CallContext, Question, QuestionAnswer, ToolOutput
from tests.fixtures import node as nodejs
from tests.fixtures.peers import peer_script

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(sys.platform == "win32", reason="kills servers by POSIX signals"),
]

HERE = Path(__file__).parent
SERVES = re.compile(r"(?:listening|running) on port \d+")  # with two programs of `everything`
SECONDS = 30.0

each_transport = pytest.mark.parametrize("server", ["everything", "everything-http", "everything-sse"])


class Chain(NamedTuple):
    """The tools of all servers, which were started side by side.

    Attributes:
        registry: the tools.
        folder: a Git repository; the only place where `文件` may write.
        asked: what `everything` has asked.
    """

    registry: MCPToolRegistry
    folder: Path
    asked: list[Question | SamplingRequest]

    async def call(self, name: str, /, *, context: CallContext | None = None, **arguments: Any) -> ToolOutput:
        return await self.registry.find(name).call(arguments, context=context)

    async def text(self, name: str, /, **arguments: Any) -> str:
        """What a call says that succeeds."""
        output = await self.call(name, **arguments)
        assert not output.is_error, output.text
        return output.text

    def state(self, server: str) -> str:
        return next(status.state for status in self.registry.servers() if status.name == server)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Git repository without commits."""
    folder = tmp_path_factory.mktemp("文档")
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    for key, value in {"user.name": "李明", "user.email": "li@example.org"}.items():
        subprocess.run(["git", "-C", folder, "config", key, value], check=True)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chain(
    folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Chain]:
    node = nodejs.node(least=(18, 0))
    packages = nodejs.installed(HERE / "mcp_peers") / "node_modules" / "@modelcontextprotocol"
    home = tmp_path_factory.mktemp("home")

    def program(name: str) -> str:
        return str(packages / f"server-{name}" / "dist" / "index.js")

    entries: dict[str, dict[str, Any]] = {
        "everything": {
            "command": node,
            "args": [program("everything")],
            "loom": {"sampling": True, "roots": [str(folder)]},
        },
        "文件": {"command": node, "args": [program("filesystem"), str(folder)]},
        "memory": {
            "command": node,
            "args": [program("memory")],
            "env": {"MEMORY_FILE_PATH": str(home / "memory.jsonl")},
        },
        "git": {"command": peer_script("mcp-server-git"), "args": ["--repository", str(folder)]},
    }
    asked: list[Question | SamplingRequest] = []
    with ExitStack() as served:
        for name, kind, path in (("http", "streamableHttp", "mcp"), ("sse", "sse", "sse")):
            port = served.enter_context(serving(node, program("everything"), kind))
            entries[f"everything-{name}"] = {"type": name, "url": f"http://127.0.0.1:{port}/{path}"}
        for entry in entries.values():
            entry["loom"] = {"start_seconds": 60, **entry.get("loom", {})}
        (home / "mcp.json").write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
        async with MCPToolRegistry(home=home, callbacks=callbacks(asked)) as registry:
            await registry.load_servers()
            yield Chain(registry, folder, asked)


def callbacks(asked: list[Question | SamplingRequest]) -> Callbacks:
    async def ask(question: Question) -> QuestionAnswer:
        asked.append(question)
        return QuestionAnswer("accept", {"name": "李明", "check": True})

    async def sample(request: SamplingRequest) -> SamplingResult:
        asked.append(request)
        return SamplingResult("三个字", "a-model")

    return Callbacks(ask=ask, sample=sample)


@contextmanager
def serving(node: str, program: str, kind: str) -> Generator[int]:
    """The port that `everything` serves on while the block lasts."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen(
        [node, program, kind],
        env={"PATH": os.environ["PATH"], "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        try:
            assert process.stderr is not None
            assert any(SERVES.search(line) for line in process.stderr), "it has ended"
            yield port
        finally:
            process.kill()
            process.communicate()


async def kill(server: str) -> None:
    """Kill the child that is a server over stdio."""
    program = rf"server-{server}/dist/index\.js$"
    found = await anyio.run_process(["pgrep", "-P", str(os.getpid()), "-f", program])
    os.kill(int(found.stdout), signal.SIGKILL)


async def test_all_servers_are_ready_with_all_their_tools(chain: Chain) -> None:
    statuses = chain.registry.servers()

    assert len(statuses) == 6
    assert {(status.state, status.problem, len(status.left_out)) for status in statuses} == {("ready", "", 0)}
    for name in ("文件:read_text_file", "memory:add_observations", "git:git_log", "everything-sse:get-sum"):
        tool = chain.registry.find(name)
        assert chain.registry.find(tool.wire_name) is tool
        assert tool.spec().parameters["type"] == "object"


async def test_what_one_server_makes_the_next_uses(chain: Chain) -> None:
    file = str(chain.folder / "灯塔.md")
    repository = str(chain.folder)

    await chain.text("文件:write_file", path=file, content="第七号灯塔的看守人是李明。\n")
    await chain.text("git:git_add", repo_path=repository, files=["灯塔.md"])
    await chain.text("git:git_commit", repo_path=repository, message="记下灯塔")
    log = await chain.text("git:git_log", repo_path=repository, max_count=1)
    entity = {
        "name": "李明",
        "entityType": "人",
        "observations": [await chain.text("文件:read_text_file", path=file)],
    }
    await chain.text("memory:create_entities", entities=[entity])
    found = await chain.call("memory:search_nodes", query="灯塔")

    assert "记下灯塔" in log
    assert found.structured == {
        "entities": [{**entity, "observations": ["第七号灯塔的看守人是李明。\n"]}],
        "relations": [],
    }


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("文件:read_text_file", {}, "`path` is required"),
        ("文件:read_text_file", {"path": "/etc/passwd"}, "Access denied"),
        ("文件:list_directory_with_sizes", {"path": "/", "sortBy": "年"}, "`sortBy` must be one of"),
        ("memory:create_entities", {"entities": [{"name": "李明"}]}, "`entities[0].entityType` is required"),
        ("git:git_log", {"repo_path": "/", "max_count": "many"}, "`max_count` must be an integer"),
        ("git:git_status", {"repo_path": "/"}, "outside the allowed repository"),
        ("everything:get-structured-content", {"location": "青岛"}, "`location` must be one of"),
        ("everything:read_resource", {"uri": "demo://no"}, "demo://no not found"),
        ("everything:get_prompt", {"name": "args-prompt"}, "Invalid arguments for prompt args-prompt"),
    ],
)
async def test_wrong_arguments_are_told_to_the_model(
    chain: Chain, name: str, arguments: dict[str, Any], told: str
) -> None:
    output = await chain.call(name, **arguments)

    assert output.is_error
    assert told in output.text


async def test_arguments_that_a_model_writes_as_texts_are_understood(chain: Chain) -> None:
    output = await chain.call("git:git_log", repo_path=str(chain.folder), max_count="1", start_timestamp=None)
    names = await chain.text("memory:open_nodes", names='["谁也不是"]')

    assert "`" not in output.text
    assert json.loads(names) == {"entities": [], "relations": []}


@each_transport
async def test_data_and_pictures_come_with_the_text(chain: Chain, server: str) -> None:
    weather = await chain.call(f"{server}:get-structured-content", location="Chicago")
    picture = await chain.call(f"{server}:get-tiny-image")

    assert weather.structured == json.loads(weather.text)
    assert [part.media_type for part in picture.parts] == ["image/png"]
    assert picture.parts[0].data.startswith(b"\x89PNG")


@each_transport
async def test_resources_and_prompts_are_tools(chain: Chain, server: str) -> None:
    assert "demo://resource/dynamic/text/{resourceId}" in await chain.text(f"{server}:list_resources")
    uri = "demo://resource/dynamic/text/7"
    assert "Resource 7: This is a plaintext resource" in await chain.text(f"{server}:read_resource", uri=uri)
    assert "args-prompt" in await chain.text(f"{server}:list_prompts")
    prompt = await chain.text(f"{server}:get_prompt", name="args-prompt", arguments={"city": "青岛"})
    assert prompt == "[user]\n\nWhat's weather in 青岛?"


async def test_a_resource_that_a_call_makes_is_read_by_its_link(chain: Chain) -> None:
    data = "data:text/plain;base64,54Gv5aGU"

    link = await chain.text("everything:gzip-file-as-resource", name="lamp.gz", data=data)
    found = re.search(r"demo://\S+", link)

    assert found, link
    assert "application/gzip" in await chain.text("everything:read_resource", uri=found[0])


@each_transport
async def test_progress_comes_through(chain: Chain, server: str) -> None:
    steps: list[tuple[float, float | None]] = []

    async def progress(done: float, total: float | None, _message: str) -> None:
        steps.append((done, total))

    output = await chain.call(
        f"{server}:trigger-long-running-operation",
        context=CallContext(progress=progress),
        duration=0.2,
        steps=2,
    )

    assert not output.is_error, output.text
    assert steps[-1] == (2, 2)


@each_transport
async def test_a_call_that_is_cancelled_disturbs_nothing(chain: Chain, server: str) -> None:
    begun = anyio.Event()

    async def progress(_done: float, _total: float | None, _message: str) -> None:
        begun.set()

    async def run() -> None:
        context = CallContext(progress=progress)
        await chain.call(
            f"{server}:trigger-long-running-operation", context=context, duration=100, steps=1000
        )

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await begun.wait()
            tasks.cancel_scope.cancel()

        assert await chain.text(f"{server}:get-sum", a=1, b=2) == "The sum of 1 and 2 is 3."
    assert chain.state(server) == "ready"


async def test_the_server_asks_the_user_the_model_and_for_the_folders(chain: Chain) -> None:
    accepted = await chain.text("everything:trigger-elicitation-request")
    sampled = await chain.text("everything:trigger-sampling-request", prompt="说三个字", maxTokens=10)
    roots = await chain.text("everything:get-roots-list")

    question, request = chain.asked
    assert isinstance(question, Question)
    assert question.origin == "everything"
    assert "李明" in accepted
    assert isinstance(request, SamplingRequest)
    assert "说三个字" in request.turns[0].text
    assert "三个字" in sampled
    assert chain.folder.as_uri() in roots


async def test_a_server_that_may_not_ask_the_model_has_no_tool_for_it(chain: Chain) -> None:
    assert "everything-http:trigger-elicitation-request" in {tool.name for tool in chain.registry.tools()}
    assert "everything-http:trigger-sampling-request" not in {tool.name for tool in chain.registry.tools()}


async def test_a_server_that_is_killed_during_a_call_is_told_and_started_again(chain: Chain) -> None:
    outputs: list[ToolOutput] = []
    begun = anyio.Event()

    async def progress(_done: float, _total: float | None, _message: str) -> None:
        begun.set()

    async def run() -> None:
        name, context = "everything:trigger-long-running-operation", CallContext(progress=progress)
        outputs.append(await chain.call(name, context=context, duration=100, steps=1000))

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await begun.wait()
            await kill("everything")
            assert "git:git_log" not in await chain.text("git:git_status", repo_path=str(chain.folder))

        again = await chain.text("everything:get-sum", a=1, b=2)

    assert outputs[0].is_error
    assert "It is not known whether" in outputs[0].text
    assert again == "The sum of 1 and 2 is 3."


async def test_a_server_that_is_killed_comes_back_with_what_it_kept(chain: Chain) -> None:
    entity = {"name": "茶马古道", "entityType": "路", "observations": ["始于云南"]}
    await chain.text("memory:create_entities", entities=[entity])
    lost = anyio.Event()
    forget = chain.registry.on_change(lambda: lost.set() if chain.state("memory") != "ready" else None)

    with anyio.fail_after(SECONDS):
        await kill("memory")
        await lost.wait()
        found = await chain.text("memory:open_nodes", names=["茶马古道"])
    forget()

    assert "始于云南" in found
