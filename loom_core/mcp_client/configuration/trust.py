"""Trust store: project files and tool definitions that the user has reviewed and approved.

Each is identified by its hash: a changed file or description needs a new approval.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, ValidationError

from loom_core.errors import ConfigError
from loom_core.storage.private_file import PrivateFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["ToolPin", "ToolPins", "TrustState", "TrustedFiles", "digest_of"]

TrustState = Literal["trusted", "changed", "unknown"]
"""State of a file: unchanged since it was trusted, changed since, or never trusted."""

_VERSION = 2  # 1 had the hash of a tool only


class ToolPin(BaseModel):
    """A tool as it was when it was approved.

    Attributes:
        digest: hash of the part of its definition that counts for the approval.
        says: its definition, to show later what has changed; empty if it was not kept.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    digest: str
    says: dict[str, JsonValue] = {}


def _pin(written: object) -> object:
    return {"digest": written} if isinstance(written, str) else written


_Pins = dict[str, Annotated[ToolPin, BeforeValidator(_pin)]]


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: int = _VERSION
    files: dict[str, str] = {}
    tools: dict[str, _Pins] = {}


class _TrustFile:
    """`trust.json`, read again when it has changed."""

    def __init__(self, home: Path) -> None:
        self._file = PrivateFile(home / "trust.json", title="The file of what is trusted,")
        self._raw: bytes | None = None
        self._content = _Content()

    def content(self) -> _Content:
        raw = self._file.read()
        if raw is not self._raw:
            self._content = self._parse(raw)
            self._raw = raw
        return self._content

    def change(self, edit: Callable[[_Content], None]) -> None:
        with self._file.writing() as draft:
            content = self._parse(draft.raw)
            edit(content)
            draft.raw = (content.model_dump_json(indent=2) + "\n").encode()

    def _parse(self, raw: bytes | None) -> _Content:
        try:
            content = _Content() if raw is None else _Content.model_validate_json(raw)
        except ValidationError:
            raise self._unreadable("it was not written by Loom") from None
        if not 1 <= content.version <= _VERSION:
            raise self._unreadable(f"it is of version {content.version}, this Loom knows {_VERSION}")
        content.version = _VERSION
        return content

    def _unreadable(self, reason: str) -> ConfigError:
        return ConfigError(
            f"The file of what is trusted, {self._file.path}, cannot be read: {reason}.",
            advice="Move it away, review the files, and trust them again.",
        )


class TrustedFiles:
    """The project files that the user trusts, by the content that was reviewed. All methods block.

    Args:
        home: Loom's folder.
    """

    def __init__(self, home: Path) -> None:
        self._file = _TrustFile(home)

    def state(self, path: Path, raw: bytes) -> TrustState:
        """Return whether a file with this content is trusted.

        Raises:
            ConfigError: `trust.json` cannot be read; then no file is trusted.
        """
        pinned = self._file.content().files.get(_key(path))
        if pinned is None:
            return "unknown"
        return "trusted" if pinned == digest_of(raw) else "changed"

    def trust(self, path: Path, raw: bytes) -> None:
        """Trust a file with this content, and no other.

        Raises:
            ConfigError: `trust.json` cannot be read or written.
            StoreBusyError: another process writes it.
        """
        self._file.change(lambda content: content.files.update({_key(path): digest_of(raw)}))

    def revoke(self, path: Path) -> bool:
        """Revoke the trust in a file, whatever its content; return whether it was trusted.

        Raises:
            ConfigError: `trust.json` cannot be read or written.
            StoreBusyError: another process writes it.
        """
        found: list[str] = []

        def edit(content: _Content) -> None:
            if pinned := content.files.pop(_key(path), None):
                found.append(pinned)

        self._file.change(edit)
        return bool(found)

    def paths(self) -> list[Path]:
        """Return all files that were trusted, sorted by path, including changed and missing ones.

        Raises:
            ConfigError: `trust.json` cannot be read.
        """
        return [Path(path) for path in sorted(self._file.content().files)]


class ToolPins:
    """Pinned definitions of approved tools. All methods block.

    The caller decides what is hashed; a digest is any short text.

    Args:
        home: Loom's folder.
    """

    def __init__(self, home: Path) -> None:
        self._file = _TrustFile(home)

    def of(self, server: str) -> Mapping[str, ToolPin]:
        """Return the pins of a server's tools, by the tool's name.

        Raises:
            ConfigError: `trust.json` cannot be read; then no tool is approved.
        """
        return dict(self._file.content().tools.get(server, {}))

    def find(self, server: str, tool: str) -> ToolPin | None:
        """Return the pin of a tool, or None; an unchanged file is not read again.

        Raises:
            ConfigError: as for `of`.
        """
        return self._file.content().tools.get(server, {}).get(tool)

    def pin(self, server: str, pins: Mapping[str, ToolPin]) -> None:
        """Store pins of a server's tools; they replace those of the same tools, and other tools keep theirs.

        Raises:
            ConfigError: `trust.json` cannot be read or written.
            StoreBusyError: another process writes it.
        """
        self._file.change(lambda content: content.tools.setdefault(server, {}).update(pins))

    def forget(self, server: str, tools: Iterable[str] | None = None) -> None:
        """Drop the pins of some tools of a server, or of all.

        Raises:
            ConfigError: `trust.json` cannot be read or written.
            StoreBusyError: another process writes it.
        """

        def edit(content: _Content) -> None:
            gone = set(content.tools.get(server, {}) if tools is None else tools)
            left = {name: pin for name, pin in content.tools.get(server, {}).items() if name not in gone}
            content.tools = {**content.tools, server: left}
            if not left:
                del content.tools[server]

        self._file.change(edit)


def digest_of(raw: bytes) -> str:
    """Return the hash that identifies a file's content."""
    return sha256(raw).hexdigest()


def _key(path: Path) -> str:
    # The folder is resolved and the file is not: its servers are started in that folder, and a link there to
    # a file that is trusted elsewhere would have them start the programs of that folder.
    return str(path.parent.resolve() / path.name)
