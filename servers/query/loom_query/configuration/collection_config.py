"""Configuration of a source that is a collection which others have filled."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from loom_core.knowledge.sources.collections.config import CollectionConfig

__all__ = ["CollectionSourceConfig"]


class CollectionSourceConfig(CollectionConfig):
    """A collection of a vector database or search engine that others have filled."""

    retriever: str = Field(
        default="",
        description="Name of the retriever that finds the passages, such as hybrid, llama_hybrid or hyde; by "
        "default dense, or bm25 without `embedding`.",
    )
    retriever_params: dict[str, Any] = Field(
        default={}, description='Parameters of the retriever, such as {"dense_weight": 0.5}.'
    )
