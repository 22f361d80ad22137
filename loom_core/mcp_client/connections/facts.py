"""What a server says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mcp_types

__all__ = ["ServerFacts"]


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server said of itself when it was connected to. It is what it says: nothing is to be trusted.

    Its words are without characters that act or hide, and cut at 2 KB.

    Attributes:
        name: what it calls itself; may be empty.
        version: its own version; may be empty.
        instructions: how its tools are to be used, for a model; may be empty.
        protocol_version: the revision spoken, such as `2026-07-28`.
        modern: whether that is one without handshake and sessions.
        capabilities: what it offers.
        seconds: how long it took to connect.
    """

    name: str
    version: str
    instructions: str
    protocol_version: str
    modern: bool
    capabilities: mcp_types.ServerCapabilities
    seconds: float
