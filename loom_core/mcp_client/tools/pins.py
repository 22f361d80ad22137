"""Pinning of approved tools: a store of approvals, and detection of changed definitions."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from loom_core.errors import ConfigError
from loom_core.mcp_client.configuration.command_names import verb_in
from loom_core.mcp_client.configuration.trust import ToolPin, ToolPins
from loom_core.mcp_client.tools.result_cache import canonical
from loom_core.tools.schemas.model_schema import without_keywords

if TYPE_CHECKING:
    from pathlib import Path

    import mcp_types

__all__ = ["Approvals", "definition_hash", "pin_of"]

_log = logging.getLogger(__name__)


_MAX_KEPT = 100_000  # characters of what a tool says of itself, to show later what has changed
_WORDS = frozenset({"$comment", "description", "enum", "examples", "title"})


def definition_hash(definition: mcp_types.Tool, *, words: bool = True) -> str:
    """Return the hash that identifies a tool: of its name, its description and its arguments.

    Args:
        definition: the server's definition of the tool.
        words: whether texts and the choices of arguments count, too. A foreign tool could hide instructions
            for a model in them, so an approval is for the exact words. But a trusted server may reword its
            tools: Loom's own servers do so with every new source.
    """
    says = _says(definition)
    if not words:
        del says["title"], says["description"]
        says["inputSchema"] = without_keywords(definition.input_schema, _WORDS)
    return hashlib.sha256(canonical(says).encode("utf-8", "surrogatepass")).hexdigest()


def pin_of(definition: mcp_types.Tool, *, digest: str) -> ToolPin:
    """Return the pin of a tool that is approved as it is now.

    Args:
        definition: the server's definition of the tool.
        digest: the tool's `fingerprint`.
    """
    says = _says(definition)
    return ToolPin(digest=digest, says=says if len(canonical(says)) <= _MAX_KEPT else {})


def _says(definition: mcp_types.Tool) -> dict[str, Any]:
    """Return the part of a tool's definition that counts for an approval."""
    facts = {"name", "title", "description", "input_schema", "annotations"}
    return definition.model_dump(mode="json", by_alias=True, include=facts)


class Approvals:
    """Tools that the user has approved, in `trust.json`; all processes of a home share them.

    Args:
        home: Loom's folder.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._pins = ToolPins(home)
        self._problem = ""

    def reason(self, server: str, tool: str, digest: str) -> str:
        """Say why a tool needs an approval before it is called; empty if it needs none.

        Another process may have approved it just now, so the file is checked each time.
        """
        try:
            pin = self._pins.find(server, tool)
        except ConfigError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                _log.warning("no tool counts as approved: %s", error)
            return f"What was approved cannot be read. {error}"
        self._problem = ""
        if pin is None:
            return "It has not been approved yet."
        changed = "Its description or its arguments have changed since it was approved."
        return "" if pin.digest == digest else changed

    def command(self, name: str) -> str:
        """Return the command that approves a tool (`server:tool`), as it is typed, in backquotes."""
        return verb_in(self._home, "approve", name)

    async def approve(self, server: str, pins: Mapping[str, ToolPin]) -> None:
        """Approve tools as they are now.

        Args:
            server: its id.
            pins: pins by the server's own names of the tools; see `pin_of`.

        Raises:
            ConfigError: `trust.json` cannot be read or written.
            StoreBusyError: another process writes it.
        """
        await anyio.to_thread.run_sync(ToolPins(self._home).pin, server, dict(pins))

    async def approve_as_seen(self, name: str, digest: str) -> None:
        """Approve the version of a tool that a person was shown, even if its server is not connected.

        Args:
            name: `server:tool`; for a tool of Loom's own nothing is done.
            digest: fingerprint of that version.

        Raises:
            ConfigError: as for `approve`.
            StoreBusyError: likewise.
        """
        server, colon, tool = name.partition(":")
        if colon and digest and self.reason(server, tool, digest):
            await self.approve(server, {tool: ToolPin(digest=digest)})
