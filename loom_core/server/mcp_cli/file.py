"""Changing the user's `mcp.json`: one entry at a time, and not a byte beside it."""

from __future__ import annotations

import codecs
import difflib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from loom_core.errors import ConfigError, InvalidInputError, NotFoundError, UnreadableTextError
from loom_core.jsonc import object_of
from loom_core.mcp_client.configuration.command_names import verb
from loom_core.mcp_client.configuration.config_file import SECTION, ServerFile, user_file
from loom_core.server.install.json_text import JsonText
from loom_core.storage.private_file import PrivateFile

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["drop_entry", "put_entries"]

_FORMAT = JsonText(comments=True)


def put_entries(home: Path, entries: Mapping[str, Mapping[str, Any]], *, replace: bool = False) -> None:
    """Write entries into `mcp.json`: all of them, or none. Comments and everything else stay.

    Args:
        home: Loom's folder.
        entries: by the servers' names.
        replace: whether those that are there may be replaced.

    Raises:
        InvalidInputError: a name is taken.
        ConfigError: the file is broken, or cannot be written; it was left as it is.
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
        return text

    _change(home, edit, lambda there: {**there, **entries})


def drop_entry(home: Path, name: str) -> dict[str, Any]:
    """Take an entry out of `mcp.json`; returns what it was.

    Raises:
        NotFoundError: there is none of this name.
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
    # A link, as people have who keep their settings elsewhere, stays one.
    with PrivateFile(path.resolve(), title="The file").writing() as draft:
        file = ServerFile(path, draft.raw)
        there = file.entries
        try:
            text = edit(file.text, there)
            says = ServerFile(path, text.encode()).entries
        except UnreadableTextError as error:
            raise _uneditable(path, f"{error.line}:{error.column}: {error.reason}.") from None
        if says != expected(there):
            raise _uneditable(path, "It is written too unusually.")
        mark = codecs.BOM_UTF8 if (draft.raw or b"").startswith(codecs.BOM_UTF8) else b""
        draft.raw = mark + text.encode()


def _uneditable(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"{path} was left as it is: {reason}", advice="Edit it yourself.")
