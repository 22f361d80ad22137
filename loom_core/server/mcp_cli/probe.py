"""`mcp test`: connect to servers, and report the results."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from loom_core.errors import InvalidInputError, LoomError
from loom_core.mcp_client.configuration.command_names import verb
from loom_core.mcp_client.configuration.servers import read_servers
from loom_core.server.mcp_cli.entries import McpReport

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from loom_core.mcp_client.configuration.server_config import ServerConfig
    from loom_core.mcp_client.configuration.servers import ServerProblem
    from loom_core.mcp_client.connections.connection import ServerConnection

__all__ = ["ProbeResult", "probe_servers"]

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of a connection test of one server.

    Attributes:
        name: its id.
        state: whether it is usable.
        seconds: duration until the tools were listed, or until the failure.
        tools: number of its tools.
        protocol: protocol revision, such as `2026-07-28`; empty if it failed.
        era: era of that revision: `modern` has no handshake and no sessions.
        server: its own name and version.
        problem: reason of the failure; may be empty.
        advice: what to do about it; may be empty.
    """

    name: str
    state: Literal["ready", "failed"]
    seconds: float = 0.0
    tools: int = 0
    protocol: str = ""
    era: Literal["legacy", "modern", ""] = ""
    server: str = ""
    problem: str = ""
    advice: str = ""

    def lines(self) -> list[str]:
        """Format lines for people."""
        if self.state == "failed":
            return [f"{self.name}  FAILED  {self.problem}", *([f"  {self.advice}"] if self.advice else [])]
        tools = "1 tool" if self.tools == 1 else f"{self.tools:,} tools"
        spoken = f"MCP {self.protocol} ({self.era})"
        return [f"{self.name}  ready in {self.seconds:.2f} s  {tools}  {spoken}  {self.server}".rstrip()]


def probe_servers(
    args: argparse.Namespace, *, home: Path, project: Path | None, show: Callable[[str], None]
) -> McpReport:
    """Connect to the named servers, or to all, concurrently. Blocks.

    Args:
        args: options of `mcp test`.
        home: Loom's folder.
        project: the project's `.mcp.json`, if there is one.
        show: shows a message at the terminal.

    Raises:
        InvalidInputError: no server is named, and not `--all`; or both are given.
    """
    import anyio

    if bool(args.names) == args.all:
        raise InvalidInputError(
            "Which server?", advice=f"Write {verb('test NAME')}, or {verb('test --all')}."
        )
    servers = read_servers(home, project=project, names=args.names or None)
    # `--all` means the servers that may be started.
    untrusted = {
        name: problem for name, problem in servers.problems.items() if args.all and problem.untrusted
    }
    found = {
        name: _of_problem(name, problem)
        for name, problem in servers.problems.items()
        if name not in untrusted
    }
    if servers.ready:
        number = "1 server" if len(servers.ready) == 1 else f"{len(servers.ready)} servers"
        longest = max(config.start_seconds for config in servers.ready)
        show(f"Asking {number}; one that does not answer times out after {longest:g} s.")
    probed: list[ProbeResult] = anyio.run(_probe_all, servers.ready, home)
    found.update((each.name, each) for each in probed)
    failed = any(each.state == "failed" for each in found.values())
    notes = [*servers.notes, *(f"{name!r} was not tested: {problem}" for name, problem in untrusted.items())]
    notes += [] if found else ["There is no server to test."]
    return McpReport(
        [line for each in found.values() for line in each.lines()],
        notes,
        {"servers": [asdict(each) for each in found.values()], "notes": notes},
        int(failed),
    )


async def _probe_all(configs: Iterable[ServerConfig], home: Path) -> list[ProbeResult]:
    import anyio

    found: list[ProbeResult] = []
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def probe(config: ServerConfig) -> None:
        async with limiter:
            found.append(await _probe(config, home))

    async with anyio.create_task_group() as tasks:
        for config in configs:
            tasks.start_soon(probe, config)
    return sorted(found, key=lambda each: each.name)


async def _probe(config: ServerConfig, home: Path) -> ProbeResult:
    import anyio

    from loom_core.mcp_client.connections.connection import ServerConnection
    from loom_core.mcp_client.oauth.authentication import oauth_auth

    connection = ServerConnection(config, auth=partial(oauth_auth, home=home))
    probed = ProbeResult(config.name, "failed")
    async with anyio.create_task_group() as tasks:
        await tasks.start(connection.run)
        try:
            probed = await _examine(connection)
        finally:
            with anyio.CancelScope(shield=True):
                await connection.close()
    return probed


async def _examine(connection: ServerConnection) -> ProbeResult:
    began = time.monotonic()
    try:
        await connection.ready()
        facts = connection.facts
        has_tools = facts is not None and facts.capabilities.tools is not None
        tools = len((await connection.list_tools()).tools) if has_tools else 0
    except LoomError as error:
        seconds = time.monotonic() - began
        return ProbeResult(connection.name, "failed", seconds, problem=error.message, advice=error.advice)
    return ProbeResult(
        connection.name,
        "ready",
        time.monotonic() - began,
        tools,
        facts.protocol_version if facts else "",
        "modern" if facts and facts.modern else "legacy",
        f"{facts.name} {facts.version}".strip() if facts else "",
    )


def _of_problem(name: str, problem: ServerProblem) -> ProbeResult:
    return ProbeResult(
        name,
        "failed",
        problem=problem.placed,
        advice=problem.advice,
    )
