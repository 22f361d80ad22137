"""Asks an installed `loom-kb` for its tools and for an answer, as a host does: raw JSON-RPC over stdio.

    python -m tools.smoke_wheel ENVIRONMENT

ENVIRONMENT is a virtual environment with the wheels of loom-kb in it and nothing of this repository. The
documents asked about are the ones that the wheel ships. Run it from the repository's root.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.e2e.jsonrpc import Era, StdioServer

_TOOLS = {"query", "fetch", "add", "remove", "sources", "graph", "job"}
_MINUTE = 60.0


def main() -> None:
    """Read the command line and try both eras of the protocol."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("environment", type=Path)
    programs = parser.parse_args().environment.absolute() / "bin"
    documents = _documents(programs / "python")
    with tempfile.TemporaryDirectory() as folder:
        # What the shell has set for this repository must not help the installed server.
        environment = {"PATH": os.defpath, "LOOM_HOME": folder}
        command = [str(programs / "loom-kb"), "serve", "--root", str(documents)]
        for era in ("legacy", "modern"):
            with closing(
                StdioServer(command, era=era, env=environment, cwd=folder, timeout=_MINUTE)
            ) as server:
                _try(server, era, documents)
                assert server.close_input() == 0, server.stderr


def _documents(python: Path) -> Path:
    """The demo documents inside the installed wheel."""
    program = "import loom_core, loom_kb; print(loom_kb.__path__[0]); print(loom_core.__path__[0])"
    done = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=True)
    packages = [Path(line) for line in done.stdout.splitlines()]
    assert all("site-packages" in package.parts for package in packages), f"not from a wheel: {packages}"
    return packages[0] / "demo_documents"


def _try(server: StdioServer, era: Era, documents: Path) -> None:
    tools = {tool["name"] for tool in server.request("tools/list")["tools"]}
    assert tools == _TOOLS, f"the tools are {sorted(tools)}"
    added = _call(server, "add", paths=[str(documents)])["structuredContent"]
    job = _call(server, "job", id=added["job"]["id"], action="wait")["structuredContent"]["jobs"][0]
    assert job["state"] == "done", job
    for question, fact, source in (
        ("How many punched cards did the woven portrait of Jacquard need?", "24,000", "jacquard-machine.md"),
        ("复制“五星出东方利中国”锦用了多少根经线？", "10470", "老官山汉墓织机.html"),
    ):
        answer = _answer(server, question)
        best = answer["structuredContent"]["passages"][0]
        assert fact in answer["content"][0]["text"], answer
        assert (documents / source).as_uri() in str(best), best
        print(f"{era}: {question} → {source}: {fact}")


def _answer(server: StdioServer, question: str) -> dict[str, Any]:
    """The answer once every passage has its vector: those are made in the background."""
    deadline = time.monotonic() + _MINUTE
    while True:
        answer = _call(server, "query", query=question, limit=3)
        if answer["structuredContent"]["embedded"] == answer["structuredContent"]["total"]:
            return answer
        assert time.monotonic() < deadline, "vectors are still missing"
        time.sleep(0.5)


def _call(server: StdioServer, tool: str, **arguments: object) -> dict[str, Any]:
    result = server.call(tool, _MINUTE, **arguments)
    assert not result.get("isError"), result
    return result


if __name__ == "__main__":
    main()
