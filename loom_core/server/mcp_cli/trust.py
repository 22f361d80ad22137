"""Consent of the operator: `mcp trust` for the servers of a project's file, `mcp approve` for tools.

The commands of servers, and the definitions of tools, are shown in full before the question.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from loom_core.errors import InvalidInputError, NotFoundError, SourceError
from loom_core.jsonc import object_of
from loom_core.knowledge.text.control_characters import escape_controls
from loom_core.mcp_client.configuration.command_names import verb
from loom_core.mcp_client.configuration.config_file import ServerFile, project_file
from loom_core.mcp_client.configuration.expansion import variables_of
from loom_core.mcp_client.configuration.masking import HIDDEN, is_literal_secret
from loom_core.mcp_client.configuration.trust import ToolPins, TrustedFiles
from loom_core.mcp_client.tools.tool import MCPTool
from loom_core.server.mcp_cli.entries import McpReport, texts_of

if TYPE_CHECKING:
    import argparse

    from loom_core.mcp_client.configuration.trust import ToolPin
    from loom_core.mcp_client.registry import MCPToolRegistry

__all__ = ["Prompter", "approve_tools", "describe_servers", "trust_file"]


@dataclass(frozen=True, slots=True)
class Prompter:
    """Prompts at the terminal.

    Attributes:
        show: shows a line before a question.
        confirm: asks the question, and returns whether the answer is yes. Blocks.
    """

    show: Callable[[str], None]
    confirm: Callable[[str], bool]


def trust_file(args: argparse.Namespace, *, home: Path, folder: Path, prompter: Prompter) -> McpReport:
    """Trust the current content of a project's file, or revoke the trust. Blocks.

    Args:
        args: options of `mcp trust`.
        home: Loom's folder.
        folder: the current folder, whose project is used if no file is given.
        prompter: asks the person at the terminal.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: it is broken, or `trust.json` cannot be read or written.
        StoreBusyError: another process writes `trust.json`.
    """
    path = _path(args.file, folder)
    trusted = TrustedFiles(home)
    if args.revoke:
        was = trusted.revoke(path)
        said = "is no longer trusted" if was else "was not trusted"
        return McpReport([f"{path} {said}."], data={"file": str(path), "trusted": False})
    file = ServerFile.read(path)
    if file.raw is None:
        raise NotFoundError(f"There is no file {path}.", advice="Name a project's .mcp.json.")
    entries = file.entries
    state = trusted.state(path, file.raw)
    if state == "trusted":
        return McpReport([f"{path} is trusted already."], data={"file": str(path), "trusted": True})
    if state == "changed":
        prompter.show("It was changed after you trusted it.")
    for line in describe_servers(path, entries):
        prompter.show(line)
    if not args.yes and not prompter.confirm("Trust this file as it is?"):
        return McpReport([], ["Nothing was changed."], {"file": str(path), "trusted": False}, code=1)
    trusted.trust(path, file.raw)
    lines = [
        f"{path} is trusted as it is now. When it changes, its servers are not started until you agree again."
    ]
    return McpReport(lines, data={"file": str(path), "trusted": True, "servers": list(entries)})


def _path(given: Path | None, folder: Path) -> Path:
    if given is not None:
        path = given.expanduser().absolute()
        return path / ".mcp.json" if path.is_dir() else path
    found = project_file(folder)
    if found is None:
        raise NotFoundError(
            f"There is no .mcp.json in {folder}, nor above it in the same repository.",
            advice=f"Name the file: {verb('trust FILE')}.",
        )
    return found


def describe_servers(path: Path, entries: Mapping[str, object]) -> Iterator[str]:
    """Describe what a file's servers may do: their entries without secrets, their variables and keys."""
    yield f"{path} would start or ask these servers whenever they are wanted:"
    for name, written in entries.items():
        yield f"{escape_controls(name)}: {json.dumps(_disclose(object_of(written)), ensure_ascii=False)}"
    texts = texts_of(dict(entries))
    variables = dict.fromkeys(name for text in texts for name in variables_of(text, needed=False))
    keys = dict.fromkeys(
        text.rpartition("keyring:")[2] for text in texts_of(dict(entries)) if "keyring:" in text
    )
    if variables:
        yield f"They would be given these of your variables: {', '.join(variables)}"
    if keys:
        yield f"They would be given these entries of your keyring: {', '.join(map(escape_controls, keys))}"


def _disclose(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Show an entry in full; only literal secrets in it are masked."""
    disclosed = dict(entry)
    for section in ("env", "headers"):
        if section in entry:
            disclosed[section] = {
                name: HIDDEN if is_literal_secret(name, value) else value
                for name, value in object_of(entry[section]).items()
            }
    return disclosed


@dataclass(frozen=True, slots=True)
class _ReviewedTool:
    """A tool for the operator's review.

    Attributes:
        tool: its current definition.
        pinned: its pin; None if it was never approved.
    """

    tool: MCPTool
    pinned: ToolPin | None

    @property
    def state(self) -> Literal["approved", "changed", "new"]:
        """Whether its current definition is approved."""
        if self.pinned is None:
            return "new"
        return "approved" if self.pinned.digest == self.tool.fingerprint else "changed"

    @property
    def changes(self) -> list[str]:
        """Differences from the approved version; empty if that was not kept."""
        if self.state != "changed" or self.pinned is None or not self.pinned.says:
            return []
        before, now = (_json_lines(says) for says in (self.pinned.says, self.tool.pin.says))
        lines = difflib.unified_diff(before, now, n=0, lineterm="")
        return [line for line in lines if line[:1] in "+-" and line[:3] not in {"+++", "---"}]

    def lines(self) -> Iterator[str]:
        """Format lines for people."""
        states = {"new": "not approved yet", "changed": "has changed since it was approved"}
        yield f"{escape_controls(self.tool.name)}  [{states.get(self.state, 'approved already')}]"
        if self.state == "approved":
            return
        # Marked, so that no line of a description looks like one of those below it.
        yield from (f"  | {escape_controls(line)}" for line in self.tool.description.splitlines())
        yield f"  takes: {escape_controls(_arguments(self.tool.args_schema))}"
        # A model reads what the server says of the arguments, too: instructions could stand there.
        schema = json.dumps(dict(self.tool.args_schema), ensure_ascii=False)
        yield f"  their schema: {escape_controls(schema)}"
        yield f"  declares that it {_claim(self.tool)}"
        if self.changes:
            yield "  what has changed:"
            yield from (f"    {escape_controls(line)}" for line in self.changes)
        elif self.state == "changed":
            yield "  The approved description was not stored."

    def data(self) -> dict[str, Any]:
        """Return the facts of the tool, for JSON output."""
        return {
            "name": self.tool.name,
            "state": self.state,
            "description": self.tool.description,
            "arguments": dict(self.tool.args_schema),
            "changes": self.changes,
        }


def approve_tools(
    args: argparse.Namespace, *, home: Path, project: Path | None, prompter: Prompter
) -> McpReport:
    """Approve the current definitions of tools, or revoke approvals. Blocks while it asks their servers.

    Args:
        args: options of `mcp approve`.
        home: Loom's folder.
        project: the project's `.mcp.json`, if there is one.
        prompter: asks the person at the terminal.

    Raises:
        InvalidInputError: a tool is Loom's own, and needs no approval.
        NotFoundError: there is no such server or tool.
        SourceError: a server cannot be asked.
        ConfigError: `trust.json` cannot be read or written.
        StoreBusyError: another process writes `trust.json`.
    """
    if args.revoke:
        return _revoke(args.names, home)
    import anyio

    return anyio.run(_approve, args, home, project, prompter)


def _revoke(names: Sequence[str], home: Path) -> McpReport:
    pins = ToolPins(home)
    gone: list[str] = []
    for name in names:
        server, colon, tool = name.partition(":")
        known = [each for each in pins.of(server) if not colon or each == tool]
        pins.forget(server, known)
        gone += (f"{server}:{each}" for each in known)
    lines = [f"{escape_controls(name)} is not approved any more." for name in gone] or [
        "None of it was approved."
    ]
    return McpReport(lines, data={"revoked": gone})


async def _approve(
    args: argparse.Namespace, home: Path, project: Path | None, prompter: Prompter
) -> McpReport:
    from loom_core.mcp_client.registry import MCPToolRegistry

    servers = list(dict.fromkeys(name.partition(":")[0] for name in args.names))
    prompter.show(f"Asking {', '.join(servers)}.")
    async with MCPToolRegistry(home=home, project=project) as registry:
        await registry.load_servers(servers)
        tools = _tools(registry, args.names)
        pins = {server: ToolPins(home).of(server) for server in servers}
        shown = [_ReviewedTool(tool, pins[tool.server].get(tool.own_name)) for tool in tools]
        for each in shown:
            for line in each.lines():
                prompter.show(line)
        wanted = [each.tool for each in shown if each.state != "approved"]
        data = {"tools": [each.data() for each in shown], "approved": [tool.name for tool in tools]}
        if not wanted:
            line = "All of it is approved already." if tools else "There is no tool to approve."
            return McpReport([line], data=data)
        number = "this tool as it is" if len(wanted) == 1 else f"these {len(wanted)} tools as they are"
        if not args.yes and not prompter.confirm(f"Approve {number}?"):
            before = [each.tool.name for each in shown if each.state == "approved"]
            notes = ["Nothing was changed. --yes skips this question."]
            return McpReport([], notes, {**data, "approved": before}, code=1)
        await registry.approve(wanted)
    return McpReport(
        [f"{escape_controls(tool.name)} is approved as it is now." for tool in wanted], data=data
    )


def _tools(registry: MCPToolRegistry, names: Sequence[str]) -> list[MCPTool]:
    """Return the named tools, each once: by their own names, or all of a server by its name."""
    for status in registry.servers():
        if status.state != "ready":
            told = f"{status.name} cannot be asked: {status.problem or status.state}"
            raise SourceError(told, advice=f"See what is wrong: {verb(f'test {status.name}')}.")
    found: dict[str, MCPTool] = {}
    for name in names:
        if ":" in name:
            tools = [registry.find(name)]
            if not isinstance(tools[0], MCPTool):
                raise InvalidInputError(f"{name} is Loom's own, and needs no approval.")
        else:
            tools = [tool for tool in registry.tools() if tool.server == name]
        found |= {tool.name: tool for tool in tools if isinstance(tool, MCPTool)}
    return list(found.values())


def _json_lines(says: Mapping[str, Any]) -> list[str]:
    return json.dumps(says, ensure_ascii=False, indent=1, sort_keys=True).splitlines()


def _arguments(schema: Mapping[str, Any]) -> str:
    """Format the arguments of a tool in a line."""
    required = schema.get("required", ())
    named = [
        f"{name} ({object_of(part).get('type', 'any')}{', required' if name in required else ''})"
        for name, part in object_of(schema.get("properties")).items()
    ]
    return ", ".join(named) or "nothing"


def _claim(tool: MCPTool) -> str:
    """Describe in words what a tool declares that calling it may do."""
    does = tool.claimed
    what = "only reads" if does.read_only else "may remove or overwrite" if does.destructive else "may add"
    return f"{what}{', and reaches beyond a closed set of things' if does.open_world else ''}."
