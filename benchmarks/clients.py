"""Which MCP clients can use Loom's servers: each over stdio, over HTTP, and with a server that starts slowly.

    python benchmarks/clients.py FOLDER [--only CLIENT] [--servers DIR]

FOLDER keeps the clients' environments, which are made when they are missing: about 1 GB, from the pins of
requirements/clients.txt, requirements/clients-v1.txt and benchmarks/client_drivers/package.json. Over each
transport a client lists the tools of loom-kb, adds a text, asks for it and reads it. "Slow start": the server
gets nothing before the client has sent `initialize`, as if a client that probes first had given up its probe.
"Others": the three other servers list their tools over stdio. DIR has the commands of the servers; by default
those of this Python's environment.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_DRIVERS = Path(__file__).with_name("client_drivers")
_SLOW = [sys.executable, str(_ROOT / "tests" / "e2e" / "slow_launcher.py")]
_SECONDS = 120
_ANSWER = "李明"
_OTHERS = ("loom-query-server", "loom-agent-server", "loom-flow-server")
_TOOLS = {"query", "fetch", "add", "remove", "sources", "graph", "job", "job_cancel"}


@dataclass(frozen=True, slots=True)
class Client:
    """A client, and where it is from: an environment for Python, or npm."""

    name: str
    environment: str


_CLIENTS = (
    Client("@modelcontextprotocol/sdk", "npm"),
    Client("@modelcontextprotocol/client", "npm"),
    Client("@modelcontextprotocol/inspector", "npm"),
    Client("@ai-sdk/mcp", "npm"),
    Client("mcp-use", "npm"),
    Client("fastmcp", "clients"),
    Client("openai-agents", "clients"),
    Client("pydantic-ai", "clients"),
    Client("langchain-mcp-adapters", "clients-v1"),
    Client("mcp-use", "clients-v1"),
)


def install(environment: str, folder: Path) -> None:
    """Make an environment with its clients, where it is missing."""
    if (folder / "installed").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    if environment == "npm":
        (folder / "package.json").write_bytes((_DRIVERS / "package.json").read_bytes())
        options = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
        subprocess.run(["npm", "install", *options], cwd=folder, check=True, stdout=sys.stderr)
    else:
        pins = _ROOT / "requirements" / f"{environment}.txt"
        subprocess.run(["uv", "venv", "--quiet", "--clear", folder], check=True)
        options = ["--quiet", "--python", folder / "bin" / "python", "--require-hashes", "-r", pins]
        subprocess.run(["uv", "pip", "install", *options], check=True)
    (folder / "installed").touch()


def version_of(client: Client, folder: Path) -> str:
    """The installed version of a client."""
    if client.environment == "npm":
        package = folder / "node_modules" / client.name / "package.json"
        return json.loads(package.read_text(encoding="utf-8"))["version"]
    distribution = "pydantic-ai-slim" if client.name == "pydantic-ai" else client.name
    code = f"from importlib.metadata import version; print(version({distribution!r}))"
    run = subprocess.run([folder / "bin" / "python", "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def drive(client: Client, folder: Path, mode: str, transport: str, target: list[str]) -> dict[str, Any]:
    """Run a client's driver; gives what it saw.

    Raises:
        RuntimeError: it has failed; with the last line that it wrote.
    """
    if client.name.endswith("inspector"):
        return _inspect(folder, mode, transport, target)
    if client.environment == "npm":
        script = folder / "drive.mjs"
        script.write_bytes((_DRIVERS / "drive.mjs").read_bytes())
        command = ["node", str(script)]
    else:
        command = [str(folder / "bin" / "python"), str(_DRIVERS / "drive.py")]
    return json.loads(_run([*command, client.name, mode, transport, *target]).splitlines()[-1])


def _inspect(folder: Path, mode: str, transport: str, target: list[str]) -> dict[str, Any]:
    """The same with the Inspector, which is a command."""
    program = ["node", str(folder / "node_modules" / ".bin" / "mcp-inspector"), "--cli", *target]
    program += ["--transport", "http"] if transport == "http" else []

    def asked(*options: str) -> dict[str, Any]:
        return json.loads(_run([*program, *options, "--format", "json", "-q"]))["result"]

    def call(tool: str, arguments: dict[str, Any]) -> str:
        told = json.dumps(arguments, ensure_ascii=False)
        given = ("--method", "tools/call", "--tool-name", tool, "--tool-args-json", told)
        return asked(*given)["content"][0]["text"]

    seen: dict[str, Any] = {"tools": [tool["name"] for tool in asked("--method", "tools/list")["tools"]]}
    if mode == "use":
        added = call("add", {"text": "# 青岛港\n\n青岛港的港长是李明。", "source": "知识库"})
        call("job", {"id": added.split()[0], "action": "wait"})
        seen["found"] = call("query", {"query": "谁是青岛港的港长？"})
        seen["fetched"] = call("fetch", {"id": seen["found"].partition(" id=")[2].split()[0]})
    return seen


def _run(command: list[str]) -> str:
    environment = {**os.environ, "MCP_USE_ANONYMIZED_TELEMETRY": "false", "NO_COLOR": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", timeout=_SECONDS, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no end within {_SECONDS} s") from None
    if done.returncode != 0 or not done.stdout.strip():
        told = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise RuntimeError(next((line for line in told if "rror" in line), told[-1] if told else "silence"))
    return done.stdout


@contextmanager
def over_http(command: list[str]) -> Generator[str]:
    """Serve over HTTP while a block lasts; gives the URL."""
    serving = [*command, "--http", "--port", "0"]
    with subprocess.Popen(serving, stderr=subprocess.PIPE, text=True, encoding="utf-8") as process:
        assert process.stderr is not None
        try:
            yield next(line.split()[2] for line in process.stderr if " serves " in line)
        finally:
            process.terminate()
            process.communicate()


def outcome(client: Client, folder: Path, way: str, servers: Path) -> str:
    """Run a client for one column of the table: `ok`, or what went wrong."""
    with tempfile.TemporaryDirectory() as home:
        command = [str(servers / "loom-kb"), "serve", "--home", home, "--embedder", "hashing"]
        try:
            if way == "others":
                for server in _OTHERS:
                    other = [str(servers / server), "serve", "--home", home]
                    if not drive(client, folder, "list", "stdio", other)["tools"]:
                        return f"no tools of {server}"
                return "ok"
            if way == "http":
                with over_http(command) as url:
                    seen = drive(client, folder, "use", "http", [url])
            elif way == "slow start":
                seen = drive(client, folder, "list", "stdio", [*_SLOW, *command])
                return tools_outcome(seen)
            else:
                seen = drive(client, folder, "use", "stdio", command)
        except (RuntimeError, ValueError, KeyError) as error:
            return f"FAILED: {error}"
    missing = [step for step in ("found", "fetched") if _ANSWER not in str(seen.get(step))]
    return f"FAILED: {', '.join(missing)}" if missing else tools_outcome(seen)


def tools_outcome(seen: dict[str, Any]) -> str:
    """`ok` if a client saw exactly the tools of loom-kb, else the differences."""
    different = sorted(_TOOLS.symmetric_difference(seen["tools"]))
    return f"FAILED: tools {', '.join(different)}" if different else "ok"


def main() -> int:
    """Read the command line, drive every client and print the table; 1 if something has failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="where the clients' environments are kept")
    parser.add_argument("--only", metavar="CLIENT", help="only this client")
    parser.add_argument("--servers", type=Path, default=Path(sys.executable).parent, metavar="DIR")
    options = parser.parse_args()
    absent = [program for program in ("uv", "npm") if shutil.which(program) is None]
    if absent:
        parser.error(f"{' and '.join(absent)} cannot be found on PATH; the clients are installed with them.")
    ways = ("stdio", "slow start", "http", "others")
    print(f"| client | version | {' | '.join(ways)} |\n|{'---|' * (2 + len(ways))}", flush=True)
    failed = False
    for client in _CLIENTS:
        if options.only not in {None, client.name}:
            continue
        folder = options.folder.absolute() / client.environment
        install(client.environment, folder)
        found = [outcome(client, folder, way, options.servers.absolute()) for way in ways]
        failed = failed or any(each != "ok" for each in found)
        kind = "npm" if client.environment == "npm" else "PyPI"
        print(f"| {client.name} ({kind}) | {version_of(client, folder)} | {' | '.join(found)} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
