"""The command `mcp` at a terminal."""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from loom_core.errors import ConfigError, InvalidInputError, NotFoundError
from loom_core.jsonc import object_of
from loom_core.mcp_client.configuration.command_names import use_program, verb
from loom_core.mcp_client.configuration.config_file import ServerFile, project_file, user_file
from loom_core.mcp_client.configuration.masking import mask_arguments, mask_entry, mask_url
from loom_core.mcp_client.configuration.servers import read_servers
from loom_core.mcp_client.configuration.trust import ToolPins
from loom_core.paths import loom_home
from loom_core.server.cli.command_line import show_report
from loom_core.server.cli.console import confirm, say
from loom_core.server.mcp_cli.entries import McpReport, check_entry, drop_entry, notes_on_entry, put_entries
from loom_core.server.mcp_cli.login import log_in, log_out
from loom_core.server.mcp_cli.trust import Prompter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from loom_core.mcp_client.configuration.servers import Servers
    from loom_core.server.install.command import Program

__all__ = ["ServerListing", "list_servers", "read_entries", "run_mcp", "run_mcp_command", "target_of"]


def run_mcp(program: Program, args: argparse.Namespace, served: Sequence[str]) -> int:
    """Run a verb of `mcp`, show its report, and return the exit code. Blocks.

    Args:
        program: the server whose command this is.
        args: options of `standard_commands.add_mcp_options`.
        served: the arguments after `--`.

    Raises:
        LoomError: as for `run_mcp_command`.
    """
    asking = Prompter(show=say, confirm=confirm)
    with use_program(program.name), nullcontext() if args.debug else _mute_log():
        report = run_mcp_command(program, args, served, home=loom_home(args.home), prompter=asking)
    show_report(report, as_json=args.json)
    return report.code


@contextmanager
def _mute_log() -> Generator[None]:
    """Mute the log in the block: the report has the same messages."""
    log = logging.getLogger("loom_core.mcp_client")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def run_mcp_command(
    program: Program, args: argparse.Namespace, served: Sequence[str], *, home: Path, prompter: Prompter
) -> McpReport:
    """Run a verb of `mcp`, and return its report. Blocks.

    Args:
        program: the server whose command this is; it is not imported from other clients.
        args: options of `standard_commands.add_mcp_options`.
        served: the arguments after `--`: a command with its own arguments.
        home: Loom's folder.
        prompter: asks the person at the terminal.

    Raises:
        InvalidInputError: the arguments cannot be combined, or a name is taken.
        NotFoundError: there is no such server or file.
        SourceError: a server whose tools are to be approved cannot be asked.
        ConfigError: a file is broken, or cannot be written.
        StoreBusyError: another process writes it.
    """
    if served and args.action != "add":
        raise InvalidInputError(f"Only {verb('add')} takes a command behind --.")
    folder = Path(program.machine.project)
    if args.action == "add":
        return _add(program.name, args, served, home)
    if args.action == "remove":
        return _remove(args, home)
    if args.action == "test":
        from loom_core.server.mcp_cli.probe import probe_servers

        return probe_servers(args, home=home, project=project_file(folder), show=prompter.show)
    if args.action == "login":
        return log_in(args, home=home, project=project_file(folder), show=prompter.show)
    if args.action == "logout":
        return log_out(args, home=home, project=project_file(folder))
    if args.action == "trust":
        from loom_core.server.mcp_cli.trust import trust_file

        return trust_file(args, home=home, folder=folder, prompter=prompter)
    if args.action == "approve":
        from loom_core.server.mcp_cli.trust import approve_tools

        return approve_tools(args, home=home, project=project_file(folder), prompter=prompter)
    if args.action == "import":
        from loom_core.server.mcp_cli.client_import import import_servers

        return import_servers(program, args, home=home, prompter=prompter)
    return list_servers(home, project_file(folder), command=program.name)


def _add(command: str, args: argparse.Namespace, served: Sequence[str], home: Path) -> McpReport:
    entry = _entry(command, args, served)
    check_entry(args.name, entry)
    put_entries(home, {args.name: entry}, replace=args.force)
    shown = mask_entry(entry)
    lines = [f"{args.name!r} is in {user_file(home)} now:", json.dumps(shown, ensure_ascii=False, indent=2)]
    notes = [*notes_on_entry(args.name, entry), f"See whether it answers: {command} mcp test {args.name}"]
    return McpReport(lines, notes, {"name": args.name, "file": str(user_file(home)), "entry": shown})


def _remove(args: argparse.Namespace, home: Path) -> McpReport:
    notes = _forget_login(args, home)
    entry = drop_entry(home, args.name)
    ToolPins(home).forget(args.name)
    shown = mask_entry(entry)
    lines = [f"{args.name!r} is no longer in {user_file(home)}. It was:"]
    lines.append(json.dumps(shown, ensure_ascii=False, indent=2))
    return McpReport(lines, notes, data={"name": args.name, "file": str(user_file(home)), "entry": shown})


def _forget_login(args: argparse.Namespace, home: Path) -> list[str]:
    """Delete the login at a server whose entry is removed, as no command could find it without the entry."""
    entry, _ = read_entries(user_file(home)).get(args.name, ({}, ""))
    loom = object_of(entry.get("loom"))
    if loom.get("auth") != "oauth" and not loom.get("oauth"):
        return []
    with suppress(ConfigError, NotFoundError):  # an entry that cannot be used, or is disabled
        report = log_out(args, home=home, project=None)
        if report.data["forgotten"]:
            return [*report.lines, *report.notes]
    return []


def _entry(command: str, args: argparse.Namespace, served: Sequence[str]) -> dict[str, Any]:
    if bool(args.url) == bool(served):
        raise InvalidInputError(
            "A server is either a URL or a command.",
            advice=f"Write `{command} mcp add NAME https://…`, or `{command} mcp add NAME -- COMMAND …`.",
        )
    if args.url:
        if args.env or args.cwd:
            raise InvalidInputError("--env and --cwd are for a command, not for a URL.")
        entry: dict[str, Any] = {"type": args.transport, "url": args.url}
        return {**entry, "headers": dict(args.header)} if args.header else entry
    if args.header:
        raise InvalidInputError("--header is for a URL, not for a command.", advice="Give --env instead.")
    entry = {"command": served[0], "args": list(served[1:])}
    if args.env:
        entry["env"] = dict(args.env)
    if args.cwd:
        entry["cwd"] = str(args.cwd.expanduser().absolute())
    return entry


Status = Literal["ready", "off", "problem", "not trusted", "not used"]


@dataclass(frozen=True, slots=True)
class ServerListing:
    """A server as `mcp list` shows it.

    Attributes:
        name: its id.
        transport: stdio, http or sse; empty if the entry does not define it.
        target: the command with its arguments, or the URL; without secrets.
        scope: scope of its file.
        where: `file:line:column`.
        status: whether it can be started; `not used` if another file has a server of its name.
        problem: why it cannot be started; may be empty.
    """

    name: str
    transport: str
    target: str
    scope: Literal["user", "project"]
    where: str
    status: Status
    problem: str = ""

    def lines(self) -> Iterator[str]:
        """Format lines for people."""
        status = "" if self.status == "ready" else f"  [{self.status}]"
        yield f"{self.name}  {self.transport}  {self.target}  ({self.scope}){status}"
        if self.problem:
            yield f"  {self.problem}"


def list_servers(home: Path, project: Path | None, *, command: str) -> McpReport:
    """List all configured servers. Blocks; it reads no keyring and starts nothing.

    Args:
        home: Loom's folder.
        project: the project's `.mcp.json`, if there is one.
        command: the command of this program, for advice.
    """
    servers = read_servers(home, project=project, keyring=False)
    listed: list[ServerListing] = []
    seen: set[str] = set()
    for scope, path in (("user", user_file(home)), ("project", project)):
        entries = {} if path is None else read_entries(path)
        listed += [
            _list_entry(
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


def read_entries(path: Path) -> dict[str, tuple[Mapping[str, Any], str]]:
    """Read the entries of a file with their positions; none of a broken file, which is reported elsewhere."""
    try:
        file = ServerFile.read(path)
        written = file.entries
    except ConfigError:
        return {}
    return {name: (object_of(entry), file.where(name)) for name, entry in written.items()}


def target_of(entry: Mapping[str, Any]) -> str:
    """Return the command or URL of an entry, without secrets."""
    if isinstance(url := entry.get("url"), str):
        return mask_url(url)
    arguments: object = entry.get("args")
    words = mask_arguments(cast("list[object]", arguments)) if isinstance(arguments, list) else []
    return " ".join([str(entry.get("command", "")), *words])


def _list_entry(
    name: str,
    entry: Mapping[str, Any],
    where: str,
    scope: Literal["user", "project"],
    servers: Servers,
    *,
    hidden: bool,
) -> ServerListing:
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
    return ServerListing(name, transport, target_of(entry), scope, where, status, told)
