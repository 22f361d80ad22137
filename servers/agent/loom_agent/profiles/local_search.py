"""Search in the knowledge bases of this machine: no data leaves it, so calls need no approval."""

from __future__ import annotations

from loom_core.knowledge.sources.search_tool import DocumentSearchTool
from loom_core.tools.interface import ToolAnnotations

__all__ = ["LocalSearchTool"]


class LocalSearchTool(DocumentSearchTool):
    """`search_documents` over knowledge bases that are all on this machine."""

    @property
    def annotations(self) -> ToolAnnotations:
        """Read-only, and limited to this machine."""
        return ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)
