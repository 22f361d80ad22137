"""Clients of others at work with `loom-agent-server`: both eras, stdio and HTTP, with real servers behind it.

An agent uses the file server of the makers of MCP and `loom-kb`; goals, names and texts are Chinese. What is
done with it is what hosts do, the rude ones too. Each client has both transports and both eras.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import ElicitResult

from tests.e2e.jsonrpc import StdioServer
from tests.fixtures import node as nodejs
from tests.fixtures.commands import run_command

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="needs npm")]

_AGENT = [sys.executable, "-m", "loom_agent"]
_KB = [sys.executable, "-m", "loom_kb"]
_HERE = Path(__file__).parent
_SCRIPTS = _HERE / "typescript"
_PEERS = _HERE.parent / "integration" / "mcp_peers"
_LONGEST = 50.0  # seconds: hosts cut a call at sixty
_VERSIONS = {"v1": None, "v2": "2026-07-28"}  # the first generation, of 2025-11-25, does not tell
_YES, _NO = ElicitResult(action="accept", content={}), ElicitResult(action="decline")


class Harbour(NamedTuple):
    """A home whose agents have the servers `文件` and `知识`.

    Attributes:
        home: Loom's.
        folder: where `文件` may read and write.
    """

    home: Path
    folder: Path

    @property
    def command(self) -> list[str]:
        return [*_AGENT, "serve", "--home", str(self.home)]

    @property
    def reading(self) -> str:
        """A goal that looks something up, and reads a file."""
        read = use("文件:read_text_file", path=str(self.folder / "灯塔.md"))
        return f"{use('知识:query', query='青岛港的港长是谁？')} 并 {read}"

    @property
    def work(self) -> str:
        """The same, and two files are written, of which one is none of the agent's business."""
        secret, report = (str(self.folder / name) for name in ("密码.md", "报告.md"))
        secretly = use("文件:write_file", path=secret, content="一二三")
        return (
            f"{self.reading} 并 {secretly} 并 {use('文件:write_file', path=report, content='港长是李明。')}"
        )

    def is_worked_on(self) -> bool:
        """Whether that was done, but for the file whose writing was denied."""
        written = {path.name: path.read_text(encoding="utf-8") for path in self.folder.iterdir()}
        return written.get("报告.md") == "港长是李明。" and "密码.md" not in written

    def audited(self) -> list[tuple[str, str, str]]:
        """The tools about whose calls was decided, how, and by whom, oldest first."""
        lines = (self.home / "audit" / "audit.jsonl").read_text(encoding="utf-8").splitlines()
        entries = [each for each in map(json.loads, lines) if each["kind"] == "decision"]
        return [(each["tool"], each["decision"], each["by"]) for each in entries]


def use(tool: str, **arguments: Any) -> str:
    """Return the text that the demonstration parses as a call."""
    return f"使用 {tool} {json.dumps(arguments, ensure_ascii=False)}"


@pytest.fixture(scope="module", autouse=True)
def longest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], float]]:
    """A call that waits as long as any, while the other tests run; gives the seconds that it took."""
    command = [*_AGENT, "--home", str(tmp_path_factory.mktemp("longest")), "--provider", "mock"]
    server = StdioServer(command, era="modern", timeout=90.0)

    def seconds() -> float:
        began = time.monotonic()
        run = server.call("agent_run", goal="等待 100")["structuredContent"]
        assert run["status"] == "working"
        assert "agent_wait" in run["next"]
        return time.monotonic() - began

    with ThreadPoolExecutor(1) as thread, closing(server):
        answer = thread.submit(seconds)
        yield lambda: answer.result(90)


@pytest.fixture(scope="module")
def knowledge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a knowledge base."""
    home = tmp_path_factory.mktemp("knowledge")
    text = "# 青岛港\n\n青岛港的港长是李明。"
    line = ["add", "--home", home, "--embedder", "hashing", "-"]
    run_command("loom_kb", *line, stdin=text.encode(), check=True)
    return home


@pytest.fixture
def harbour(
    knowledge: Path, home: Path, tmp_path: Path, stand_in: Callable[[list[str]], list[str]]
) -> Harbour:
    packages = nodejs.installed(_PEERS) / "node_modules" / "@modelcontextprotocol"
    script = str(packages / "server-filesystem" / "dist" / "index.js")
    folder = tmp_path / "文档"
    folder.mkdir()
    (folder / "灯塔.md").write_text("灯塔由王芳看守。\n", encoding="utf-8")
    for number in range(8):
        lines = [f"第{number}册第{line}号灯塔由李明看守。" for line in range(40)]
        (folder / f"名册{number}.md").write_text("\n".join(lines), encoding="utf-8")
    files = {"command": nodejs.node(least=(20, 0)), "args": [script, str(folder)]}
    program, *arguments = stand_in([*_KB, "--home", str(knowledge), "--embedder", "hashing"])
    base = {"command": program, "args": arguments}
    trusted = {"trusted": True}
    by_tool, alone = {"via_tool": "on"}, {"model": "mock", "mcp": {"servers": []}}
    read, commands = {"files": {"root": str(folder)}}, {"enabled": True, "root": str(folder), "seconds": 1}
    profiles = {
        "港务": {"model": "mock", "approvals": by_tool},
        "限时": {**alone, "approvals": {"deadline_seconds": 1}},
        "长谈": {**alone, "compaction": {"window": 3000}, "tools": read},
        "命令": {**alone, "approvals": by_tool, "tools": {"shell": commands}},
    }
    home.mkdir()
    servers = {"mcpServers": {"文件": {**files, "loom": trusted}, "知识": {**base, "loom": trusted}}}
    for name, value in (("mcp.json", servers), ("agent.json", {"profiles": profiles})):
        (home / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return Harbour(home, folder)


Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def target(
    request: pytest.FixtureRequest, harbour: Harbour, served: Callable[..., AbstractContextManager[str]]
) -> Iterator[list[str]]:
    """The URL of a server, or the command that starts one."""
    if request.param == "stdio":
        yield harbour.command
    else:
        with served(harbour.command, "loom-agent-server") as url:
            yield [url]


@pytest.fixture
def connect(target: list[str], mode: str) -> Connect:
    """Opens a client in the era of 2026-07-28, or with a handshake."""
    program, *arguments = target
    where = StdioServerParameters(command=program, args=arguments) if arguments else program

    @asynccontextmanager
    async def connect(**options: Any) -> AsyncGenerator[Client]:
        with anyio.fail_after(60):
            async with Client(where, mode=mode, **options) as client:
                assert client.protocol_version == ("2026-07-28" if mode == "auto" else "2025-11-25")
                yield client

    return connect


async def answered(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The data of a tool's answer, which is no error."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    return result.structured_content or {}


async def approved(client: Client, run: dict[str, Any]) -> dict[str, Any]:
    """The run, once a model has passed on that all it waits for is approved."""
    assert run["status"] == "input_required"
    decisions = [{"id": each["id"], "action": "approve"} for each in run["pending"]]
    return await answered(client, "agent_decide", run_id=run["run_id"], decisions=decisions)


async def events(client: Client, run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a run."""
    return (await answered(client, "agent_events", run_id=run["run_id"], limit=500))["events"]


async def servers_are_there(client: Client) -> None:
    """Returns when the agent has the tools of both servers."""
    while True:
        found = await answered(client, "tool_search", limit=100)
        if {"文件:read_text_file", "知识:query"} <= {tool["name"] for tool in found["tools"]}:
            return
        await anyio.sleep(0.1)


@pytest.mark.parametrize(
    ("mode", "target"),
    [("auto", "http"), ("legacy", "stdio")],
    indirect=["target"],
)
async def test_an_agent_works_for_a_client_in_python(connect: Connect, harbour: Harbour) -> None:
    asked: list[str] = []

    async def answer(_context: object, params: Any) -> ElicitResult:
        asked.append(params.message)
        return _NO if "密码.md" in params.message else _YES

    async with connect(elicitation_callback=answer) as client:
        await servers_are_there(client)
        await _is_done_as_the_user_decides(client, harbour)
        assert len(asked) == 4, "what reads only is asked about once"
    async with connect() as client:
        await _is_decided_by_the_tool_or_by_timeout(client, harbour)
        await _ends_as_it_is_told_or_too_late(client)
        await _is_made_shorter_in_the_middle(client)
        cut = await _is_cut_by_its_host(client)
    async with connect() as client:  # over stdio of another process: the first one went with its host
        done = await answered(client, "agent_wait", run_id=cut)
        types = [event["type"] for event in await events(client, done)]
    assert done["status"] == "completed"
    assert "Waited 2 s." in done["output"]
    assert types.count("request_start") == types.count("agent_finish") == 1


async def _is_done_as_the_user_decides(client: Client, harbour: Harbour) -> None:
    told: list[str] = []

    async def tell(_value: float, _total: float | None, message: str | None) -> None:
        told.append(message or "")

    result = await client.call_tool("agent_run", {"goal": harbour.work}, progress_callback=tell)
    assert not result.is_error, result.content[0].text
    run = result.structured_content or {}
    assert run["status"] == "completed"
    assert len((await answered(client, "agent_runs"))["runs"]) == 1, "a call made again is the same run"
    assert harbour.is_worked_on()
    assert 0 < run["output"].index("李明") < run["output"].index("王芳"), "in the order of the calls"
    assert told[-1] == "完成", told  # of the lines before it, as many as the rate limit lets through
    seen = await events(client, run)
    results = [event["payload"]["status"] for event in seen if event["type"] == "tool_result"]
    assert sorted(results) == ["denied", "success", "success", "success"]
    assert harbour.audited().count(("文件:write_file", "deny", "the user")) == 1, str(harbour.audited())
    again = await answered(client, "agent_run", goal=harbour.reading)
    assert again["status"] == "completed"
    seen = await events(client, again)
    types = [event["type"] for event in seen if event["type"] in {"tool_start", "tool_result"}]
    assert types == ["tool_start", "tool_start", "tool_result", "tool_result"], "side by side"


async def _is_decided_by_the_tool_or_by_timeout(client: Client, harbour: Harbour) -> None:
    done = await approved(
        client, await answered(client, "agent_run", goal="请记一条笔记：灯塔", profile="港务")
    )
    assert done["status"] == "completed"
    run = await answered(client, "agent_run", goal="请记一条笔记：海", profile="限时")
    assert run["status"] == "input_required"
    done = await answered(client, "agent_wait", run_id=run["run_id"], after_seq=run["last_seq"])
    assert done["status"] == "completed"
    assert "没有人及时批准" in done["output"]
    (decided,) = [each["payload"] for each in await events(client, run) if each["type"] == "approval_decided"]
    assert decided["action"] == "deny"
    assert harbour.audited()[-1] == ("keep_note", "deny", "no one, in time"), str(harbour.audited()[-3:])


async def _ends_as_it_is_told_or_too_late(client: Client) -> None:
    run = await answered(client, "agent_run", goal="等待 0.5", wait_seconds=0, profile="限时")
    paused = await answered(client, "agent_control", run_id=run["run_id"], action="pause")
    assert paused["status"] == "paused"
    await answered(client, "agent_control", run_id=run["run_id"], action="resume")
    assert (await answered(client, "agent_wait", run_id=run["run_id"]))["status"] == "completed"
    run = await answered(client, "agent_run", goal="等待 60", wait_seconds=0, profile="限时")
    order = {"run_id": run["run_id"], "action": "abort", "reason": "不需要了"}
    aborted = await answered(client, "agent_control", **order)
    assert aborted["status"] == "aborted"
    assert "不需要了" in aborted["problem"]
    late = await answered(client, "agent_run", goal=use("shell", command="sleep 60"), profile="命令")
    done = await approved(client, late)
    assert done["status"] == "completed"
    assert "ended after 1 seconds" in done["output"]


async def _is_made_shorter_in_the_middle(client: Client) -> None:
    run: dict[str, Any] = {"session_id": ""}
    for number in range(8):
        goal = use("read_file", path=f"名册{number}.md")
        run = await answered(client, "agent_run", goal=goal, profile="长谈", session_id=run["session_id"])
        assert run["status"] == "completed", run["problem"]
        assert f"第{number}册第0号灯塔" in run["output"]
        types = [event["type"] for event in await events(client, run)]
        if "compression_applied" in types:
            break
    assert types.index("compression_applied") < types.index("agent_finish")


async def _is_cut_by_its_host(client: Client) -> str:
    call = {"goal": "等待 2", "profile": "限时"}
    with pytest.raises(MCPError, match=r"(?i)timed out|timeout"):
        await client.call_tool("agent_run", call, read_timeout_seconds=0.7)
    run = (await answered(client, "agent_runs", limit=1))["runs"][0]
    assert (run["goal"], run["status"]) == ("等待 2", "working")
    return run["run_id"]


def seen_by(script: str, *arguments: str) -> dict[str, Any]:
    """Run a Node script with the packages that it needs, and return its output."""
    folder = nodejs.installed(_SCRIPTS)
    for name in ("connect.mjs", script):
        shutil.copy(_SCRIPTS / name, folder)
    line = [nodejs.node(least=(20, 0)), str(folder / script), *arguments]
    done = subprocess.run(line, capture_output=True, encoding="utf-8", timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("generation", "target"),
    [("v1", "http"), ("v2", "stdio")],
    indirect=["target"],
)
def test_an_agent_works_for_a_client_in_typescript(
    generation: str, target: list[str], harbour: Harbour, stand_in: Callable[[list[str]], list[str]]
) -> None:
    if target == harbour.command:
        seen = seen_by("drive_agent.mjs", generation, "stdio", harbour.work, *stand_in(target))
    else:
        seen = seen_by("drive_agent.mjs", generation, "http", harbour.work, *target)
    assert seen.get("version") == _VERSIONS[generation]
    assert (seen["asked"], seen["worked"]) == (4, "completed")
    assert "李明" in seen["output"]
    assert harbour.is_worked_on()
    # The last of them may come in one read with the result, and the SDK then drops it.
    assert "正在思考" in seen["told"][0], seen["told"]
    assert seen["decided"] == "completed"
    assert "没有人及时批准" in seen["refused"]
    assert (seen["paused"], seen["resumed"], seen["aborted"]) == ("paused", "completed", "aborted")
    assert (seen["cut"] != "", seen["found"]) == (True, "working")
    assert "Waited 2 s." in seen["again"]


@pytest.mark.parametrize(("generation", "transport"), [("v1", "stdio"), ("v2", "http")])
def test_a_client_in_typescript_calls_is_asked_and_waits(
    generation: str,
    transport: str,
    tmp_path: Path,
    served: Callable[..., AbstractContextManager[str]],
) -> None:
    command = [*_AGENT, "serve", "--home", str(tmp_path), "--provider", "mock"]
    if transport == "stdio":
        seen = seen_by("ask_agent.mjs", generation, transport, *command)
    else:
        with served(command, "loom-agent-server") as url:
            seen = seen_by("ask_agent.mjs", generation, transport, url)
    assert seen.get("version") == _VERSIONS[generation]
    assert (seen["called"]["status"], seen["called"]["usage"]["tool_calls"]) == ("completed", 1)
    (message,) = seen["asked"]
    assert "灯塔" in message
    assert seen["approved"]["status"] == "completed"
    assert "灯塔" in seen["approved"]["output"]
    assert (seen["begun"], seen["waited"]["status"]) == ("working", "completed")
    assert "Waited 0.3 s." in seen["waited"]["output"]


def test_no_call_takes_so_long_that_a_host_would_cut_it(longest: Callable[[], float]) -> None:
    assert 40 < longest() < _LONGEST
