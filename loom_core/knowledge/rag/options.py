"""What one search may ask for beyond its question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from loom_core.errors import InvalidInputError

if TYPE_CHECKING:
    from loom_core.knowledge.interface import Reranker
    from loom_core.knowledge.rag.config import Strategy

__all__ = ["ExpandTo", "NearDuplicates", "SearchOptions", "SearchRequest"]

NearDuplicates = Literal["keep", "drop"]
"""What becomes of a passage that says again, almost word for word, what a better one says."""

ExpandTo = Literal["passage", "section"]
"""What is shown of a document: the passage that was found, or as much of its section as fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How what is found is refined before it is shown. None is the knowledge base's own setting.

    Attributes:
        near_duplicates: whether near duplicates are kept or dropped.
        diversity: how much variety counts against relevance, 0 (not at all) to 1.
        expand_to: `passage`, or `section` for parent-document expansion.
        rerank: whether a reranker orders the best passages anew; by default, if there is one.
        reranker: one for this search, instead of the knowledge base's own.

    Raises:
        InvalidInputError: a value that is not among these.
    """

    near_duplicates: NearDuplicates | None = None
    diversity: float | None = None
    expand_to: ExpandTo | None = None
    rerank: bool | None = None
    reranker: Reranker | None = None

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
    """One search as it was asked for, here or by another process; see `GraphRAGKnowledgeBase.search`."""

    query: str
    limit: int
    filters: dict[str, Any] | None
    strategy: Strategy
    options: SearchOptions | None = None
