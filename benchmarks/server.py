"""Overhead of Loom's server layer over the SDK, and how it handles many concurrent clients.

    python benchmarks/server.py calls [--calls 200] [--rounds 15] [--era legacy|modern]
    python benchmarks/server.py load [--clients 50] [--seconds 60] [--embedder NAME]

`calls`: an echo tool of the bare SDK and one of Loom's factory (`echo_server.py`, `loom_echo_server.py`) are
called by turns by the same client, one call after the other: in memory, over stdio and over HTTP. Printed
are microseconds a call, as the client waits and as the server's processor works (in memory: client and
server), the median of all rounds, and the ratios of the two servers, the medians of the rounds' ratios. On a
busy machine the processor's time says more.

`load`: `loom-kb` over HTTP with some notes, English and Chinese; every client asks `query` again as soon as
it is answered, each time something else. Printed are answers, errors, how long answers took, and the
server's memory at five moments. All clients are in one process, which takes processor time of its own; for
the server's share of a call see `calls`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import httpx2
from calls import MODES, Taken, add_calls
from echo_server import server as bare_server
from loom_echo_server import echo_server
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_HERE = Path(__file__).parent
_PROGRAMS = {"bare": _HERE / "echo_server.py", "loom": _HERE / "loom_echo_server.py"}
_NOTES = 300
_LOOKS = 5  # at the memory, at equal distances


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    add_calls(commands)
    load = commands.add_parser("load", help="many clients of loom-kb")
    load.add_argument("--clients", type=int, default=50)
    load.add_argument("--seconds", type=float, default=60.0)
    load.add_argument("--embedder", default="auto")
    args = parser.parse_args()
    if args.command == "calls":
        asyncio.run(measure_calls(calls=args.calls, rounds=args.rounds, mode=MODES[args.era]))
    else:
        asyncio.run(measure_load(clients=args.clients, seconds=args.seconds, embedder=args.embedder))


async def measure_calls(*, calls: int, rounds: int, mode: str) -> None:
    """Call the two servers by turns, over each transport, and print what it took."""
    print("| transport | SDK µs | Loom µs | ratio | SDK processor µs | Loom processor µs | ratio |")
    print("|---|---|---|---|---|---|---|")
    for transport in ("memory", "stdio", "HTTP"):
        async with AsyncExitStack() as servers:
            clients = {
                name: await servers.enter_async_context(connected(name, transport, mode))
                for name in _PROGRAMS
            }
            found: dict[str, list[Taken]] = {name: [] for name in clients}
            for number in range(rounds + 1):
                for name in sorted(clients, reverse=number % 2 == 0):
                    found[name].append(await taken(clients[name], calls))
        bare, loom = found["bare"][1:], found["loom"][1:]  # the first round warms up
        cells = [transport]
        for what in range(2):
            pairs = [(b[what], o[what]) for b, o in zip(bare, loom, strict=True)]
            medians = [statistics.median(column) for column in zip(*pairs, strict=True)]
            ratio = statistics.median(o / b for b, o in pairs)
            cells += [f"{medians[0]:.0f}", f"{medians[1]:.0f}", f"**{ratio:.2f}**"]
        print(f"| {' | '.join(cells)} |", flush=True)


@asynccontextmanager
async def connected(name: str, transport: str, mode: str) -> AsyncIterator[Client]:
    """A client of one of the two echo servers."""
    if transport == "memory":
        async with Client(bare_server if name == "bare" else echo_server().protocol, mode=mode) as client:
            yield client
    elif transport == "stdio":
        command = StdioServerParameters(
            command=sys.executable, args=[str(_PROGRAMS[name])], env=dict(os.environ)
        )
        async with Client(command, mode=mode) as client:
            yield client
    else:
        with served(name) as url:
            async with Client(url, mode=mode) as client:
                yield client


@contextmanager
def served(name: str) -> Iterator[str]:
    """The URL of one of the two echo servers, as soon as it can be reached."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, _PROGRAMS[name], "http", str(port)]) as process:
        try:
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()


async def taken(client: Client, calls: int) -> Taken:
    """Microseconds a call: on the client's clock, and of the server's processor."""
    worked, began = await worked_so_far(client), time.perf_counter()
    for number in range(calls):
        text = f"回声 {number}"
        answer = await client.call_tool("echo", {"text": text})
        assert answer.structured_content == {"result": text}, answer
    waited = time.perf_counter() - began
    worked = await worked_so_far(client) - worked
    return Taken(waited / calls * 1e6, worked / calls * 1e6)


async def worked_so_far(client: Client) -> float:
    answer = await client.call_tool("worked", {})
    assert answer.structured_content is not None
    return answer.structured_content["result"]


async def measure_load(*, clients: int, seconds: float, embedder: str) -> None:
    """Let so many clients ask for so long, and print how it went."""
    took: list[float] = []
    errors: list[str] = []
    memory: list[float] = []
    with tempfile.TemporaryDirectory() as folder, knowledge_base(Path(folder), embedder) as (url, process):
        ends = time.monotonic() + seconds

        async def ask(number: int) -> None:
            # Half of the clients are of each era.
            mode = list(MODES.values())[number % 2]
            async with (
                httpx2.AsyncClient(timeout=60, verify=False) as http,
                Client(streamable_http_client(url, http_client=http), mode=mode) as client,
            ):
                for step in itertools.count():
                    if time.monotonic() >= ends:
                        return
                    wanted = random.Random(number * 100_003 + step).randrange(_NOTES)
                    await ask_once(client, wanted, took, errors)

        async def watch() -> None:
            for _ in range(_LOOKS):
                await anyio.sleep(seconds / (_LOOKS + 1))
                memory.append(resident(process.pid))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            for number in range(clients):
                tasks.start_soon(ask, number)
    took.sort()
    print("| clients | seconds | answers | errors | p50 ms | p95 ms | p99 ms | longest ms | MiB |")
    print("|---|---|---|---|---|---|---|---|---|")
    shares = [f"{1000 * took[int(share * (len(took) - 1))]:.0f}" for share in (0.5, 0.95, 0.99, 1.0)]
    sizes = ", ".join(f"{size:.0f}" for size in memory)
    cells = [clients, f"{seconds:.0f}", len(took), len(errors), *shares, sizes]
    print(f"| {' | '.join(map(str, cells))} |")
    for error in sorted(set(errors))[:5]:
        print(f"error: {error}", file=sys.stderr)


async def ask_once(client: Client, wanted: int, took: list[float], errors: list[str]) -> None:
    question = f"Who keeps lighthouse {wanted}?" if wanted % 2 else f"第{wanted}号灯塔的看守人是谁？"
    began = time.perf_counter()
    answer = await client.call_tool("query", {"query": question})
    took.append(time.perf_counter() - began)
    if answer.is_error or not (answer.structured_content or {}).get("passages"):
        errors.append(str(answer.content))


@contextmanager
def knowledge_base(folder: Path, embedder: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """`loom-kb` over HTTP with its notes read."""
    notes, options = folder / "notes", ["--home", str(folder / "home"), "--embedder", embedder]
    notes.mkdir()
    for number in range(_NOTES):
        text = f"Its keeper is Keeper{number} Brown.\n\n第{number}号灯塔位于青岛市，看守人是李明{number}。"
        (notes / f"{number}.md").write_text(f"# Lighthouse {number}\n\n{text}\n", encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "loom_kb", "add", str(notes), *options], check=True, capture_output=True
    )
    command = [sys.executable, "-m", "loom_kb", "serve", "--http", "--port", "0", *options]
    log = folder / "log"
    with log.open("w", encoding="utf-8") as written, subprocess.Popen(command, stderr=written) as process:
        try:
            while "loom-kb serves " not in (said := log.read_text(encoding="utf-8")):
                assert process.poll() is None, said
                time.sleep(0.05)
            yield said.partition("loom-kb serves ")[2].split()[0], process
        finally:
            process.terminate()


def resident(process: int) -> float:
    """MiB of memory that a process has, not counting what is swapped out."""
    said = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(process)], capture_output=True, text=True, check=True
    )
    return int(said.stdout) / 1024


if __name__ == "__main__":
    main()
