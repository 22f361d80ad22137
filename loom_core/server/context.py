"""What a tool may know about the call it serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp.server.session import ServerSession

__all__ = ["ToolContext"]


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The call a tool is serving. A tool gets it by naming a parameter of this type.

    Attributes:
        session: the SDK's session of this request; tools use `progress` rather than this.
        request_id: id of the request, unique on its connection only.
        protocol_version: the revision the client speaks, such as `2026-07-28`.
    """

    session: ServerSession
    request_id: str
    protocol_version: str
