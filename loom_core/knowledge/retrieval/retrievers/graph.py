"""`graph`: passages about the entities that the question names, and about their neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.retrieval.retrievers.base import Request, SourceRetriever
from loom_core.knowledge.retrieval.retrievers.channels import ask_channel
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from loom_core.knowledge.interface import PassageSource
    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["GraphRetriever"]


@register("retriever", "graph")
class GraphRetriever(SourceRetriever):
    """The channel `graph` of knowledge bases that have it, with its own score."""

    name = "graph"
    needs = "graph"

    async def _search(self, source: PassageSource, request: Request) -> list[KnowledgeItem]:
        return await ask_channel("graph", source, request, limit=request.top_k)
