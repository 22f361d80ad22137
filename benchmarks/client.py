"""Overhead of Loom's MCP client over the SDK's, and whether many servers start as fast as one.

    python benchmarks/client.py calls [--calls 200] [--rounds 15] [--era legacy|modern]
    python benchmarks/client.py start [--servers 20] [--rounds 3]

`calls`: the echo tool of `echo_server.py` is called by turns, one call after the other, over stdio and over
HTTP: by the SDK's own client, by `ServerConnection.call_tool`, and by `MCPTool.call` of a registry, which
checks arguments and results and makes a `ToolOutput` of these. Over HTTP all three ask the same process, over
stdio each has a child of its own. Printed are microseconds a call, as who calls waits and as our processor
works (the client alone), the median of all rounds, and how they relate to the SDK's, the medians of the
rounds' ratios.

`start`: a registry loads so many servers at once, from the first step to all tools; and the slowest of them
alone. `waiting` servers sleep before they answer, each longer than the one before, and cost the processor
next to nothing: so it is seen whether one waits for another. `working` ones are those of the SDK for Python,
which load for a second of processor time: so many of them cannot be started faster than the processors load
them. Printed are seconds, medians of the rounds, and what all took of the processors, divided by how many
there are.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from calls import MODES, Taken, add_calls
from mcp import Client, StdioServerParameters
from server import served

from loom_core.mcp_client.configuration.server_config import ServerConfig
from loom_core.mcp_client.connections.connection import ServerConnection
from loom_core.mcp_client.registry import MCPToolRegistry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from loom_core.mcp_client.configuration.server_config import Era

_HERE = Path(__file__).parent
_ECHO = str(_HERE / "echo_server.py")
_WAITING = str(_HERE / "waiting_server.py")
_SLOWEST_SECONDS = 3.0
_START_SECONDS = 300.0

_Echo: TypeAlias = Callable[[str], Awaitable[object]]
"""Calls the echo tool with a text and gives the data of its answer."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    add_calls(commands)
    start = commands.add_parser("start", help="many servers at once")
    start.add_argument("--servers", type=int, default=20)
    start.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.command == "calls":
        asyncio.run(measure_calls(calls=args.calls, rounds=args.rounds, era=args.era))
    else:
        asyncio.run(measure_starts(servers=args.servers, rounds=args.rounds))


async def measure_calls(*, calls: int, rounds: int, era: Era) -> None:
    """Call by turns in the three ways, over each transport, and print what it took."""
    print("| transport | way | µs | ratio | processor µs | ratio |")
    print("|---|---|---|---|---|---|")
    for transport in ("stdio", "HTTP"):
        async with AsyncExitStack() as stack:
            config = stack.enter_context(echoing(transport, era))
            ways: dict[str, _Echo] = {
                "SDK": await stack.enter_async_context(by_sdk(config)),
                "ServerConnection": await stack.enter_async_context(by_connection(config)),
                "MCPTool": await stack.enter_async_context(by_tool(config)),
            }
            found: dict[str, list[Taken]] = {name: [] for name in ways}
            for number in range(rounds + 1):
                for name in sorted(ways, reverse=number % 2 == 0):
                    found[name].append(await taken(ways[name], calls))
        bare = found["SDK"][1:]  # the first round warms up
        for name, all_rounds in found.items():
            cells = [transport, name]
            for what in range(2):
                values = [each[what] for each in all_rounds[1:]]
                ratios = [value / least[what] for value, least in zip(values, bare, strict=True)]
                cells += [f"{statistics.median(values):.0f}", f"**{statistics.median(ratios):.2f}**"]
            print(f"| {' | '.join(cells)} |", flush=True)


@contextmanager
def echoing(transport: str, era: Era) -> Iterator[ServerConfig]:
    """The entry of the echo server; over HTTP it runs as long as the block."""
    if transport == "stdio":
        yield ServerConfig(
            name="echo", transport="stdio", command=sys.executable, args=(_ECHO,), era=era, start_seconds=60
        )
    else:
        with served("bare") as url:
            yield ServerConfig(name="echo", transport="http", url=url, era=era)


@asynccontextmanager
async def by_sdk(config: ServerConfig) -> AsyncIterator[_Echo]:
    server = config.url or StdioServerParameters(
        command=config.command, args=list(config.args), env=dict(os.environ)
    )
    async with Client(server, mode=MODES[config.era]) as client:

        async def echo(text: str) -> object:
            return (await client.call_tool("echo", {"text": text})).structured_content

        yield echo


@asynccontextmanager
async def by_connection(config: ServerConfig) -> AsyncIterator[_Echo]:
    connection = ServerConnection(config)
    owner = asyncio.create_task(connection.run())
    try:
        await connection.ready()

        async def echo(text: str) -> object:
            return (await connection.call_tool("echo", {"text": text})).structured_content

        yield echo
    finally:
        await connection.close()
        await owner


@asynccontextmanager
async def by_tool(config: ServerConfig) -> AsyncIterator[_Echo]:
    with tempfile.TemporaryDirectory() as home:
        async with MCPToolRegistry(home=Path(home), servers=[config]) as registry:
            await registry.load_servers()
            tool = registry.find("echo:echo")

            async def echo(text: str) -> object:
                return (await tool.call({"text": text})).structured

            yield echo


async def taken(echo: _Echo, calls: int) -> Taken:
    """Microseconds a call: on the clock, and of this process's processor time."""
    worked, began = time.process_time(), time.perf_counter()
    for number in range(calls):
        text = f"回声 {number}"
        answer = await echo(text)
        assert answer == {"result": text}, answer
    waited, worked = time.perf_counter() - began, time.process_time() - worked
    return Taken(waited / calls * 1e6, worked / calls * 1e6)


async def measure_starts(*, servers: int, rounds: int) -> None:
    """Start so many servers at once, and the slowest of them alone, and print what it took."""
    print("| servers | kind | slowest alone s | all s | ratio | processor s of all / processors |")
    print("|---|---|---|---|---|---|")
    waiting = [
        entry(number, "-S", _WAITING, str(_SLOWEST_SECONDS * (number + 1) / servers))
        for number in range(servers)
    ]
    working = [entry(number, _ECHO) for number in range(servers)]
    for kind, configs in (("waiting", waiting), ("working", working)):
        await started(configs[-1:])  # which warms up
        alone = [await started(configs[-1:]) for _ in range(rounds)]
        together = [await started(configs) for _ in range(rounds)]
        slowest = statistics.median(each.waited for each in alone)
        all_of_them = statistics.median(each.waited for each in together)
        worked = statistics.median(each.worked for each in together) / (os.cpu_count() or 1)
        cells = [servers, kind, *(f"{value:.2f}" for value in (slowest, all_of_them))]
        cells += [f"**{all_of_them / slowest:.2f}**", f"{worked:.2f}"]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


def entry(number: int, *args: str) -> ServerConfig:
    return ServerConfig(
        name=f"s{number}",
        transport="stdio",
        command=sys.executable,
        args=args,
        start_seconds=_START_SECONDS,
    )


async def started(configs: Sequence[ServerConfig]) -> Taken:
    """Seconds until all tools are there, and what they and this process have worked when all is closed."""
    worked = worked_so_far()
    with tempfile.TemporaryDirectory() as home:
        began = time.perf_counter()
        async with MCPToolRegistry(home=Path(home), servers=configs) as registry:
            tools = await registry.load_servers()
            waited = time.perf_counter() - began
    assert {tool.server for tool in tools} == {config.name for config in configs}
    return Taken(waited, worked_so_far() - worked)


def worked_so_far() -> float:
    """Seconds of processor time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
