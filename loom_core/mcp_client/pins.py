"""Tools as they were when the user approved them: who changes one afterwards has to be approved anew."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from loom_core.errors import ConfigError
from loom_core.mcp_client.result_cache import canonical
from loom_core.mcp_client.trust import ToolPins
from loom_core.tools.schema import without_keywords

if TYPE_CHECKING:
    import mcp_types

__all__ = ["Approvals", "definition_hash"]

_log = logging.getLogger(__name__)


_WORDS = frozenset({"$comment", "description", "enum", "examples", "title"})


def definition_hash(definition: mcp_types.Tool, *, words: bool = True) -> str:
    """What a tool is known by: its name, what it says of itself, and what it takes.

    Args:
        definition: what the server says.
        words: whether texts, and the choices that an argument has, count, too. Somebody else's tool could
            hide in them what it wants of a model, so an approval is for these very words. But a server of
            which all that is believed may word its tools anew: one of ours does with every source it gets.
    """
    facts = {"name", "input_schema", "annotations"}
    says = definition.model_dump(
        mode="json", by_alias=True, include=facts | {"title", "description"} if words else facts
    )
    if not words:
        says["inputSchema"] = without_keywords(definition.input_schema, _WORDS)
    return hashlib.sha256(canonical(says).encode("utf-8", "surrogatepass")).hexdigest()


class Approvals:
    """Which tools the user has approved, kept in `trust.json`.

    Args:
        home: Loom's folder.
    """

    def __init__(self, home: Path) -> None:
        self._pins = ToolPins(home)
        self._known: dict[str, Mapping[str, str]] = {}
        self._problem = ""

    async def read(self, server: str) -> None:
        """Read again what was approved of a server."""
        try:
            self._known[server] = await anyio.to_thread.run_sync(self._pins.of, server)
            self._problem = ""
        except ConfigError as error:
            _log.warning("no tool counts as approved: %s", error)
            self._known.clear()
            self._problem = str(error)

    def reason(self, server: str, tool: str, digest: str) -> str:
        """Why a tool has to be approved before it is called, for people; empty if it need not."""
        if self._problem:
            return f"What was approved cannot be read. {self._problem}"
        pinned = self._known.get(server, {}).get(tool)
        if pinned is None:
            return "It has not been approved yet."
        return (
            "" if pinned == digest else "Its description or its arguments have changed since it was approved."
        )

    async def approve(self, server: str, digests: Mapping[str, str]) -> None:
        """Approve tools as they are now.

        Args:
            server: its id.
            digests: the tools' names as the server has them, with their `fingerprint`.

        Raises:
            ConfigError: `trust.json` cannot be read or written.
            StoreBusyError: another process writes it.
        """
        await anyio.to_thread.run_sync(self._pins.pin, server, dict(digests))
        await self.read(server)
