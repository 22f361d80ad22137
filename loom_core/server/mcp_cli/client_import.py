"""`mcp import`: copy the servers of another client into `mcp.json`.

Settings in a client's own form are converted to Loom's form; unknown settings are left out, with a note. The
pages that document each form are named in `install.clients`.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import ConfigError, InvalidInputError, NotFoundError, UnreadableTextError
from loom_core.jsonc import object_of
from loom_core.mcp_client.configuration.config_file import ServerFile, user_file
from loom_core.mcp_client.configuration.entry import Entry
from loom_core.mcp_client.configuration.masking import mask_entry
from loom_core.mcp_client.configuration.server_config import is_name_character
from loom_core.server.install.clients import CLIENTS, Client
from loom_core.server.install.config_file import ConfigFile
from loom_core.server.install.launch import runs
from loom_core.server.mcp_cli.entries import McpReport, check_entry, notes_on_entry, put_entries
from loom_core.server.mcp_cli.trust import describe_servers

if TYPE_CHECKING:
    import argparse

    from loom_core.server.install.command import Program
    from loom_core.server.mcp_cli.trust import Prompter

__all__ = ["import_servers"]

_LONGEST_NAME = 64
_KEPT = frozenset(Entry.model_fields) - {"loom"}
_IN_MILLISECONDS = {"claude-code", "gemini-cli"}  # clients whose `timeout` is in milliseconds
_EMPTY: tuple[object, ...] = (None, "", [], {})

_ENV = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_USER_HOME = re.compile(r"\$\{userHome\}")
_INPUT = re.compile(r"\$\{input:([^{}]+)\}")
_WORKSPACE = re.compile(r"\$\{workspaceFolder[^{}]*\}")
_BARE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_HOME_VARIABLE = "USERPROFILE" if sys.platform == "win32" else "HOME"


@dataclass(slots=True)
class _ImportedEntries:
    """The imported entries, and notes on them."""

    entries: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    notes: list[str] = field(default_factory=list[str])


def import_servers(
    program: Program, args: argparse.Namespace, *, home: Path, prompter: Prompter
) -> McpReport:
    """Import the servers of another client; existing entries of the same names stay. Blocks.

    Those of a project, which others may have written, are shown before the user is asked.

    Args:
        program: the server whose command this is; its own entries are not imported.
        args: options of `mcp import`.
        home: Loom's folder.
        prompter: asks the person at the terminal.

    Raises:
        InvalidInputError: the client has no configuration for a project.
        NotFoundError: it has no configuration here, or no such server.
        ConfigError: its configuration is broken, or `mcp.json` is, or cannot be written.
        StoreBusyError: another process writes `mcp.json`.
    """
    client = CLIENTS[args.client]
    path, configuration = _configuration(client, program, args.scope)
    written = _servers(client, configuration, Path(program.machine.project), args.scope)
    if missing := [name for name in args.name if name not in written]:
        names = ", ".join(map(repr, written)) or "none"
        raise NotFoundError(
            f"{client.title} has no server {missing[0]!r} in {path}.", advice=f"It has: {names}."
        )
    there = ServerFile.read(user_file(home)).entries
    taken = _ImportedEntries()
    for name, entry in written.items():
        if not args.name or name in args.name:
            _take(taken, client, program, name, entry, there)
    if any("${input:" in text for text in map(json.dumps, written.values())):
        taken.notes += _notes_on_inputs(configuration)
    if taken.entries and not args.dry_run:
        if args.scope == "project" and not args.yes and not _is_agreed(path, taken, prompter):
            return McpReport([], ["Nothing was changed."], {"file": str(user_file(home))}, code=1)
        put_entries(home, taken.entries)
    return _report(client, path, user_file(home), taken, command=program.name, dry_run=args.dry_run)


def _is_agreed(path: Path, taken: _ImportedEntries, prompter: Prompter) -> bool:
    """Show the servers of a project, and return whether the user wants them."""
    for line in describe_servers(path, taken.entries):
        prompter.show(line)
    return prompter.confirm("Take these servers over?")


def _report(
    client: Client, source: Path, target: Path, taken: _ImportedEntries, *, command: str, dry_run: bool
) -> McpReport:
    shown = {name: mask_entry(entry) for name, entry in taken.entries.items()}
    lines = [f"{name}: {json.dumps(entry, ensure_ascii=False)}" for name, entry in shown.items()]
    number = "1 server" if len(shown) == 1 else f"{len(shown)} servers"
    would = "would be " if dry_run else ""
    lines.append(f"{number} {would}taken over from {client.title} ({source}) into {target}.")
    if shown and not dry_run:
        taken.notes.append(f"See whether they answer: {command} mcp test --all")
    data = {"client": client.id, "from": str(source), "file": str(target), "servers": shown}
    return McpReport(lines, taken.notes, {**data, "dry_run": dry_run, "notes": taken.notes})


def _configuration(client: Client, program: Program, scope: str) -> tuple[Path, Mapping[str, Any]]:
    place = client.file(program.machine, "project" if scope == "project" else "user")
    if place is None:
        raise InvalidInputError(
            f"{client.title} has no configuration of its own for a project.", advice="Leave --scope out."
        )
    path = Path(place)
    file = ConfigFile.read(path)
    if file.raw is None:
        raise NotFoundError(f"{client.title} has no configuration here: there is no {path}.")
    try:
        return path, client.format.read(file.text)
    except UnreadableTextError as error:
        raise ConfigError(
            f"{path}:{error.line}:{error.column}: {error.reason}.", advice="Correct it there."
        ) from None


def _servers(
    client: Client, configuration: Mapping[str, Any], project: Path, scope: str
) -> dict[str, Mapping[str, Any]]:
    """Return the servers' entries by name; for Claude Code also those of the current project."""
    found = dict(_objects(configuration.get(client.section)))
    if client.id == "claude-code" and scope == "user":
        projects = dict(_objects(configuration.get("projects")))
        found.update(_objects(projects.get(str(project), {}).get(client.section)))
    return found


def _objects(value: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from ((name, each) for name, each in object_of(value).items() if isinstance(each, dict))


def _take(
    taken: _ImportedEntries,
    client: Client,
    program: Program,
    written_name: str,
    written: Mapping[str, Any],
    there: Mapping[str, object],
) -> None:
    if runs(written, program=program.name, module=program.module):
        taken.notes.append(f"{written_name!r} is {program.name} itself: it is not taken over.")
        return
    name = _name(written_name)
    entry, left_out = _convert(client, written)
    try:
        check_entry(name, entry)
    except InvalidInputError as error:
        taken.notes.append(f"{written_name!r} is not taken over: {error.message} {error.advice}".rstrip())
        return
    if name in there or name in taken.entries:
        same = there.get(name, taken.entries.get(name)) == entry
        taken.notes.append(
            f"{name!r} is there already."
            if same
            else f"There is another server {name!r} already: {written_name!r} is not taken over."
        )
        return
    taken.entries[name] = entry
    if name != written_name:
        taken.notes.append(f"{written_name!r} is called {name!r} here.")
    if left_out:
        taken.notes.append(f"Of {name!r} this is left out, as Loom does not know it: {', '.join(left_out)}.")
    if _WORKSPACE.search(json.dumps(entry)):
        taken.notes.append(
            f"{name!r} refers to the folder that {client.title} has open: write a path in its place."
        )
    taken.notes += notes_on_entry(name, entry)


def _name(written: str) -> str:
    """Convert a name to a valid server name."""
    text = unicodedata.normalize("NFC", written)
    words = "".join(char if is_name_character(char) else " " for char in text).split()
    return "-".join(words)[:_LONGEST_NAME] or "server"


def _convert(client: Client, written: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Convert an entry to Loom's form, and return the names in it that Loom does not know."""
    given = {key: value for key, value in written.items() if value not in _EMPTY}
    loom: dict[str, Any] = {}
    if client.id == "gemini-cli":
        given, loom = _of_gemini(given)
    elif client.id in {"cursor", "vscode"}:
        given = {key: _in_texts(value, _of_editors) for key, value in given.items()}
    entry = {key: value for key, value in given.items() if key in _KEPT}
    if client.id in _IN_MILLISECONDS and isinstance(timeout := entry.get("timeout"), int):
        entry["timeout"] = timeout / 1000
    left_out = [key for key in given if key not in _KEPT]
    return ({**entry, "loom": loom} if loom else entry), left_out


def _of_gemini(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    entry = {key: _in_texts(value, lambda text: _BARE.sub(r"${\1}", text)) for key, value in given.items()}
    names = {"includeTools": "allow", "excludeTools": "deny"}
    loom = {ours: entry.pop(theirs) for theirs, ours in names.items() if theirs in entry}
    if "httpUrl" in entry:
        entry = {**entry, "type": "http", "url": entry["httpUrl"]}
        del entry["httpUrl"]
    elif "url" in entry and "type" not in entry:
        entry["type"] = "sse"  # the meaning of a plain `url` there
    return entry, loom


def _of_editors(text: str) -> str:
    """Convert a text of Cursor or VS Code: an input prompt becomes a variable."""
    text = _ENV.sub(r"${\1}", text)
    text = _USER_HOME.sub(f"${{{_HOME_VARIABLE}}}", text)
    return _INPUT.sub(lambda match: f"${{{_variable(match[1])}}}", text)


def _variable(input_id: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_]", "_", input_id).upper()
    return name if name[0].isalpha() or name[0] == "_" else f"_{name}"


def _notes_on_inputs(configuration: Mapping[str, Any]) -> Iterator[str]:
    inputs = cast("list[object]", configuration.get("inputs") or [])
    for each in inputs if isinstance(configuration.get("inputs"), list) else ():
        asked = object_of(each)
        if isinstance(asked.get("id"), str):
            described = f" ({asked['description']})" if asked.get("description") else ""
            name = str(asked["id"])
            yield (
                f"VS Code asks for {name!r}{described}; Loom does not: set the variable {_variable(name)}."
            )


def _in_texts(value: object, convert: Callable[[str], str]) -> Any:  # noqa: ANN401 - JSON in, JSON out
    if isinstance(value, str):
        return convert(value)
    if isinstance(value, list):
        return [_in_texts(each, convert) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: _in_texts(each, convert) for key, each in cast("dict[str, object]", value).items()}
    return value
