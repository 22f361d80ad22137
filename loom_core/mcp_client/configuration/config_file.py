"""A file that names MCP servers: `mcp.json` of the user, `.mcp.json` of a project."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType

from loom_core.errors import ConfigError, UnreadableTextError
from loom_core.jsonc import JsonMember, JsonNode, JsonReader, object_of

__all__ = ["SECTION", "ServerFile", "project_file", "user_file"]

SECTION = "mcpServers"
"""The section of a file that holds the servers, by the name that most hosts use."""

_OTHER_SECTIONS = {
    "servers": "VS Code",
    "context_servers": "Zed",
    "mcp_servers": "Codex",
    "mcpservers": "",
}
_MAX_BYTES = 10_000_000
_ALL_LEVELS = 200


def user_file(home: Path) -> Path:
    """Return the path of the user's `mcp.json`."""
    return home / "mcp.json"


def project_file(folder: Path) -> Path | None:
    """Find the `.mcp.json` of a folder's project: in the folder or the nearest one above it.

    Nothing is looked for above the top of a repository, nor in or above the user's own folder.
    """
    for place in (folder, *folder.parents):
        if place == Path.home():
            return None
        if (file := place / ".mcp.json").is_file():
            return file
        if (place / ".git").exists():
            return None
    return None


@dataclass(frozen=True)
class ServerFile:
    """A file as it was read. Comments and trailing commas are allowed.

    Attributes:
        path: its path.
        raw: its bytes; None if there is no file.
    """

    path: Path
    raw: bytes | None

    @classmethod
    def read(cls, path: Path) -> ServerFile:
        """Read a file, if it is there. Blocks.

        Raises:
            ConfigError: it cannot be read, or is far larger than such a file is.
        """
        try:
            with path.open("rb") as file:
                raw = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            return cls(path, None)
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be read: {error.strerror or error}.",
                advice="Check that you have permission to read it.",
            ) from None
        if len(raw) > _MAX_BYTES:
            raise ConfigError(
                f"{path} has more than {_MAX_BYTES:,} bytes.", advice="It is not a file that lists servers."
            )
        return cls(path, raw)

    @cached_property
    def text(self) -> str:
        """Content of the file, without a byte order mark.

        Raises:
            ConfigError: it is not UTF-8.
        """
        raw = (self.raw or b"").removeprefix(codecs.BOM_UTF8)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise ConfigError(
                f"{self.path}:{line}: this is not UTF-8.", advice="Save the file as UTF-8."
            ) from None

    @cached_property
    def entries(self) -> Mapping[str, object]:
        """The servers by name, as they are written; of two with one name the last, as JSON's readers do.

        Raises:
            ConfigError: the file is broken, or the servers are in another section.
        """
        return {member.key: member.node.value for member in self._members}

    @cached_property
    def duplicates(self) -> list[tuple[str, str, str]]:
        """Repeated names, each with the position that is ignored and the one that counts."""
        last = {member.key: member for member in self._members}
        return [
            (member.key, self._place(member.start), self._place(last[member.key].start))
            for member in self._members
            if member is not last[member.key]
        ]

    def where(self, name: str, path: Sequence[str | int] = ()) -> str:
        """`file:line:column` of an entry, or of the value at a path in it.

        Args:
            name: name of an existing entry.
            path: keys and list indices, from the entry on.
        """
        if not path:
            return self._place(next(member.start for member in reversed(self._members) if member.key == name))
        root = JsonReader(depth=_ALL_LEVELS, unique=False).read(self.text)
        return self._place(root.place((SECTION, name, *path)) if root else 0)

    @cached_property
    def _members(self) -> tuple[JsonMember, ...]:
        root = self._root()
        if root is None:
            return ()
        section = root.member(SECTION)
        if section is None:
            self._refuse_other_sections(root)
            return ()
        if not isinstance(section.node.value, dict | NoneType):
            raise ConfigError(
                f"{self._place(section.start)}: {SECTION} is not an object.",
                advice=f'Write {{"{SECTION}": {{"name": {{"command": "…"}}}}}}.',
            )
        return section.node.members

    def _root(self) -> JsonNode | None:
        try:
            return JsonReader(unique=False).read(self.text)
        except UnreadableTextError as error:
            raise ConfigError(
                f"{self.path}:{error.line}:{error.column}: {error.reason}.", advice="Correct it there."
            ) from None

    def _refuse_other_sections(self, root: JsonNode) -> None:
        for member in root.members:
            host = _OTHER_SECTIONS.get(member.key.lower())
            if host is None or not isinstance(member.node.value, dict):
                continue
            like = f", as in {host}" if host else ""
            raise ConfigError(
                f"{self._place(member.start)}: the servers are called {member.key!r} here{like}.",
                advice=f'Call them "{SECTION}".',
            )
        stray = next((member for member in root.members if _is_entry(member.node.value)), None)
        if stray is not None:
            raise ConfigError(
                f"{self._place(stray.start)}: the server {stray.key!r} stands outside {SECTION}.",
                advice=f'Put it into {{"{SECTION}": {{…}}}}.',
            )

    def _place(self, position: int) -> str:
        at = UnreadableTextError.at(self.text, position, "")
        return f"{self.path}:{at.line}:{at.column}"


def _is_entry(value: object) -> bool:
    return not {"command", "url"}.isdisjoint(object_of(value))
