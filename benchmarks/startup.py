"""Measure how long a server takes to its first answer and to its tools, next to a bare echo server.

    python benchmarks/startup.py [--era legacy|modern] [--pairs 10] [--json] [COMMAND ...]

Both servers are started in turn, over stdio and with raw JSON-RPC, as hosts start them: the next request is
sent when the last one is answered. Every pair is run in the other order than the one before, and a first
pair is not counted: it fills the disk cache and compiles the modules. On a busy machine the median of the
ratios within pairs says more than the ratio of the medians. The processor's time is that of the whole life
of the command with its children: `uvx --find-links dist --from … loom-kb` is a command, too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

_ECHO = [sys.executable, str(Path(__file__).with_name("echo_server.py"))]
_KB = [sys.executable, "-m", "loom_kb"]
_CLIENT = {"name": "loom-benchmark", "version": "1"}
_ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": _CLIENT,
}
_HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": _CLIENT}


class Start(NamedTuple):
    """The times of one start in milliseconds: to the first answer, to the list of tools, of the processor."""

    first: float
    tools: float
    processor: float


def measure_start(command: list[str], era: str, environment: dict[str, str]) -> Start:
    """Start a server, ask for its tools as a client of that era does, stop it.

    Raises:
        SystemExit: the server gave no list of tools.
    """
    used = _processor_seconds()
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        if era == "modern":
            _ask(process, 1, "server/discover", {"_meta": _ENVELOPE})
            first = time.perf_counter() - began
            tools = _ask(process, 2, "tools/list", {"_meta": _ENVELOPE})
        else:
            _ask(process, 1, "initialize", _HANDSHAKE)
            first = time.perf_counter() - began
            _send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
            tools = _ask(process, 2, "tools/list", {})
        elapsed = time.perf_counter() - began
        _, log = process.communicate()
    if not tools.get("result", {}).get("tools"):
        sys.exit(f"{' '.join(command)} gave no tools: {tools}\n{log.decode(errors='replace')}")
    return Start(1000 * first, 1000 * elapsed, 1000 * (_processor_seconds() - used))


def measure(command: list[str], *, era: str, pairs: int) -> dict[str, Any]:
    """Run the pairs and sum them up; times in milliseconds."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ours: list[Start] = []
    echo: list[Start] = []
    with tempfile.TemporaryDirectory() as home:
        environment["LOOM_HOME"] = home
        for pair in range(pairs + 1):
            turns = [(ours, command), (echo, _ECHO)]
            for starts, started in turns if pair % 2 else reversed(turns):
                starts.append(measure_start(started, era, environment))
    ours, echo = ours[1:], echo[1:]
    found: dict[str, Any] = {"command": command, "era": era, "pairs": pairs}
    for part in Start._fields:
        mine = [getattr(start, part) for start in ours]
        theirs = [getattr(start, part) for start in echo]
        found[part] = {
            "ours_ms": [round(time, 1) for time in mine],
            "echo_ms": [round(time, 1) for time in theirs],
            "ours_median_ms": round(statistics.median(mine), 1),
            "echo_median_ms": round(statistics.median(theirs), 1),
            "median_of_ratios": round(statistics.median(a / b for a, b in zip(mine, theirs, strict=True)), 3),
        }
    return found


def main() -> None:
    """Read the command line, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--era", choices=("legacy", "modern"), default="legacy")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print everything measured as JSON")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the server; default: loom-kb")
    options = parser.parse_args()
    result = measure(options.command or _KB, era=options.era, pairs=options.pairs)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{result['era']}, {result['pairs']} pairs, medians in ms")
    print(f"  {'':<14} {'this':>8} {'echo':>8} {'ratio':>8}")
    for part, name in zip(Start._fields, ("first answer", "tools/list", "processor"), strict=True):
        told = result[part]
        times = f"{told['ours_median_ms']:8.0f} {told['echo_median_ms']:8.0f} {told['median_of_ratios']:8.3f}"
        print(f"  {name:<14} {times}")


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _ask(
    process: subprocess.Popen[bytes], number: int, method: str, params: dict[str, Any]
) -> dict[str, Any]:
    _send(process, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    assert process.stdout is not None
    for line in process.stdout:
        message: dict[str, Any] = json.loads(line)
        if message.get("id") == number:
            return message
    return {}


def _send(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()


if __name__ == "__main__":
    main()
