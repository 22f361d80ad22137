"""Editor of `mcp.json`: entries are checked, and no other byte changes."""

from __future__ import annotations

import codecs
import difflib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from loom_core.errors import ConfigError, InvalidInputError, NotFoundError, UnreadableTextError
from loom_core.jsonc import object_of
from loom_core.knowledge.text.control_characters import UNSTORABLE
from loom_core.mcp_client.configuration.command_names import verb
from loom_core.mcp_client.configuration.config_file import SECTION, ServerFile, user_file
from loom_core.mcp_client.configuration.entry import EntryError
from loom_core.mcp_client.configuration.expansion import Expansion, variables_of
from loom_core.mcp_client.configuration.masking import literal_secrets
from loom_core.mcp_client.configuration.server_config import ServerConfig, check_name
from loom_core.mcp_client.configuration.trust import ToolPins
from loom_core.server.install.json_text import JsonText
from loom_core.storage.private_file import PrivateFile

__all__ = ["McpReport", "check_entry", "drop_entry", "notes_on_entry", "put_entries", "texts_of"]

_FORMAT = JsonText(comments=True)


def put_entries(home: Path, entries: Mapping[str, Mapping[str, Any]], *, replace: bool = False) -> None:
    """Write entries into `mcp.json`: all of them, or none. Comments and everything else stay.

    Approvals under their names are withdrawn: they are of tools of the servers that had the names.

    Args:
        home: Loom's folder.
        entries: entries by server name.
        replace: whether existing entries may be replaced.

    Raises:
        InvalidInputError: a name is taken.
        ConfigError: the file or `trust.json` is broken, or cannot be written; the file was left as it is.
        StoreBusyError: another process writes it.
    """

    def edit(text: str, there: Mapping[str, object]) -> str:
        for name in entries:
            if name in there and not replace:
                raise InvalidInputError(
                    f"There is a server {name!r} already.",
                    advice="Give --force to replace it, or choose another name.",
                )
        for name, entry in entries.items():
            text = _FORMAT.put(text, SECTION, name, entry)
        pins = ToolPins(home)
        for name in filter(pins.of, entries):
            pins.forget(name)  # before it is written: if this process is killed in between, people are asked
        return text

    _change(home, edit, lambda there: {**there, **entries})


def drop_entry(home: Path, name: str) -> dict[str, Any]:
    """Remove an entry from `mcp.json`, and return it.

    Raises:
        NotFoundError: there is no entry of this name.
        ConfigError: the file is broken, or cannot be written; it was left as it is.
        StoreBusyError: another process writes it.
    """
    dropped: dict[str, Any] = {}

    def edit(text: str, there: Mapping[str, object]) -> str:
        if name not in there:
            near = difflib.get_close_matches(name, there, n=1)
            raise NotFoundError(
                f"There is no server {name!r} in {user_file(home)}.",
                advice=f"Did you mean {near[0]}?"
                if near
                else f"{verb('list')} shows the servers there are, and where.",
            )
        dropped.update(object_of(there[name]))
        return _FORMAT.drop(text, SECTION, name)

    _change(home, edit, lambda there: {key: entry for key, entry in there.items() if key != name})
    return dropped


def _change(
    home: Path,
    edit: Callable[[str, Mapping[str, object]], str],
    expected: Callable[[Mapping[str, object]], Mapping[str, object]],
) -> None:
    path = user_file(home)
    # If the file is a link, as with dotfiles, the link stays.
    with PrivateFile(path.resolve(), title="The file").writing() as draft:
        file = ServerFile(path, draft.raw)
        there = file.entries
        try:
            text = edit(file.text, there)
            says = ServerFile(path, text.encode()).entries
        except UnreadableTextError as error:
            raise _uneditable(path, f"{error.line}:{error.column}: {error.reason}.") from None
        if says != expected(there):
            raise _uneditable(path, "Its formatting is not supported.")
        mark = codecs.BOM_UTF8 if (draft.raw or b"").startswith(codecs.BOM_UTF8) else b""
        draft.raw = mark + text.encode()


def _uneditable(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"{path} was left as it is: {reason}", advice="Edit it yourself.")


class _AllSet(Mapping[str, str]):
    """Environment in which every variable is set, to check an entry without its variables."""

    def __getitem__(self, name: str) -> str:
        return "1"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def check_entry(name: str, entry: Mapping[str, Any]) -> None:
    """Check an entry before it is written. Variables need not be set, and the keyring is not asked.

    Raises:
        InvalidInputError: the name or the entry is invalid.
    """
    try:
        check_name(name)
    except ValueError as error:
        raise InvalidInputError(
            f"{name[:80]!r} cannot be a server's name.", advice=f"{str(error).capitalize()}."
        ) from None
    if UNSTORABLE.search(json.dumps(entry, ensure_ascii=False)):
        raise InvalidInputError(
            "It holds text that is not valid Unicode.",
            advice="A path or an argument that is not UTF-8 cannot be written: rename what it names.",
        )
    expansion = Expansion(_AllSet(), keyring=False)
    try:
        ServerConfig.of_entry(name, _addressable(entry), expansion=expansion, folder=Path.cwd())
    except EntryError as error:
        raise InvalidInputError(error.message, advice=error.advice) from None


def notes_on_entry(name: str, entry: Mapping[str, Any]) -> list[str]:
    """List notes on an entry: unset variables, and literal secrets."""
    unset = dict.fromkeys(
        variable for text in texts_of(entry) for variable in variables_of(text) if variable not in os.environ
    )
    notes = [
        f"The variable {variable} is not set here: {name!r} cannot be started without it."
        for variable in unset
    ]
    for place in literal_secrets(entry):
        variable = place.rpartition(".")[2] if place.startswith("env.") else "NAME"
        notes.append(
            f"{place} of {name!r} holds a secret as it is, which is copied with the file. Write"
            f" '${{{variable}}}' and set that variable, or keyring:{variable} after"
            f" `keyring set loom {variable}`."
        )
    return notes


def _addressable(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry with a placeholder URL, if its URL comes from a variable."""
    url: object = entry.get("url")
    return {**entry, "url": "https://host/"} if isinstance(url, str) and variables_of(url) else entry


def texts_of(value: object) -> Iterator[str]:
    """Return all texts in an entry or a part of one, at any depth, without names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in cast("dict[str, object]", value).values():
            yield from texts_of(each)
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            yield from texts_of(each)


@dataclass(frozen=True, slots=True)
class McpReport:
    """Result of a verb, without secrets.

    Attributes:
        lines: for standard output.
        notes: for people, in addition to the answer.
        data: the same for programs.
        code: the exit code: 1 if a tested server failed, or a question was declined.
    """

    lines: list[str]
    notes: list[str] = field(default_factory=list[str])
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    code: int = 0
