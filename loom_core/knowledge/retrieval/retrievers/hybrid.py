"""`hybrid`: meaning and words, by the weighted sum of their scores."""

from __future__ import annotations

from functools import partial
from math import isfinite
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.knowledge.retrieval.fusion import weighted_sum
from loom_core.knowledge.retrieval.retrievers.base import Request, SourceRetriever, gathered
from loom_core.knowledge.retrieval.retrievers.channels import DenseChannel, WordChannel, fused_items
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from loom_core.knowledge.interface import Channel, PassageSource
    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["HybridRetriever"]


@register("retriever", "hybrid")
class HybridRetriever(SourceRetriever):
    """Dense and BM25 at once: cosine as it is, BM25 stretched to 0 to 1, each times its weight.

    A passage that one of them did not find counts 0 there. A channel that fails, or that the knowledge
    base does not have, contributes nothing.

    Args:
        sources: what is searched.
        dense_weight: weight of the cosine.
        sparse_weight: weight of BM25; the two need not sum to 1.
        top_k: how many passages are returned where `retrieve` does not say.
        embedding_config: as for `DenseRetriever`.

    Raises:
        ConfigError: a weight is negative or not finite, or both are 0.
    """

    name = "hybrid"

    def __init__(
        self,
        sources: Sequence[PassageSource],
        *,
        dense_weight: float = 0.7,
        sparse_weight: float = 0.3,
        top_k: int = 5,
        embedding_config: Mapping[str, str] | str | None = None,
    ) -> None:
        super().__init__(sources, top_k=top_k)
        weights = dense_weight, sparse_weight
        if not all(isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
            raise ConfigError(
                f"The weights of {self.name!r} are {dense_weight} and {sparse_weight}.",
                advice="Use numbers from 0 up, not both 0, such as 0.7 and 0.3.",
            )
        self._weights: dict[Channel, float] = {"dense": dense_weight, "bm25": sparse_weight}
        self._dense = DenseChannel(sources, embedding_config)
        self._words = WordChannel()

    async def _search(self, source: PassageSource, request: Request) -> list[KnowledgeItem]:
        limit = request.candidates
        asked: dict[Channel, Callable[[], Awaitable[list[KnowledgeItem]]]] = {
            "bm25": partial(self._words.ask, source, request, limit=limit)
        }
        if "dense" in source.channels:
            asked["dense"] = partial(self._dense.ask, source, request, limit=limit)
        found = await gathered(asked, of=f"Knowledge base {source.name!r}")
        scores: dict[Channel, dict[str, float]] = {
            channel: {item.id: item.relevance for item in items} for channel, items in found.items()
        }
        return fused_items(found.values(), self._fused(scores))

    def _fused(self, scores: Mapping[Channel, Mapping[str, float]]) -> dict[str, float]:
        """One score for each passage from the channels' scores, which are best first."""
        return weighted_sum((scores[channel], self._weights[channel]) for channel in scores)
