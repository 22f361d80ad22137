"""Fusion retrievers of dense and BM25 search: `hybrid` (weighted sum) and `fusion` (also rank, rerank)."""

from __future__ import annotations

from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from loom_core.errors import ConfigError
from loom_core.knowledge.retrieval.fusion import reciprocal_rank, weighted_sum
from loom_core.knowledge.retrieval.retrievers.base import (
    RetrievalRequest,
    SourceRetriever,
    find_language_model,
    gather,
)
from loom_core.knowledge.retrieval.retrievers.channels import (
    DenseChannel,
    LexicalChannel,
    merge_channel_items,
)
from loom_core.knowledge.retrieval.retrievers.passages import passage_key, rerank_passages, sort_by_score
from loom_core.plugin_registry import create, list_registered, register

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from loom_core.knowledge.interface import Channel, PassageSource, Reranker
    from loom_core.knowledge.model import KnowledgeItem, RetrievedPassage

__all__ = ["FusionMode", "FusionRetriever", "HybridRetriever"]


@register("retriever", "hybrid")
class HybridRetriever(SourceRetriever):
    """Weighted sum of dense and BM25 scores: the cosine, and BM25 scaled to 0 to 1.

    A passage that one of them did not find scores 0 there. A channel that fails, or that the knowledge
    base does not have, contributes nothing.

    Args:
        sources: the sources to search.
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
        self._words = LexicalChannel()

    async def _search(self, source: PassageSource, request: RetrievalRequest) -> list[KnowledgeItem]:
        limit = request.candidates
        asked: dict[Channel, Callable[[], Awaitable[list[KnowledgeItem]]]] = {
            "bm25": partial(self._words.ask, source, request, limit=limit)
        }
        if "dense" in source.channels:
            asked["dense"] = partial(self._dense.ask, source, request, limit=limit)
        found = await gather(asked, of=f"Knowledge base {source.name!r}")
        scores: dict[Channel, dict[str, float]] = {
            channel: {item.id: item.relevance for item in items} for channel, items in found.items()
        }
        return merge_channel_items(found.values(), self._fuse(scores))

    def _fuse(self, scores: Mapping[Channel, Mapping[str, float]]) -> dict[str, float]:
        """Fuse the channels' scores, which are best first, into one score per passage."""
        return weighted_sum((scores[channel], self._weights[channel]) for channel in scores)


FusionMode = Literal["rrf", "weighted"]
"""`rrf` fuses by rank only, `weighted` by scores as `hybrid` does."""

_MIN_RERANKED = 20
_RERANKED_PER_HIT = 4


@register("retriever", "fusion")
class FusionRetriever(HybridRetriever):
    """Dense and BM25 search, fused by one of two rules; the best may be reranked.

    Args:
        sources: the sources to search.
        mode: the rule of fusion.
        dense_weight: weight of the cosine (`weighted`).
        bm25_weight: weight of BM25 (`weighted`).
        rrf_k: constant of `reciprocal_rank` (`rrf`).
        rerank: whether the best candidates are reranked; None means if a reranker is given or named. If it
            fails, they keep their order.
        rerank_model: the folder of a cross-encoder, or the registered name of a reranker; `llm` takes the
            language model of a source or the default one. None takes `features`, which needs no model.
        embedding_config: as for `DenseRetriever`.
        top_k: how many passages are returned where `retrieve` does not say.
        reranker: the reranker itself, instead of its name.

    Raises:
        ConfigError: as for `HybridRetriever`; or the mode is unknown, `rrf_k` is below 1, or the reranker
            cannot be created from its name alone or is given twice.
    """

    name = "fusion"

    def __init__(
        self,
        sources: Sequence[PassageSource],
        *,
        mode: FusionMode = "rrf",
        dense_weight: float = 0.7,
        bm25_weight: float = 0.3,
        rrf_k: int = 60,
        rerank: bool | None = None,
        rerank_model: str | None = None,
        embedding_config: Mapping[str, str] | str | None = None,
        top_k: int = 5,
        reranker: Reranker | None = None,
    ) -> None:
        super().__init__(
            sources,
            dense_weight=dense_weight,
            sparse_weight=bm25_weight,
            top_k=top_k,
            embedding_config=embedding_config,
        )
        if mode not in get_args(FusionMode):
            raise ConfigError(f"There is no fusion mode {mode!r}.", advice="Use rrf or weighted.")
        if rrf_k < 1:
            raise ConfigError(f"rrf_k is {rrf_k}.", advice="Use 1 or more; 60 is usual.")
        self._mode: FusionMode = mode
        self._rrf_k = rrf_k
        if reranker is not None and rerank_model is not None:
            raise ConfigError(
                "Both `reranker` and `rerank_model` are given.",
                advice="Give one of them, and leave the other out.",
            )
        if rerank is None:
            rerank = reranker is not None or rerank_model is not None
        self._reranker = (reranker or _make_reranker(rerank_model or "features", sources)) if rerank else None

    async def _retrieve(
        self, request: RetrievalRequest, sources: Sequence[PassageSource]
    ) -> list[RetrievedPassage]:
        passages = await super()._retrieve(request, sources)
        if self._reranker is None:
            return passages
        candidates = passages[: max(_MIN_RERANKED, _RERANKED_PER_HIT * request.top_k)]
        return await rerank_passages(request.text, candidates, self._reranker, limit=request.top_k)

    def _fuse(self, scores: Mapping[Channel, Mapping[str, float]]) -> dict[str, float]:
        if self._mode == "weighted":
            return super()._fuse(scores)
        return reciprocal_rank(map(list, scores.values()), k=self._rrf_k)

    def _merge(self, found: Sequence[Sequence[RetrievedPassage]]) -> list[RetrievedPassage]:
        """Merge by score; in rank mode fuse the sources' rankings by rank again, ties by own score."""
        if self._mode == "weighted" or len(found) == 1:
            return super()._merge(found)
        rankings = [sort_by_score(passages) for passages in found]
        ranks = reciprocal_rank(([passage_key(p) for p in ranking] for ranking in rankings), k=self._rrf_k)
        by_rank = sorted(
            (passage for ranking in rankings for passage in ranking),
            key=lambda p: (-ranks[passage_key(p)], -p["score"], passage_key(p)),
        )
        return [{**passage, "score": ranks[passage_key(passage)]} for passage in by_rank]


def _make_reranker(model: str, sources: Sequence[PassageSource]) -> Reranker:
    """Create a reranker from its name, or from the folder of a cross-encoder."""
    if model == "llm":
        return create(
            "reranker", "llm", llm_provider=find_language_model(sources, needed_by="The reranker 'llm'")
        )
    if model in list_registered("reranker"):
        try:
            return create("reranker", model)
        except ConfigError as error:
            raise ConfigError(
                f"`rerank_model={model!r}` is not enough: {error.message}",
                advice=f'Give reranker=create("reranker", "{model}", …) with its parameters. {error.advice}',
            ) from None
    if Path(model).is_dir():
        return create("reranker", "cross_encoder", path=model)
    raise ConfigError(
        f"There is no reranker {model!r}, nor a folder of this name; no model is ever downloaded.",
        advice="Give `rerank_model` the folder of a cross-encoder in ONNX, or one of "
        f"{', '.join(list_registered('reranker'))}; of a model that a server offers, give "
        f'reranker=create("reranker", "api", base_url="https://…", model="{model}").',
    )
