"""`mcp trust`: what the servers of a project's file would do is shown, and the user says yes or no."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom_core.errors import NotFoundError
from loom_core.jsonc import object_of
from loom_core.knowledge.text.control_characters import visible
from loom_core.mcp_client.configuration.command_names import verb
from loom_core.mcp_client.configuration.config_file import ServerFile, project_file
from loom_core.mcp_client.configuration.expansion import variables_of
from loom_core.mcp_client.configuration.masking import HIDDEN, is_literal_secret
from loom_core.mcp_client.configuration.trust import TrustedFiles
from loom_core.server.mcp_cli.entries import McpReport, texts_of

if TYPE_CHECKING:
    import argparse

__all__ = ["Asking", "trust_file"]


@dataclass(frozen=True, slots=True)
class Asking:
    """The person at the terminal.

    Attributes:
        show: shows a line before a question.
        agreed: asks the question; whether the answer is yes. Blocks.
    """

    show: Callable[[str], None]
    agreed: Callable[[str], bool]


def trust_file(args: argparse.Namespace, *, home: Path, folder: Path, asking: Asking) -> McpReport:
    """Trust a project's file as it is now, or no longer. Blocks.

    Args:
        args: options of `mcp trust`.
        home: Loom's folder.
        folder: the current one, whose project is meant if no file is given.
        asking: the person at the terminal.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: it is broken, or what is trusted cannot be written.
        StoreBusyError: another process writes that.
    """
    path = _path(args.file, folder)
    trusted = TrustedFiles(home)
    if args.revoke:
        was = trusted.revoke(path)
        said = "is trusted no longer" if was else "was not trusted"
        return McpReport([f"{path} {said}."], data={"file": str(path), "trusted": False})
    file = ServerFile.read(path)
    if file.raw is None:
        raise NotFoundError(f"There is no file {path}.", advice="Name a project's .mcp.json.")
    entries = file.entries
    state = trusted.state(path, file.raw)
    if state == "trusted":
        return McpReport([f"{path} is trusted already."], data={"file": str(path), "trusted": True})
    if state == "changed":
        asking.show("It was changed after you trusted it.")
    for line in _description(path, entries):
        asking.show(line)
    if not args.yes and not asking.agreed("Trust this file as it is?"):
        return McpReport([], ["Nothing was changed."], {"file": str(path), "trusted": False}, code=1)
    trusted.trust(path, file.raw)
    lines = [
        f"{path} is trusted as it is now. When it changes, its servers are not started until you agree anew."
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


def _description(path: Path, entries: Mapping[str, object]) -> Iterator[str]:
    """What trusting a file means: everything it says of its servers but secrets, and what it reads."""
    yield f"{path} would start or ask these servers whenever they are wanted:"
    for name, written in entries.items():
        yield f"{visible(name)}: {json.dumps(_disclosed(object_of(written)), ensure_ascii=False)}"
    texts = texts_of(dict(entries))
    variables = dict.fromkeys(name for text in texts for name in variables_of(text, needed=False))
    keys = dict.fromkeys(
        text.rpartition("keyring:")[2] for text in texts_of(dict(entries)) if "keyring:" in text
    )
    if variables:
        yield f"They would be given these of your variables: {', '.join(variables)}"
    if keys:
        yield f"They would be given these entries of your keyring: {', '.join(keys)}"


def _disclosed(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry as it is; only secrets that stand in it themselves are hidden, as they say nothing."""
    disclosed = dict(entry)
    for section in ("env", "headers"):
        if section in entry:
            disclosed[section] = {
                name: HIDDEN if is_literal_secret(name, value) else value
                for name, value in object_of(entry[section]).items()
            }
    return disclosed
