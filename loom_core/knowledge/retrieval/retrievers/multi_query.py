"""`multi_query`: the question and other wordings of it, and their passages fused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.retrieval.retrievers.expanding import ExpandingRetriever
from loom_core.knowledge.retrieval.retrievers.expansion import generate_variants
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.interface import PassageSource
    from loom_core.knowledge.model import RetrievedPassage
    from loom_core.knowledge.retrieval.retrievers.base import Request

__all__ = ["MultiQueryRetriever"]


@register("retriever", "multi_query")
class MultiQueryRetriever(ExpandingRetriever):
    """Searches for the question and for variants that a language model writes, fused by reciprocal rank.

    It finds what other words for the same thing lead to. The search for the question runs while the model
    is at work, so that a model that fails costs no more than its time limit. Every passage tells the
    variants (`generated_queries`, `queries_count`) and what each of them found (`retrieval_details`).
    """

    name = "multi_query"

    async def _retrieve(self, request: Request, sources: Sequence[PassageSource]) -> list[RetrievedPassage]:
        expansion = await self._expand(request, sources, generate_variants)
        return expansion.told(self.name, k=self._rrf_k)
