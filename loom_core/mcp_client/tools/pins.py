"""Pinning of approved tools: a store of approvals, and detection of changed definitions."""

from __future__ import annotations

import hashlib
import logging
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from loom_core.errors import ConfigError
from loom_core.mcp_client.configuration.command_names import verb
from loom_core.mcp_client.configuration.trust import ToolPin, ToolPins
from loom_core.mcp_client.tools.result_cache import canonical
from loom_core.paths import loom_home
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
        definition: what the server says.
        words: whether texts, and the choices that an argument has, count, too. A foreign tool could
            hide in them what it wants of a model, so an approval is for these very words. But a server of
            which all that is believed may reword its tools: one of ours does with every source it gets.
    """
    says = _says(definition)
    if not words:
        del says["title"], says["description"]
        says["inputSchema"] = without_keywords(definition.input_schema, _WORDS)
    return hashlib.sha256(canonical(says).encode("utf-8", "surrogatepass")).hexdigest()


def pin_of(definition: mcp_types.Tool, *, digest: str) -> ToolPin:
    """Return the pin of a tool that is approved as it is now.

    Args:
        definition: what the server says.
        digest: what it is known by, its `fingerprint`.
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

        Another process may have approved it a moment ago, so the file is looked at each time.
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
        """Return the command that approves a tool (`server:tool`), as it is typed, with quotes."""
        home = () if self._home == loom_home() else ("--home", str(self._home))
        return verb(shlex.join(("approve", name, *home)))

    async def approve(self, server: str, pins: Mapping[str, ToolPin]) -> None:
        """Approve tools as they are now.

        Args:
            server: its id.
            pins: by the tools' names as the server has them; see `pin_of`.

        Raises:
            ConfigError: `trust.json` cannot be read or written.
            StoreBusyError: another process writes it.
        """
        await anyio.to_thread.run_sync(ToolPins(self._home).pin, server, dict(pins))

    async def approve_as_seen(self, name: str, digest: str) -> None:
        """Approve a tool as a person was shown it, also where its server is not connected here.

        Args:
            name: `server:tool`; for a tool of Loom's own nothing is done.
            digest: what it was known by then.

        Raises:
            ConfigError: as for `approve`.
            StoreBusyError: likewise.
        """
        server, colon, tool = name.partition(":")
        if colon and digest and self.reason(server, tool, digest):
            await self.approve(server, {tool: ToolPin(digest=digest)})
