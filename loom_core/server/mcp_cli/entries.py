"""Entries that are to be written into `mcp.json`: whether they can be, and what to tell the user of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from loom_core.errors import InvalidInputError
from loom_core.mcp_client.configuration.entry import EntryError
from loom_core.mcp_client.configuration.expansion import Expansion, variables_of
from loom_core.mcp_client.configuration.masking import literal_secrets
from loom_core.mcp_client.configuration.server_config import ServerConfig, checked_name

__all__ = ["McpReport", "check_entry", "notes_on_entry", "texts_of"]


class _AllSet(Mapping[str, str]):
    """An environment in which every variable is set, for looking at an entry where its own are not."""

    def __getitem__(self, name: str) -> str:
        return "1"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def check_entry(name: str, entry: Mapping[str, Any]) -> None:
    """Check an entry before it is written. Variables need not be set, and the keyring is not asked.

    Raises:
        InvalidInputError: no server can be called so, or the entry could never be used.
    """
    try:
        checked_name(name)
    except ValueError as error:
        raise InvalidInputError(
            f"{name[:80]!r} cannot be a server's name.", advice=f"{str(error).capitalize()}."
        ) from None
    expansion = Expansion(_AllSet(), keyring=False)
    try:
        ServerConfig.of_entry(name, _addressable(entry), expansion=expansion, folder=Path.cwd())
    except EntryError as error:
        raise InvalidInputError(error.message, advice=error.advice) from None


def notes_on_entry(name: str, entry: Mapping[str, Any]) -> list[str]:
    """What is missing for an entry to be used, and what had better be written in another way."""
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
    """An entry with an address that can be looked at, where it comes from a variable."""
    url: object = entry.get("url")
    return {**entry, "url": "https://host/"} if isinstance(url, str) and variables_of(url) else entry


def texts_of(value: object) -> Iterator[str]:
    """All texts in an entry, or in any part of one, however deep; names are none of them."""
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
    """What a verb has done. No secret is in it.

    Attributes:
        lines: for standard output.
        notes: for people, beside the answer.
        data: the same for programs.
        code: the exit code: 1 where a server that was tested cannot be used.
    """

    lines: list[str]
    notes: list[str] = field(default_factory=list[str])
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    code: int = 0
