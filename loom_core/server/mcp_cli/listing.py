"""`mcp list`: the servers of all files, as they are written, and what is wrong with any of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from loom_core.errors import ConfigError
from loom_core.jsonc import object_of
from loom_core.mcp_client.configuration.config_file import ServerFile, user_file
from loom_core.mcp_client.configuration.masking import shown_arguments, shown_url
from loom_core.mcp_client.configuration.servers import read_servers
from loom_core.server.mcp_cli.entries import McpReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from loom_core.mcp_client.configuration.servers import Servers

__all__ = ["Listed", "list_servers", "listed_entries", "target_of"]

Status = Literal["ready", "off", "problem", "not trusted", "not used"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A server as `mcp list` shows it.

    Attributes:
        name: what it is called.
        transport: stdio, http or sse; empty where the entry does not say it.
        target: the command with what it is given, or the URL; without secrets.
        scope: whose file it is in.
        where: `file:line:column`.
        status: whether it can be started; `not used` where another file's server has its name.
        problem: why it cannot; may be empty.
    """

    name: str
    transport: str
    target: str
    scope: Literal["user", "project"]
    where: str
    status: Status
    problem: str = ""

    def lines(self) -> Iterator[str]:
        """What a person is told."""
        status = "" if self.status == "ready" else f"  [{self.status}]"
        yield f"{self.name}  {self.transport}  {self.target}  ({self.scope}){status}"
        if self.problem:
            yield f"  {self.problem}"


def list_servers(home: Path, project: Path | None, *, command: str) -> McpReport:
    """All servers that are configured. Blocks; the keyring is not asked, and nothing is started.

    Args:
        home: Loom's folder.
        project: the project's `.mcp.json`, if there is one.
        command: our own, for advice.
    """
    servers = read_servers(home, project=project, keyring=False)
    listed: list[Listed] = []
    seen: set[str] = set()
    for scope, path in (("user", user_file(home)), ("project", project)):
        entries = {} if path is None else listed_entries(path)
        listed += [
            _listed(
                name, entry, where, cast("Literal['user', 'project']", scope), servers, hidden=name in seen
            )
            for name, (entry, where) in entries.items()
        ]
        seen |= entries.keys()
    broken = {place: problem for place, problem in servers.problems.items() if place not in seen}
    lines = [line for each in listed for line in each.lines()]
    lines += [f"{problem.message} {problem.advice}".rstrip() for problem in broken.values()]
    notes = list(servers.notes)
    if not lines:
        notes.append(
            f"There is no server yet in {user_file(home)}. Add one: {command} mcp add NAME -- COMMAND"
        )
    data = {
        "servers": [asdict(each) for each in listed],
        "files": [{"file": place, "problem": str(problem)} for place, problem in broken.items()],
        "notes": notes,
    }
    return McpReport(lines, notes, data)


def listed_entries(path: Path) -> dict[str, tuple[Mapping[str, Any], str]]:
    """The entries of a file with their places; none of a file that is broken, as it is told elsewhere."""
    try:
        file = ServerFile.read(path)
        written = file.entries
    except ConfigError:
        return {}
    return {name: (object_of(entry), file.where(name)) for name, entry in written.items()}


def target_of(entry: Mapping[str, Any]) -> str:
    """What an entry starts or asks, without secrets."""
    if isinstance(url := entry.get("url"), str):
        return shown_url(url)
    arguments: object = entry.get("args")
    words = shown_arguments(cast("list[object]", arguments)) if isinstance(arguments, list) else []
    return " ".join([str(entry.get("command", "")), *words])


def _listed(
    name: str,
    entry: Mapping[str, Any],
    where: str,
    scope: Literal["user", "project"],
    servers: Servers,
    *,
    hidden: bool,
) -> Listed:
    ready = next((config for config in servers.ready if config.name == name), None)
    problem = servers.problems.get(name)
    status: Status = "ready" if ready else "problem"
    if hidden:
        status, problem = "not used", None
    elif problem and problem.untrusted:
        status = "not trusted"
    elif name in servers.disabled:
        status = "off"
    transport = (
        ready.transport if ready else "http" if "url" in entry else "stdio" if "command" in entry else ""
    )
    told = f"{problem.message} {problem.advice}".rstrip() if problem else ""
    return Listed(name, transport, target_of(entry), scope, where, status, told)
