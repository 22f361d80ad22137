"""Query expansion retrievers, by a language model: `hyde`, `multi_query` and `decomposition`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import anyio

from loom_core.embedding.registry import create_embedder
from loom_core.errors import ConfigError, LoomError
from loom_core.knowledge.model import QueryDetail
from loom_core.knowledge.retrieval.fusion import reciprocal_rank
from loom_core.knowledge.retrieval.retrievers.base import BaseRetriever, find_language_model, gather
from loom_core.knowledge.retrieval.retrievers.channels import ask_channel
from loom_core.knowledge.retrieval.retrievers.expansion import (
    decompose,
    generate_variants,
    hypothetical_documents,
)
from loom_core.knowledge.retrieval.retrievers.passages import passage_key, sort_by_score, to_passage
from loom_core.plugin_registry import create, register

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingProvider
    from loom_core.knowledge.interface import PassageSource
    from loom_core.knowledge.model import RetrievedPassage
    from loom_core.knowledge.retrieval.retrievers.base import RetrievalRequest
    from loom_core.knowledge.retrieval.retrievers.passages import PassageKey
    from loom_core.llm.interface import LLMProvider

__all__ = [
    "DecompositionRetriever",
    "ExpandingRetriever",
    "HyDERetriever",
    "MultiQueryRetriever",
    "QueryExpansion",
]

_log = logging.getLogger(__name__)

_MAX_QUERIES = 10
_MIN_DEPTH, _MAX_DEPTH = 20, 100
"""Limits of the search depth of each text in the fusion, which is twice the number of passages requested."""
_EXPANSION_RETRIEVERS = frozenset({"decomposition", "hyde", "multi_query"})
"""Base retrievers that also need the language model."""


@dataclass(frozen=True, slots=True)
class QueryExpansion:
    """Result of a query expansion.

    Attributes:
        texts: the generated texts; empty if the model failed.
        rankings: the passages that each text found, best first; the question's come first where it counts.
    """

    texts: list[str]
    rankings: dict[str, list[RetrievedPassage]]

    def fuse(self, *, k: int) -> list[RetrievedPassage]:
        """Fuse all rankings into one, by reciprocal rank fusion with the constant `k`."""
        first: dict[PassageKey, RetrievedPassage] = {}
        for ranking in self.rankings.values():
            for passage in ranking:
                first.setdefault(passage_key(passage), passage)
        scores = reciprocal_rank(
            ([passage_key(passage) for passage in ranking] for ranking in self.rankings.values()), k=k
        )
        return sort_by_score({**first[key], "score": score} for key, score in scores.items())

    def to_passages(self, source: str, *, k: int) -> list[RetrievedPassage]:
        """Return the fused passages with the generated queries and their hits in the metadata."""
        details = [_detail(query, hits) for query, hits in self.rankings.items()]
        return [
            {
                **passage,
                "source": source,
                "generated_queries": self.texts,
                "queries_count": len(self.texts),
                "retrieval_details": details,
            }
            for passage in self.fuse(k=k)
        ]


class ExpandingRetriever(BaseRetriever):
    """Expands the question with a language model, and searches with a base retriever.

    If the model fails, it returns the base's hits for the question.

    Args:
        sources: the sources to search.
        llm_provider: the language model; None takes that of the first source that has one, or else the
            default of the process. A base that expands too gets the same one unless `base_retriever_params`
            names another.
        base_retriever: registered name of the retriever that searches.
        num_queries: how many texts the model is asked for, 1 to 10.
        include_original: whether the question itself counts too. It always does if the model fails.
        rrf_k: constant of reciprocal rank fusion.
        max_tokens: limit of each answer of the model; models that think first need room for it.
        timeout: seconds for the model; what it has written by then is used.
        base_retriever_params: further parameters of the base, such as `embedding_config`.
        top_k: how many passages are returned where `retrieve` does not say.

    Raises:
        ConfigError: a parameter is out of its range, there is no such base, its parameters are wrong, or
            there is no language model.
    """

    def __init__(
        self,
        sources: Sequence[PassageSource],
        *,
        llm_provider: LLMProvider | None = None,
        base_retriever: str = "dense",
        num_queries: int = 3,
        include_original: bool = True,
        rrf_k: int = 60,
        max_tokens: int = 2000,
        timeout: float = 8.0,
        base_retriever_params: Mapping[str, Any] | None = None,
        top_k: int = 5,
    ) -> None:
        super().__init__(sources, top_k=top_k)
        _check(
            1 <= num_queries <= _MAX_QUERIES, f"num_queries is {num_queries}.", f"Use 1 to {_MAX_QUERIES}."
        )
        _check(rrf_k >= 0, f"rrf_k is {rrf_k}.", "Use 0 or more; 60 is usual.")
        _check(
            max_tokens > 0, f"max_tokens is {max_tokens}.", "Use 1 or more; 2000 leaves room for thinking."
        )
        _check(timeout > 0, f"timeout is {timeout}.", "Use a number of seconds above 0.")
        self._llm = llm_provider or find_language_model(sources, needed_by=f"The retriever {self.name!r}")
        self._num_queries = num_queries
        self._include_original = include_original
        self._rrf_k = rrf_k
        self._max_tokens = max_tokens
        self._timeout = timeout
        params = dict(base_retriever_params or {})
        if base_retriever in _EXPANSION_RETRIEVERS:
            params.setdefault("llm_provider", self._llm)
        self._base_name = base_retriever
        self._base_params = params
        self._base = create("retriever", base_retriever, sources, **params)

    async def _expand(
        self,
        request: RetrievalRequest,
        sources: Sequence[PassageSource],
        generate: Callable[..., Awaitable[list[str]]],
        *,
        search_each: bool = True,
    ) -> QueryExpansion:
        """Search for the question while the model works, then for each generated text.

        So the question's passages are ready if the model fails, and an error of the request is raised
        without waiting for the model. A generated text whose search fails is left out.

        Args:
            request: the request.
            sources: the sources to search.
            generate: the function of `expansion` that asks the model.
            search_each: whether the generated texts are searched for; else only the question is.

        Raises:
            LoomError: the question cannot be searched for.
        """
        found: dict[str, list[RetrievedPassage]] = {}
        failures: list[LoomError] = []
        depth = max(request.top_k, min(_MAX_DEPTH, max(_MIN_DEPTH, 2 * request.top_k)))

        async def search(text: str) -> None:
            try:
                found[text] = await self._base.retrieve(
                    text,
                    top_k=depth,
                    kb_ids=[source.name for source in sources],
                    filters=request.filters,
                )
            except LoomError as error:
                if text == request.text:
                    failures.append(error)
                    group.cancel_scope.cancel()
                else:
                    _log.warning("A generated text was left out, because its search failed: %s", error)

        texts: list[str] = []
        async with anyio.create_task_group() as group:
            group.start_soon(search, request.text)
            texts = await generate(
                self._llm,
                request.text,
                n=self._num_queries,
                max_tokens=self._max_tokens,
                timeout=self._timeout,
            )
            for text in texts if search_each else ():
                group.start_soon(search, text)
        if failures:
            raise failures[0]
        searched = [text for text in texts if text in found]
        if self._include_original or not searched:
            searched.insert(0, request.text)
        return QueryExpansion(texts, {text: found[text] for text in searched})


def _detail(query: str, hits: Sequence[RetrievedPassage]) -> QueryDetail:
    return QueryDetail(
        query=query,
        hits_count=len(hits),
        hits=[{"chunk_id": hit["chunk_id"], "text": hit["text"], "score": hit["score"]} for hit in hits],
    )


def _check(holds: bool, message: str, advice: str) -> None:
    if not holds:
        raise ConfigError(message, advice=advice)


@register("retriever", "decomposition")
class DecompositionRetriever(ExpandingRetriever):
    """Searches for the question and its sub-questions, found by a language model; fused by reciprocal rank.

    It is for questions that no single passage answers: "Which of the two is older?" is answered by a passage
    about the one and a passage about the other. The sub-questions are searched for at once, and the question
    itself while the model works. Every passage has the sub-questions (`generated_queries`, `queries_count`)
    and what each of them found (`retrieval_details`).
    """

    name = "decomposition"

    async def _retrieve(
        self, request: RetrievalRequest, sources: Sequence[PassageSource]
    ) -> list[RetrievedPassage]:
        expansion = await self._expand(request, sources, decompose)
        return expansion.to_passages(self.name, k=self._rrf_k)


@register("retriever", "multi_query")
class MultiQueryRetriever(ExpandingRetriever):
    """Searches for the question and for generated variants, fused by reciprocal rank.

    It finds passages that use other words than the question. The search for the question runs while the
    model works, so that a failing model costs no more than its timeout. Every passage has the variants
    (`generated_queries`, `queries_count`) and what each of them found (`retrieval_details`).
    """

    name = "multi_query"

    async def _retrieve(
        self, request: RetrievalRequest, sources: Sequence[PassageSource]
    ) -> list[RetrievedPassage]:
        expansion = await self._expand(request, sources, generate_variants)
        return expansion.to_passages(self.name, k=self._rrf_k)


@register("retriever", "hyde")
class HyDERetriever(ExpandingRetriever):
    """Hypothetical document embeddings: a language model writes answers, and the search is for these.

    Over `dense` it works as in the paper: the mean of the vectors of the hypothetical documents, and of
    the question's own, is the query vector; the score is the cosine to it. Any other base
    searches for each text, and the rankings are fused by reciprocal rank. Every passage has the
    documents (`hyde_queries`, `hyde_queries_count`). Without any, the base's own result is returned.

    Source: Gao et al., "Precise Zero-Shot Dense Retrieval without Relevance Labels", 2022
    (arXiv 2212.10496).
    """

    name = "hyde"

    async def _retrieve(
        self, request: RetrievalRequest, sources: Sequence[PassageSource]
    ) -> list[RetrievedPassage]:
        by_vector = self._base_name == "dense"
        expansion = await self._expand(request, sources, hypothetical_documents, search_each=not by_vector)
        if by_vector and expansion.texts:
            passages = await self._nearest(request, sources, expansion.texts)
        elif expansion.texts:
            passages = expansion.fuse(k=self._rrf_k)
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
        """The embedder that the base was configured with, or None to use each source's own."""
        config = self._base_params.get("embedding_config")
        return None if config is None else create_embedder(config)

    async def _nearest(
        self, request: RetrievalRequest, sources: Sequence[PassageSource], documents: Sequence[str]
    ) -> list[RetrievedPassage]:
        """Return the passages nearest to the mean vector; each vector space has its own."""
        searched = [source for source in sources if "dense" in source.channels]
        spaces = {source.embedder_id: source for source in searched}
        vectors = await gather(
            {
                space: partial(self._mean_vector, source, request, documents)
                for space, source in spaces.items()
            },
            of=self.name,
        )
        found = await gather(
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
        return sort_by_score(
            to_passage(item, knowledge_base=name, retriever=self.name)
            for name, items in found.items()
            for item in items
        )

    async def _mean_vector(
        self, source: PassageSource, request: RetrievalRequest, documents: Sequence[str]
    ) -> NDArray[np.float32] | None:
        """Return the normalised mean of all vectors; None without any, where the source embeds by itself."""
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
