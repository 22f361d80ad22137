"""Fault isolation: a bad server costs its own tools and no other's time. All through a real `mcp.json`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_core.mcp_client.registry import MCPToolRegistry
from loom_core.tools.interface import CallContext, ToolOutput

pytestmark = [
    pytest.mark.hostile("MCP servers"),
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="one of the servers ends by a POSIX signal"),
]

SERVERS = Path(__file__).parents[1] / "unit" / "mcp_client"
MOMENT = (
    5.0  # that a call of a good server may take on a machine that has much to do; alone it takes a few ms
)
TOOL = {"name": "ask", "inputSchema": {"type": "object"}}

Opened = Callable[..., AbstractAsyncContextManager[MCPToolRegistry]]


def entry(script: str, *args: str, **loom: Any) -> dict[str, Any]:
    settings = {"era": "legacy", "start_seconds": 40, **loom}
    return {"command": sys.executable, "args": ["-S", str(SERVERS / script), *args], "loom": settings}


@pytest.fixture
def listed(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The entry of a server with the tools that are given; they can be changed by giving others."""

    def make(name: str, *tools: dict[str, Any]) -> dict[str, Any]:
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"tools": tools}), encoding="utf-8")
        return entry("listed_server.py", str(file))

    return make


@pytest.fixture
def opened(tmp_path: Path, listed: Callable[..., dict[str, Any]]) -> Opened:
    """A registry whose file names `good`, and what else is given; loaded."""

    @asynccontextmanager
    async def opening(**entries: dict[str, Any]) -> AsyncGenerator[MCPToolRegistry]:
        file = {"mcpServers": {**entries, "good": listed("good", TOOL)}}
        (tmp_path / "mcp.json").write_text(json.dumps(file), encoding="utf-8")
        async with MCPToolRegistry(home=tmp_path) as registry:
            await registry.load_servers()
            yield registry

    return opening


async def waits(registry: MCPToolRegistry, *, until: anyio.Event, pause: float = 0.0) -> list[float]:
    """Call a tool of `good` again and again; how many seconds each call took."""
    found: list[float] = []
    while not until.is_set():
        began = time.perf_counter()
        output = await registry.find("good:ask").call({})
        found.append(time.perf_counter() - began)
        assert not output.is_error, output.text
        await anyio.sleep(pause)
    return found


@pytest.mark.parametrize(
    ("tool", "arguments", "failed", "told"),
    [
        ("flood", {"count": 3000}, False, "flooded"),
        ("big", {"size": 50 << 20}, True, "answered with more than 32 MiB, which is not accepted"),
        ("big", {"size": 30 << 20}, False, "[truncated: "),
        ("die", {"why": "一个错误"}, True, "dying of 一个错误"),
        ("wait", {}, True, "did not answer `wait` within 1 s"),
        ("wrong", {}, True, "violated the protocol"),
        ("garbage", {}, False, "after the garbage"),
    ],
)
async def test_while_one_server_misbehaves_another_answers_and_then_both_do(
    opened: Opened, tool: str, arguments: dict[str, Any], failed: bool, told: str
) -> None:
    done = anyio.Event()
    outputs: list[ToolOutput] = []

    async with opened(bad=entry("raw_server.py")) as registry:

        async def misbehave() -> None:
            outputs.append(
                await registry.find(f"bad:{tool}").call(arguments, context=CallContext(seconds=limit))
            )
            done.set()

        limit = 1.0 if tool == "wait" else 60.0
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(misbehave)
                others = await waits(registry, until=done)
            again = await registry.find("bad:echo").call({"文": "再来"})

    assert max(others) < MOMENT
    assert (outputs[0].is_error, told in outputs[0].text) == (failed, True), outputs[0].text[:1000]
    assert not again.is_error, again.text


async def test_a_flood_is_read_little_by_little_so_that_others_are_answered_meanwhile(opened: Opened) -> None:
    done = anyio.Event()

    async with opened(bad=entry("raw_server.py")) as registry:

        async def flood() -> None:
            await registry.find("bad:flood").call({"count": 2000})
            done.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood)
            others = await waits(registry, until=done)

    assert len(others) > 20  # 6000 messages; a call needs a few turns of the event loop


async def test_a_server_that_floods_without_end_ends_with_its_call_and_the_registry(opened: Opened) -> None:
    done = anyio.Event()
    with anyio.fail_after(60):
        async with opened(bad=entry("raw_server.py")) as registry:

            async def flood() -> None:
                context = CallContext(seconds=0.15)  # ten times that, as it reports progress
                output = await registry.find("bad:flood").call({"count": 1 << 60}, context=context)
                assert output.is_error
                done.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(flood)
                others = await waits(registry, until=done, pause=0.01)
            began = time.perf_counter()

        closing = time.perf_counter() - began

    assert max(others) < MOMENT
    assert closing < 2 * MOMENT


async def test_a_server_that_changes_its_tools_is_followed_and_no_other_tool_is_touched(
    opened: Opened, listed: Callable[..., dict[str, Any]]
) -> None:
    announce, old, kept = ({**TOOL, "name": name} for name in ("announce", "旧", "留"))
    async with opened(shop=listed("shop", announce, old, kept)) as registry:
        before = {tool.name: tool for tool in registry.tools()}
        changed = anyio.Event()
        forget = registry.on_change(lambda: changed.set() if "shop:新" in names(registry) else None)
        listed("shop", announce, kept, {**TOOL, "name": "新"})

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(before["shop:announce"].call, {"times": 100})
                others = await waits(registry, until=changed)
        forget()
        gone = await before["shop:旧"].call({})
        new = await registry.find("shop:新").call({})

        assert max(others) < MOMENT
        assert gone.is_error
        assert "no longer has the tool" in gone.text
        assert not new.is_error
        assert registry.find("shop:留") is before["shop:留"]
        assert registry.find("good:ask") is before["good:ask"]


def names(registry: MCPToolRegistry) -> set[str]:
    return {tool.name for tool in registry.tools()}


async def test_tools_with_a_broken_schema_or_the_same_name_cost_only_themselves(
    opened: Opened, listed: Callable[..., dict[str, Any]]
) -> None:
    broken = {"name": "坏", "inputSchema": {"type": "object", "properties": {"a": {"type": "数"}}}}
    twice = [{**TOOL, "name": "same"}, {**TOOL, "name": "same", "description": "another one"}]

    async with opened(bad=listed("bad", broken, *twice, TOOL)) as registry:
        status = next(status for status in registry.servers() if status.name == "bad")

        assert status.state == "ready"
        assert set(status.left_out) == {"坏", "same"}
        assert "several tools" in status.left_out["same"]
        assert {"bad:ask", "good:ask"} <= names(registry)
        assert not (await registry.find("bad:ask").call({})).is_error


async def test_of_five_hundred_servers_the_good_ones_are_there_at_once(
    tmp_path: Path, opened: Opened
) -> None:
    hanging = {f"hangs{number}": entry("raw_server.py", "hangs", start_seconds=2) for number in range(20)}
    ending = {f"ends{number}": entry("raw_server.py", "exits") for number in range(20)}
    missing = {f"缺{number}": {"command": "no-such-command-anywhere"} for number in range(430)}
    wrong: dict[str, dict[str, Any]] = {f"wrong{number}": {"args": []} for number in range(29)}
    began = time.perf_counter()

    with anyio.fail_after(60):
        async with opened(**hanging, **ending, **missing, **wrong) as registry:
            loaded = time.perf_counter() - began
            told = {status.name: status.problem for status in registry.servers()}
            good = await registry.find("good:ask").call({})
            began = time.perf_counter()
        closing = time.perf_counter() - began

    assert loaded < 30
    assert closing < 10
    assert len(told) == 500
    assert [name for name, problem in told.items() if not problem] == ["good"]
    assert "did not answer within 2 s" in told["hangs0"]
    assert "no such database" in told["ends0"]
    assert "no-such-command-anywhere" in told["缺0"]
    assert "neither a command nor a url" in told["wrong0"]
    assert not good.is_error, good.text
