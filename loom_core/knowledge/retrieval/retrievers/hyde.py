"""`hyde`: search with passages that might answer the question, which look more like what is searched."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.retrieval.retrievers.base import gathered
from loom_core.knowledge.retrieval.retrievers.channels import ask_channel
from loom_core.knowledge.retrieval.retrievers.expanding import ExpandingRetriever
from loom_core.knowledge.retrieval.retrievers.expansion import hypothetical_documents
from loom_core.knowledge.retrieval.retrievers.passages import ranked, to_passage
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingProvider
    from loom_core.knowledge.interface import PassageSource
    from loom_core.knowledge.model import RetrievedPassage
    from loom_core.knowledge.retrieval.retrievers.base import Request

__all__ = ["HyDERetriever"]


@register("retriever", "hyde")
class HyDERetriever(ExpandingRetriever):
    """Hypothetical document embeddings: a language model answers first, and its answers are searched for.

    Over `dense` it does what the paper does: the mean of the vectors of the hypothetical documents, and of
    the question's own, is the one vector that is searched for; the score is the cosine to it. Any other base
    searches for each text, and the rankings are fused by reciprocal rank. Every passage tells the
    documents (`hyde_queries`, `hyde_queries_count`). Without any, the base's own result is returned.

    Source: Gao et al., "Precise Zero-Shot Dense Retrieval without Relevance Labels", 2022
    (arXiv 2212.10496).
    """

    name = "hyde"

    async def _retrieve(self, request: Request, sources: Sequence[PassageSource]) -> list[RetrievedPassage]:
        by_vector = self._base_name == "dense"
        expansion = await self._expand(request, sources, hypothetical_documents, search_each=not by_vector)
        if by_vector and expansion.texts:
            passages = await self._nearest(request, sources, expansion.texts)
        elif expansion.texts:
            passages = expansion.fused(k=self._rrf_k)
        else:
            passages = expansion.rankings[request.text]
        return [
            {
                **passage,
                "source": self.name,
                "hyde_queries": expansion.texts,
                "hyde_queries_count": len(expansion.texts),
            }
            for passage in passages
        ]

    @cached_property
    def _embedder(self) -> EmbeddingProvider | None:
        """The model that the base was told to embed with, or None to leave that to each source."""
        config = self._base_params.get("embedding_config")
        return None if config is None else create_embedder(config)

    async def _nearest(
        self, request: Request, sources: Sequence[PassageSource], documents: Sequence[str]
    ) -> list[RetrievedPassage]:
        """The passages nearest to the mean vector; each vector space has its own."""
        searched = [source for source in sources if "dense" in source.channels]
        spaces = {source.embedder_id: source for source in searched}
        vectors = await gathered(
            {
                space: partial(self._mean_vector, source, request, documents)
                for space, source in spaces.items()
            },
            of=self.name,
        )
        found = await gathered(
            {
                source.name: partial(
                    ask_channel,
                    "dense",
                    source,
                    request,
                    limit=request.top_k,
                    vector=vectors[source.embedder_id],
                )
                for source in searched
                if source.embedder_id in vectors
            },
            of=self.name,
        )
        return ranked(
            to_passage(item, knowledge_base=name, retriever=self.name)
            for name, items in found.items()
            for item in items
        )

    async def _mean_vector(
        self, source: PassageSource, request: Request, documents: Sequence[str]
    ) -> NDArray[np.float32] | None:
        """The mean of all vectors, at length 1; None where there is none and the source embeds by itself."""
        import numpy as np

        embed = source.embed if self._embedder is None else self._embedder.embed
        rows = [await embed(documents, kind="passage")]
        if self._include_original:
            rows.append(await embed([request.text], kind="query"))
        known = [row for row in rows if row is not None]
        if not known:
            return None
        mean = np.concatenate(known).mean(axis=0)
        length = float(np.linalg.norm(mean))
        return mean / length if length > 0 else None
