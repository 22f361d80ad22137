"""Settings of a GraphRAG knowledge base."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from loom_core.errors import InvalidInputError
from loom_core.knowledge.ingest.extraction.config import ExtractionConfig
from loom_core.knowledge.retrieval.channels import FirstStageSettings
from loom_core.knowledge.retrieval.graph_expansion import LinkSettings, WalkSettings
from loom_core.knowledge.retrieval.sub_questions import SubQuestionSettings

if TYPE_CHECKING:
    from loom_core.knowledge.interface import Reranker

__all__ = [
    "ExpandTo",
    "NearDuplicates",
    "RAGConfig",
    "SearchOptions",
    "SearchRequest",
    "Strategy",
    "WaitSettings",
]


@dataclass(frozen=True, slots=True)
class WaitSettings:
    """Timeouts and intervals in seconds.

    Attributes:
        embedder: for the vector of a question.
        reranker: for the order of an answer's passages.
        work: polling interval for work that comes without a notification, such as other processes' jobs.
        retry: until failed work is retried, such as after a full disk.
        vectors: until embedding of passages is retried after a failure.
        batch: for making vectors, before new documents may preempt it.
    """

    embedder: float = 20.0
    reranker: float = 30.0
    work: float = 0.5
    retry: float = 5.0
    vectors: float = 30.0
    batch: float = 2.0


Strategy = Literal["hybrid", "vector_first", "graph_first", "graph_only", "bm25"]
"""How channels combine.

`hybrid` fuses words and vectors and expands along links; `vector_first` is vectors alone; `graph_first`
ranks what the graph finds by vectors; `graph_only` needs no embedder: words, entities and links;
`bm25` is words alone.
"""


class RAGConfig(BaseModel):
    """Configuration of a knowledge base. The defaults are those that measured best.

    The four weights are factors of the steps of `hybrid` (docs/knowledge.md), not shares of a sum over
    channels: weights tuned for such a sum (0.5, 0.5 and 0.3, say) do not carry over.
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
        default=FirstStageSettings(), description="Parameters of the fusion of words and vectors."
    )
    links: LinkSettings = Field(
        default=LinkSettings(), description="Parameters of the expansion along links."
    )
    walk: WalkSettings = Field(default=WalkSettings(), description="Parameters of the walk over the graph.")
    sub_questions: SubQuestionSettings = Field(
        default=SubQuestionSettings(), description="Parameters of sub-questions."
    )
    thorough: bool = Field(
        default=False,
        description="Whether a question may take longer for a better answer: 12 sub-questions instead of 4.",
    )
    waits: WaitSettings = Field(default=WaitSettings(), description="Timeouts and intervals.")
    vectors: str = Field(
        default="",
        description="Where vectors are searched: exact compares all of them here, chroma asks an approximate "
        "index here, auto does the latter from a million vectors on; a vector database is engine+url, as in "
        "qdrant+http://localhost:6333. It is kept in the knowledge base; empty leaves it as it is.",
    )
    lexical: str = Field(
        default="",
        description="Where words are searched: tantivy here; or a search engine as engine+url, as in "
        "elasticsearch+http://localhost:9200. It is kept in the knowledge base; empty leaves it as it is.",
    )
    graph: str = Field(
        default="",
        description="Where the graph of entities and relations is kept: kuzu, in a file here; none, only in "
        "the knowledge base's own tables; or a graph database, as in falkordb://localhost:6379. The setting "
        "is kept in the knowledge base; empty leaves it as it is.",
    )
    near_duplicates: NearDuplicates = Field(
        default="drop", description="Whether near-duplicate passages are dropped."
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


NearDuplicates = Literal["keep", "drop"]
"""How to treat near duplicates: passages that repeat a better one almost word for word."""

ExpandTo = Literal["passage", "section"]
"""Extent of a hit: the passage that was found, or as much of its section as fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Options of a search. None means the knowledge base's own setting.

    Attributes:
        near_duplicates: whether near duplicates are kept or dropped.
        diversity: how much variety counts against relevance, 0 (not at all) to 1.
        expand_to: `passage`, or `section` for parent-document expansion.
        rerank: whether a reranker reorders the best passages; by default, if there is one.
        reranker: one for this search, instead of the knowledge base's own.
        thorough: whether it may take longer for a better answer, see `RAGConfig.thorough`.

    Raises:
        InvalidInputError: a value is out of range.
    """

    near_duplicates: NearDuplicates | None = None
    diversity: float | None = None
    expand_to: ExpandTo | None = None
    rerank: bool | None = None
    reranker: Reranker | None = None
    thorough: bool | None = None

    def __post_init__(self) -> None:
        if self.diversity is not None and not 0 <= self.diversity <= 1:
            raise InvalidInputError(
                f"diversity is {self.diversity}.", advice="Use 0 (relevance alone) to 1 (variety)."
            )
        for name, value, known in (
            ("near_duplicates", self.near_duplicates, get_args(NearDuplicates)),
            ("expand_to", self.expand_to, get_args(ExpandTo)),
        ):
            if value is not None and value not in known:
                raise InvalidInputError(f"{name} is {value!r}.", advice=f"Use one of: {', '.join(known)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """A search request, of this process or another; see `GraphRAGKnowledgeBase.search`."""

    query: str
    limit: int
    filters: dict[str, Any] | None
    strategy: Strategy
    options: SearchOptions | None = None
