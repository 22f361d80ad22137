"""How long a server takes from its start to its list of tools, against a bare echo server on the SDK.

    python benchmarks/startup.py [--era legacy|modern] [--pairs 10] [--json] [COMMAND ...]

Both servers are started in turn, over stdio and with raw JSON-RPC, as hosts start them: the next request is
sent when the last one is answered. Every pair is run in the other order than the one before, and a first
pair is not counted: it fills the disk cache and compiles the modules. On a busy machine the median of the
ratios within pairs says more than the ratio of the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_ECHO = [sys.executable, str(Path(__file__).with_name("echo_server.py"))]
_KB = [sys.executable, "-m", "loom_kb"]
_CLIENT = {"name": "loom-benchmark", "version": "1"}
_ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": _CLIENT,
}
_HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": _CLIENT}


def seconds_to_tools(command: list[str], era: str, environment: dict[str, str]) -> float:
    """Start a server, ask for its tools as a client of that era does, stop it.

    Raises:
        SystemExit: the server gave no list of tools.
    """
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        if era == "modern":
            _ask(process, 1, "server/discover", {"_meta": _ENVELOPE})
            tools = _ask(process, 2, "tools/list", {"_meta": _ENVELOPE})
        else:
            _ask(process, 1, "initialize", _HANDSHAKE)
            _send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
            tools = _ask(process, 2, "tools/list", {})
        elapsed = time.perf_counter() - began
        _, log = process.communicate()
    if not tools.get("result", {}).get("tools"):
        sys.exit(f"{' '.join(command)} gave no tools: {tools}\n{log.decode(errors='replace')}")
    return elapsed


def measure(command: list[str], *, era: str, pairs: int) -> dict[str, Any]:
    """Run the pairs and sum them up; times in milliseconds."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ours: list[float] = []
    echo: list[float] = []
    with tempfile.TemporaryDirectory() as home:
        environment["LOOM_HOME"] = home
        for pair in range(pairs + 1):
            turns = [(ours, command), (echo, _ECHO)]
            for times, started in turns if pair % 2 else reversed(turns):
                times.append(1000 * seconds_to_tools(started, era, environment))
    ours, echo = ours[1:], echo[1:]
    return {
        "command": command,
        "era": era,
        "pairs": pairs,
        "ours_ms": [round(time, 1) for time in ours],
        "echo_ms": [round(time, 1) for time in echo],
        "ours_median_ms": round(statistics.median(ours), 1),
        "echo_median_ms": round(statistics.median(echo), 1),
        "ratio_of_medians": round(statistics.median(ours) / statistics.median(echo), 3),
        "median_of_ratios": round(statistics.median(a / b for a, b in zip(ours, echo, strict=True)), 3),
    }


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
    print(f"{result['era']}, {result['pairs']} pairs, from start to tools/list")
    print(f"  this server        {result['ours_median_ms']:8.1f} ms  (median)")
    print(f"  echo server        {result['echo_median_ms']:8.1f} ms  (median)")
    print(f"  ratio of medians   {result['ratio_of_medians']:8.3f}")
    print(f"  median of ratios   {result['median_of_ratios']:8.3f}")


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
