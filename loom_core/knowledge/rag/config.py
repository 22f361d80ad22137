"""Settings of a GraphRAG knowledge base."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from loom_core.knowledge.extraction.config import ExtractionConfig
from loom_core.knowledge.rag.channels import FirstStageSettings
from loom_core.knowledge.rag.links import LinkSettings
from loom_core.knowledge.rag.options import ExpandTo, NearDuplicates
from loom_core.knowledge.rag.vectors import VectorIndexChoice
from loom_core.knowledge.rag.waits import WaitSettings
from loom_core.knowledge.rag.walk import WalkSettings

__all__ = ["RAGConfig", "Strategy"]

Strategy = Literal["hybrid", "vector_first", "graph_first", "graph_only", "bm25"]
"""How channels combine.

`hybrid` fuses words and vectors and expands along links; `vector_first` is vectors alone; `graph_first`
ranks what the graph finds by vectors; `graph_only` needs no embedder: words, entities and links;
`bm25` is words alone.
"""


_STORES = ("elasticsearch", "es", "llamaindex", "milvus", "qdrant")
"""Stores of vectors that people ask for, and that cannot be used yet."""


class RAGConfig(BaseModel):
    """How a knowledge base is built and asked. The defaults are what the benchmarks measured best.

    The four weights are factors of the steps of `hybrid` (docs/knowledge.md), not shares of channels that are
    added up: numbers such as 0.5, 0.5 and 0.3, chosen for a sum of graph, vectors and expansion, do not carry
    over.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    strategy: Strategy = Field(
        default="hybrid",
        description="Strategy where there is an embedder; without one it is graph_only, or bm25.",
    )
    extraction: ExtractionConfig = ExtractionConfig()
    chunker: Literal["structure", "simple", "sliding"] = "structure"
    chunker_options: dict[str, int] = Field(default={}, description="Sizes; see the chunkers.")
    lexical_weight: float = Field(default=0.4, ge=0, description="Factor of BM25 in the first stage.")
    vector_weight: float = Field(default=0.6, ge=0, description="Factor of the cosine in the first stage.")
    expansion_weight: float = Field(default=2.0, ge=0, description="Factor of what a link passes on.")
    graph_weight: float = Field(default=0.3, ge=0, description="Factor of the walk over the graph.")
    first_stage: FirstStageSettings = Field(
        default=FirstStageSettings(), description="Numbers of the fusion of words and vectors."
    )
    links: LinkSettings = Field(default=LinkSettings(), description="Numbers of the expansion along links.")
    walk: WalkSettings = Field(default=WalkSettings(), description="Numbers of the walk over the graph.")
    waits: WaitSettings = Field(default=WaitSettings(), description="How long to wait for what is needed.")
    vector_index: VectorIndexChoice = Field(
        default="auto",
        description="How vectors are searched: exact compares all of them, chroma asks an approximate index "
        "that takes memory of its own, auto does the latter from a million vectors on.",
    )
    near_duplicates: NearDuplicates = Field(
        default="drop", description="Whether passages that say the same almost word for word are dropped."
    )
    diversity: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="How much variety counts against relevance (MMR); 0 for none.",
    )
    expand_to: ExpandTo = Field(
        default="passage",
        description="What is shown: the passage found, or as much of its section as fits (parent document).",
    )

    @field_validator("vector_index", mode="before")
    @classmethod
    def _is_connected(cls, value: object) -> object:
        if value in _STORES:
            raise ValueError(
                f"Loom does not connect to {value} yet. Use auto, exact or chroma: the vectors are in the "
                "knowledge base's own files."
            )
        return value
