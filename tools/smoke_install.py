"""Smoke test of `install`: start what it writes, for each way to start a server.

    python -m tools.smoke_install loom-kb ENVIRONMENT WHEELS

ENVIRONMENT is a virtual environment with the wheels of the server in it, WHEELS is the folder of all wheels.
The server runs from the environment, by `uvx --find-links` and by `uvx --from`. The entry is started as hosts
start it, and after `uninstall` nothing is left of it. uv gets other packages from its cache, as they are
pinned. Run it from the repository's root.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

from tests.e2e.jsonrpc import StdioServer

_ROOT = Path(__file__).parents[1]
_MINUTE = 60.0
_OURS = ("loom-mcp-core", "loom-kb", "loom-query-server", "loom-agent-server", "loom-flow-server")


def main() -> None:
    """Read the command line and try each way to start the server."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("server")
    parser.add_argument("environment", type=Path)
    parser.add_argument("wheels", type=Path)
    args = parser.parse_args()
    cached = subprocess.run(["uv", "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    pins = _ROOT / "requirements" / f"{args.server}.txt"
    (wheel,) = args.wheels.glob(f"{args.server.replace('-', '_')}-*.whl")
    links = ["--find-links", wheel.parent.name]
    with tempfile.TemporaryDirectory() as folder:
        home, cache = Path(folder) / "李明", Path(folder) / "cache"
        home.mkdir()
        _link_cache(Path(cached), cache)
        uvx = ["uvx", "--quiet", "--offline", "--cache-dir", str(cache), "--constraints", str(pins)]
        for way, command in {
            "a virtual environment": [str(args.environment.absolute() / "bin" / args.server)],
            "uvx --find-links": [*uvx, *links, args.server],
            "uvx --from": [*uvx, *links, "--from", f"{wheel.parent.name}/{wheel.name}", args.server],
        }.items():
            tools = _try(command, args.server, home, wheel.absolute().parent.parent)
            print(f"{args.server}: installed from {way}, it starts with {tools} tools")
        _check_refusal([*uvx, args.server], home, wheel.absolute().parent)
        print(f"{args.server}: what would not start is refused")


def _link_cache(cached: Path, to: Path) -> None:
    """Link uv's cache without what it has of Loom: wheels of earlier runs, which have the same version."""
    subprocess.run(["uv", "cache", "clean", "--quiet", *_OURS], check=True)
    to.mkdir()
    for each in cached.iterdir():
        if not each.name.startswith(("environments-", ".")):
            (to / each.name).symlink_to(each)


def _try(command: list[str], server: str, home: Path, folder: Path) -> int:
    """Install with a command, start what it wrote, and uninstall; gives the number of tools."""
    _run([*command, "install", "cursor"], home, folder)
    entry = json.loads((home / ".cursor" / "mcp.json").read_bytes())["mcpServers"][server]
    started = [entry["command"], *entry["args"]]
    with closing(StdioServer(started, env=_environment(home), cwd=os.path.sep, timeout=_MINUTE)) as host:
        tools = host.request("tools/list")["tools"]
        assert host.close_input() == 0, host.stderr
    _run([*command, "uninstall", "cursor"], home, folder)
    assert not (home / ".cursor").exists()
    return len(tools)


def _check_refusal(command: list[str], home: Path, wheels: Path) -> None:
    """Check that `install` refuses if only a variable names the wheels: a host could not start the server."""
    told = _run([*command, "install", "cursor"], home, wheels, code=1, UV_FIND_LINKS=str(wheels))
    assert "nothing was changed" in told, told
    assert "uv tool install" in told, told
    assert not (home / ".cursor").exists()


def _run(command: list[str], home: Path, folder: Path, *, code: int = 0, **variables: str) -> str:
    environment = _environment(home) | variables
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == code, (command, done.stdout + done.stderr)
    return done.stdout + done.stderr


def _environment(home: Path) -> dict[str, str]:
    # What hosts hand on, and none of what the shell has set for this repository.
    return {"PATH": os.environ["PATH"], "HOME": str(home)}


if __name__ == "__main__":
    main()
