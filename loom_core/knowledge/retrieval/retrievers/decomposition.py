"""`decomposition`: the question and the questions that it is made of, and their passages fused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.retrieval.retrievers.expanding import ExpandingRetriever
from loom_core.knowledge.retrieval.retrievers.expansion import decompose
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.interface import PassageSource
    from loom_core.knowledge.model import RetrievedPassage
    from loom_core.knowledge.retrieval.retrievers.base import Request

__all__ = ["DecompositionRetriever"]


@register("retriever", "decomposition")
class DecompositionRetriever(ExpandingRetriever):
    """Searches for the question and for its parts, which a language model finds, fused by reciprocal rank.

    It is for questions that no single passage answers: "Which of the two is older?" is answered by a passage
    about the one and a passage about the other. The parts are searched for at once, and the question itself
    while the model is at work. Every passage tells the parts (`generated_queries`, `queries_count`) and what
    each of them found (`retrieval_details`).
    """

    name = "decomposition"

    async def _retrieve(self, request: Request, sources: Sequence[PassageSource]) -> list[RetrievedPassage]:
        expansion = await self._expand(request, sources, decompose)
        return expansion.told(self.name, k=self._rrf_k)
