"""`keyword`: passages whose identifiers and significant words the question has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.retrieval.retrievers.base import Request, SourceRetriever
from loom_core.knowledge.retrieval.retrievers.channels import ask_channel
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from loom_core.knowledge.interface import PassageSource
    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["KeywordRetriever"]


@register("retriever", "keyword")
class KeywordRetriever(SourceRetriever):
    """The channel `keyword` of knowledge bases that have it, with its own score."""

    name = "keyword"
    needs = "keyword"

    async def _search(self, source: PassageSource, request: Request) -> list[KnowledgeItem]:
        return await ask_channel("keyword", source, request, limit=request.top_k)
