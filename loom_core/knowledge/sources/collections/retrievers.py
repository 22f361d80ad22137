"""The retrievers `llama_dense`, `llama_bm25` and `llama_hybrid`: names of LlamaIndex, which is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from loom_core.config_file import plain_reason
from loom_core.errors import ConfigError
from loom_core.knowledge.retrieval.retrievers.fusion import HybridRetriever
from loom_core.knowledge.retrieval.retrievers.single_channel import BM25Retriever, DenseRetriever
from loom_core.knowledge.sources.collections.config import ENGINES, CollectionConfig, Engine
from loom_core.knowledge.sources.collections.source import CollectionSource
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_core.knowledge.interface import PassageSource

__all__ = ["LlamaBM25Retriever", "LlamaDenseRetriever", "LlamaHybridRetriever", "StoreType"]

StoreType = Engine | Literal["es"]
"""Engines of collections; `es` is Elasticsearch."""


@register("retriever", "llama_dense")
class LlamaDenseRetriever(DenseRetriever):
    """`dense` over a collection of a vector store, which it can open itself.

    Args:
        sources: the sources to search, where `store_params` has no `url`.
        top_k: how many passages are returned where `retrieve` does not say.
        store_type: engine of the store.
        store_params: with `url` and `collection`, the collection to search, see `CollectionConfig`, and its
            `name`; without, settings such as `index_params` or `body` for the collections of this engine in
            `sources`.
        embedding_config: as for `DenseRetriever`.

    Raises:
        ConfigError: as for `DenseRetriever`; or there is no such engine, the parameters are none of
            `CollectionConfig`, or there is nothing that they could apply to.
    """

    name = "llama_dense"

    def __init__(
        self,
        sources: Sequence[PassageSource] = (),
        *,
        top_k: int = 5,
        store_type: StoreType = "qdrant",
        store_params: Mapping[str, Any] | None = None,
        embedding_config: Mapping[str, str] | str | None = None,
    ) -> None:
        engine: Engine = "elasticsearch" if store_type == "es" else store_type
        if engine not in ENGINES:
            raise ConfigError(f"There is no store type {store_type!r}.", advice=f"Use {', '.join(ENGINES)}.")
        params = dict(store_params or {})
        given = sources
        if "url" in params:
            params.setdefault("embedding", embedding_config or "")
            name = str(params.pop("name", params.get("collection", "")))
            sources = [CollectionSource(engine, _read(params), name=name)]
        elif params:
            sources = _with_params(sources, engine, params)
        self._own = [source for source in sources if source not in given]
        super().__init__(sources, top_k=top_k, embedding_config=embedding_config)

    def close(self) -> None:
        """Close the connections of the collections that it has opened."""
        for source in self._own:
            if isinstance(source, CollectionSource):
                source.close()


@register("retriever", "llama_bm25")
class LlamaBM25Retriever(BM25Retriever):
    """`bm25`, by another name."""

    name = "llama_bm25"


@register("retriever", "llama_hybrid")
class LlamaHybridRetriever(HybridRetriever):
    """`hybrid`, by another name.

    Args:
        sources: the sources to search.
        dense_weight: weight of the cosine.
        bm25_weight: weight of BM25; the two need not sum to 1.
        top_k: how many passages are returned where `retrieve` does not say.

    Raises:
        ConfigError: as for `HybridRetriever`.
    """

    name = "llama_hybrid"

    def __init__(
        self,
        sources: Sequence[PassageSource],
        *,
        dense_weight: float = 0.7,
        bm25_weight: float = 0.3,
        top_k: int = 5,
    ) -> None:
        super().__init__(sources, dense_weight=dense_weight, sparse_weight=bm25_weight, top_k=top_k)


def _with_params(
    sources: Sequence[PassageSource], engine: Engine, params: Mapping[str, Any]
) -> list[PassageSource]:
    """Return the sources, with other settings for those that are collections of an engine."""
    changed = [
        CollectionSource(engine, _read({**source.config.model_dump(), **params}), name=source.name)
        if isinstance(source, CollectionSource) and source.engine == engine
        else source
        for source in sources
    ]
    if changed == list(sources):
        raise ConfigError(
            f"`store_params` are for a collection of {engine}, and there is none.",
            advice="Give `url` and `collection` among them, or a `CollectionSource` among the sources.",
        )
    return changed


def _read(params: Mapping[str, Any]) -> CollectionConfig:
    try:
        return CollectionConfig.model_validate(params)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f"`store_params` cannot be used: {name}: {plain_reason(first)}.",
            advice=f"There are: name, {', '.join(CollectionConfig.model_fields)}.",
        ) from None
