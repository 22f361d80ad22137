"""How long a question takes while another process reads documents and makes their vectors.

    python benchmarks/latency_busy.py --seconds 600 FOLDER…

`loom-kb add FOLDER…` works on a new knowledge base. Meanwhile the same questions are asked in two ways: by a
client over stdio of a second `loom-kb serve`, which asks the process that works, and by `loom-kb query`, each
time a new process. Each time `loom-kb --version` shows how long a process takes to start on this machine at
that moment. Markdown is printed: seconds by what the first process was doing, with the load of the machine.

`--embedder hashing` makes vectors at once, so that the end of the work, the graph included, is measured too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from bases import percentile

QUESTIONS = (
    "How does PostgreSQL prevent transaction ID wraparound?",
    "How do I skip the first items of an iterator?",
    "怎样在 Debian 上配置网络？",
    "git rebase interactive",
    "How is a Debian package signed?",
    "PostgreSQL 怎样避免事务号回卷？",
)
_PAUSE = 0.2  # seconds between two questions, so that asking is not what keeps the machine busy
_CLIENT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    arguments.add_argument("--seconds", type=float, default=600.0, help="of asking, if the work takes longer")
    arguments.add_argument("--embedder", default="auto")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="loom-busy-") as home:
        measure(args.folders, home, seconds=args.seconds, embedder=args.embedder)


def measure(folders: list[Path], home: str, *, seconds: float, embedder: str) -> None:
    """Add the folders and ask meanwhile, then print what it took."""
    os.environ["LOOM_HOME"] = home
    command = [
        "loom-kb",
        "add",
        "--kb",
        "docs",
        "--embedder",
        embedder,
        *(str(folder.absolute()) for folder in folders),
    ]
    times = Times()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
        server: Server | None = None
        try:
            while not _embedded()[1]:
                _ended_early(worker)
                time.sleep(_PAUSE)
            server = Server()
            end = time.monotonic() + seconds
            for number in count():
                if time.monotonic() > end or worker.poll() is not None:
                    break
                times.ask(QUESTIONS[number % len(QUESTIONS)], server)
        finally:
            worker.terminate()
            if server is not None:
                server.close()
    print("\n".join(times.table()))


def _ended_early(worker: subprocess.Popen[bytes]) -> None:
    if worker.poll() is not None:
        sys.exit(f"`loom-kb add` ended with {worker.returncode} before anything was found")


def _embedded() -> tuple[int, int]:
    """Passages with a vector, and all passages."""
    done = subprocess.run(
        ["loom-kb", "stats", "--kb", "docs", "--json"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return 0, 0
    told = json.loads(done.stdout)
    return told["vectors"], told["passages"]


class Server:
    """A second process, over stdio."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["loom-kb", "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._numbers = count(1)
        self._call("initialize", _CLIENT)
        self._send({"method": "notifications/initialized"})

    def query(self, question: str) -> None:
        """Ask one question."""
        answer = self._call("tools/call", {"name": "query", "arguments": {"query": question}})
        if answer["result"].get("isError"):
            sys.exit(f"the server answered: {answer['result']['content']}")

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=60)

    def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        self._send({"id": number, "method": method, "params": params})
        for line in self._process.stdout or ():
            answer = json.loads(line)
            if answer.get("id") == number and "method" not in answer:
                return answer
        sys.exit("the server ended")

    def _send(self, message: dict[str, Any]) -> None:
        if self._process.stdin is None:
            raise AssertionError("opened with a pipe")
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()


@dataclass(slots=True)
class Times:
    """Seconds by what the first process was doing and by who asked, and the load of the machine meanwhile."""

    seconds: defaultdict[tuple[str, str], list[float]] = field(
        default_factory=lambda: defaultdict[tuple[str, str], list[float]](list)
    )
    loads: list[float] = field(default_factory=list[float])

    def ask(self, question: str, server: Server) -> None:
        """Ask a question in both ways."""
        started = time.perf_counter()
        server.query(question)
        served = time.perf_counter()
        asked = subprocess.run(
            ["loom-kb", "query", "--kb", "docs", "--json", question], stdout=subprocess.PIPE, check=True
        )
        answered = time.perf_counter()
        subprocess.run(["loom-kb", "--version"], stdout=subprocess.DEVNULL, check=True)
        ended = time.perf_counter()
        told = json.loads(asked.stdout)
        doing = "reads"
        if told["embedded"]:
            doing = "makes vectors" if told["embedded"] < told["total"] else "ends its work"
        for who, took in (
            ("a client over stdio", served - started),
            ("`loom-kb query`", answered - served),
            ("(`loom-kb --version`)", ended - answered),
        ):
            self.seconds[doing, who].append(took)
        self.loads.append(os.getloadavg()[0])
        time.sleep(_PAUSE)

    def table(self) -> list[str]:
        """The measurements as a Markdown table."""
        ranked = sorted(self.loads)
        lines = [
            f"load of the machine {ranked[0]:.1f} to {ranked[-1]:.1f}, median {percentile(ranked, 50):.1f}",
            "",
            "| the process that works | asked by | n | p50 s | p95 s | p99 s | max s |",
            "|---" * 7 + "|",
        ]
        for (doing, who), values in self.seconds.items():
            shown = [f"{percentile(values, percent):.2f}" for percent in (50, 95, 99)]
            lines.append(f"| {doing} | {who} | {len(values)} | {' | '.join(shown)} | {max(values):.2f} |")
        return lines


if __name__ == "__main__":
    main()
