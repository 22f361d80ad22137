"""`dense`: passages that are close to the question in meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.retrieval.retrievers.base import Request, SourceRetriever
from loom_core.knowledge.retrieval.retrievers.channels import DenseChannel
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_core.knowledge.interface import PassageSource
    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["DenseRetriever"]


@register("retriever", "dense")
class DenseRetriever(SourceRetriever):
    """Vector search. The score is the cosine, which passages of one model share across knowledge bases.

    Args:
        sources: what is searched.
        top_k: how many passages are returned where `retrieve` does not say.
        embedding_config: the model that embeds the question, see `DenseChannel`; None leaves it to the
            knowledge base.
    """

    name = "dense"
    needs = "dense"

    def __init__(
        self,
        sources: Sequence[PassageSource],
        *,
        top_k: int = 5,
        embedding_config: Mapping[str, str] | str | None = None,
    ) -> None:
        super().__init__(sources, top_k=top_k)
        self._dense = DenseChannel(sources, embedding_config)

    async def _search(self, source: PassageSource, request: Request) -> list[KnowledgeItem]:
        return await self._dense.ask(source, request, limit=request.top_k)
