"""The command `mcp list | add | remove | test | trust | approve | import`, the same for every server.

Nothing is printed here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom_core.errors import InvalidInputError
from loom_core.mcp_client.configuration.command_names import verb
from loom_core.mcp_client.configuration.config_file import project_file, user_file
from loom_core.mcp_client.configuration.masking import shown_entry
from loom_core.mcp_client.configuration.trust import ToolPins
from loom_core.server.mcp_cli.entries import McpReport, check_entry, notes_on_entry
from loom_core.server.mcp_cli.file import drop_entry, put_entries
from loom_core.server.mcp_cli.listing import list_servers
from loom_core.server.mcp_cli.login import log_in, log_out

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from loom_core.server.install.command import Program
    from loom_core.server.mcp_cli.trust import Asking

__all__ = ["run_mcp_command"]


def run_mcp_command(
    program: Program, args: argparse.Namespace, served: Sequence[str], *, home: Path, asking: Asking
) -> McpReport:
    """Do what the arguments say. Blocks.

    Args:
        program: the server whose command this is; it is not taken over from other clients.
        args: options of `mcp_options.add_mcp_options`.
        served: what stands behind `--`: a command and what it is given.
        home: Loom's folder.
        asking: the person at the terminal.

    Raises:
        InvalidInputError: the arguments do not fit together, or a name is taken.
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

        return probe_servers(args, home=home, project=project_file(folder), show=asking.show)
    if args.action == "login":
        return log_in(args, home=home, project=project_file(folder), show=asking.show)
    if args.action == "logout":
        return log_out(args, home=home, project=project_file(folder))
    if args.action == "trust":
        from loom_core.server.mcp_cli.trust import trust_file

        return trust_file(args, home=home, folder=folder, asking=asking)
    if args.action == "approve":
        from loom_core.server.mcp_cli.approve import approve_tools

        return approve_tools(args, home=home, project=project_file(folder), asking=asking)
    if args.action == "import":
        from loom_core.server.mcp_cli.importing import import_servers

        return import_servers(program, args, home=home)
    return list_servers(home, project_file(folder), command=program.name)


def _add(command: str, args: argparse.Namespace, served: Sequence[str], home: Path) -> McpReport:
    entry = _entry(command, args, served)
    check_entry(args.name, entry)
    put_entries(home, {args.name: entry}, replace=args.force)
    shown = shown_entry(entry)
    lines = [f"{args.name!r} is in {user_file(home)} now:", json.dumps(shown, ensure_ascii=False, indent=2)]
    notes = [*notes_on_entry(args.name, entry), f"See whether it answers: {command} mcp test {args.name}"]
    return McpReport(lines, notes, {"name": args.name, "file": str(user_file(home)), "entry": shown})


def _remove(args: argparse.Namespace, home: Path) -> McpReport:
    entry = drop_entry(home, args.name)
    ToolPins(home).forget(args.name)
    shown = shown_entry(entry)
    lines = [f"{args.name!r} is no longer in {user_file(home)}. It was:"]
    lines.append(json.dumps(shown, ensure_ascii=False, indent=2))
    return McpReport(lines, data={"name": args.name, "file": str(user_file(home)), "entry": shown})


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
