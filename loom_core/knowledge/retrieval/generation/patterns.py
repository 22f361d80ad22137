"""Patterns of retrieval-augmented generation: retrieve, order anew, answer with citations."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import anyio

from loom_core.errors import ConfigError, InvalidInputError, LoomError
from loom_core.knowledge.retrieval.fusion import min_max
from loom_core.knowledge.retrieval.generation.generator import RAGAnswer, generate_answer
from loom_core.knowledge.retrieval.retrievers.passages import passage_key, reranked
from loom_core.knowledge.validation import check_above_zero
from loom_core.plugin_registry import create

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_core.knowledge.interface import PassageSource, Reranker, Retriever
    from loom_core.knowledge.model import KnowledgeItem, RetrievedPassage
    from loom_core.llm.interface import LLMProvider

__all__ = ["HierarchicalRAG", "MultiQueryRAG", "RAGAnswer", "RAGOptions", "RAGPattern"]

_log = logging.getLogger(__name__)

_PARTS = 3  # passages that a document is judged by

_DocumentKey = tuple[str, str]
"""Knowledge base, and URI of the document; its id where it has none. The filter `source` takes either."""


class RAGOptions(TypedDict, total=False):
    """What every pattern takes, as `RAGPattern` describes it."""

    reranker: Reranker | None
    top_k: int
    rerank_top_k: int | None
    rerank_timeout: float
    passage_tokens: int
    max_tokens: int
    timeout: float


class RAGPattern:
    """Retrieve, rerank, answer.

    Args:
        llm: the model that answers; None leaves `retrieve` only.
        retriever: finds the passages.
        reranker: puts them in order; None keeps the retriever's order, as does a reranker that fails.
        top_k: how many passages are retrieved.
        rerank_top_k: how many of them are kept after reranking; None keeps all.
        rerank_timeout: seconds for the reranker.
        passage_tokens: how many tokens of passages the model is shown.
        max_tokens: limit of the answer.
        timeout: seconds for the answer.

    Raises:
        ConfigError: a number is out of range.
    """

    def __init__(
        self,
        llm: LLMProvider | None,
        retriever: Retriever,
        *,
        reranker: Reranker | None = None,
        top_k: int = 10,
        rerank_top_k: int | None = None,
        rerank_timeout: float = 10.0,
        passage_tokens: int = 6000,
        max_tokens: int = 2000,
        timeout: float = 60.0,
    ) -> None:
        check_above_zero(
            top_k=top_k,
            rerank_top_k=rerank_top_k,
            rerank_timeout=rerank_timeout,
            passage_tokens=passage_tokens,
            max_tokens=max_tokens,
            timeout=timeout,
        )
        self._llm = llm
        self._retriever = retriever
        self._reranker = reranker
        self._top_k = top_k
        self._kept = min(top_k, rerank_top_k or top_k)
        self._rerank_timeout = rerank_timeout
        self._passage_tokens = passage_tokens
        self._max_tokens = max_tokens
        self._timeout = timeout

    async def retrieve(self, query: str, *, filters: dict[str, Any] | None = None) -> list[RetrievedPassage]:
        """The passages that an answer would be written from, best first.

        Args:
            query: the question, in any language.
            filters: as in `Retriever.retrieve`.

        Raises:
            LoomError: what the retriever raises.
        """
        passages, _ = await self._ranked(query, filters)
        return passages

    async def run(self, query: str, *, filters: dict[str, Any] | None = None) -> RAGAnswer:
        """Answer a question from what is retrieved, in the question's language.

        Args:
            query: the question.
            filters: as in `Retriever.retrieve`.

        Raises:
            ConfigError: there is no language model.
            LLMError: the model fails, or does not answer in time.
            LoomError: what the retriever raises.
        """
        if self._llm is None:
            raise ConfigError(
                "There is no language model to answer with.",
                advice="Give the pattern an LLMProvider, or use retrieve() for the passages alone.",
            )
        passages, notes = await self._ranked(query, filters)
        answer = await generate_answer(
            self._llm,
            query,
            passages,
            passage_tokens=self._passage_tokens,
            max_tokens=self._max_tokens,
            timeout=self._timeout,
        )
        return replace(answer, notes=(*notes, *answer.notes))

    async def _ranked(
        self, query: str, filters: dict[str, Any] | None
    ) -> tuple[list[RetrievedPassage], list[str]]:
        """The passages in their last order, and what is to be noted about how they came there."""
        passages = await self._find(query, filters)
        notes: list[str] = []
        if passages and passages[0]["source"] == "multi_query" and not passages[0].get("generated_queries"):
            notes.append("The question was not expanded: the model gave no variants.")
        if passages and self._reranker is not None:
            reranker = _TimedReranker(self._reranker, self._rerank_timeout)
            passages = await reranked(query, passages, reranker, limit=self._kept)
            if reranker.failure:
                notes.append(f"The passages are not reranked: {reranker.failure}")
        return passages[: self._kept], notes

    async def _find(self, query: str, filters: dict[str, Any] | None) -> list[RetrievedPassage]:
        """The candidates, best first; other patterns find them in another way."""
        return await self._retriever.retrieve(query, top_k=self._top_k, filters=filters)


class MultiQueryRAG(RAGPattern):
    """Retrieve by several wordings of the question, rerank, answer.

    The model that answers also writes the wordings; see `MultiQueryRetriever`.

    Args:
        llm: the model; None leaves `retrieve` only, with the model of a source or the default
            one for the wordings.
        sources: what is searched.
        base_retriever: registered name of the retriever that searches for each wording.
        num_queries: how many wordings the model is asked for, 1 to 10.
        base_retriever_params: further parameters of that retriever.
        options: the other arguments of `RAGPattern`.

    Raises:
        ConfigError: a number is out of range, the base retriever cannot be made, or there is no model at all.
    """

    def __init__(
        self,
        llm: LLMProvider | None,
        sources: Sequence[PassageSource],
        *,
        base_retriever: str = "dense",
        num_queries: int = 3,
        base_retriever_params: Mapping[str, Any] | None = None,
        **options: Unpack[RAGOptions],
    ) -> None:
        retriever = create(
            "retriever",
            "multi_query",
            sources,
            llm_provider=llm,
            base_retriever=base_retriever,
            num_queries=num_queries,
            base_retriever_params=base_retriever_params,
        )
        super().__init__(llm, retriever, **options)


class HierarchicalRAG(RAGPattern):
    """Find the documents first, then the passages within them, rerank, answer.

    A document counts by its best three of the passages that a deep search finds: each score, from 0 for
    the last candidate to 1 for the first, counts half of the one before. So a document that is about the
    question goes before one that touches on it once, and a long one has no advantage by its length.

    Args:
        llm: the model that answers; None leaves `retrieve` only.
        retriever: finds the documents, and the passages in them. Its knowledge bases should support the
            filter `source` (URI of a document), as Loom's do; else the passages of the first search are
            all there is.
        top_documents: how many documents are kept.
        candidates: how many passages the documents are found by.
        passages_per_document: how many passages one document gives at the most; None for any number.
        options: the other arguments of `RAGPattern`.

    Raises:
        ConfigError: a number is out of range.
    """

    def __init__(
        self,
        llm: LLMProvider | None,
        retriever: Retriever,
        *,
        top_documents: int = 3,
        candidates: int = 50,
        passages_per_document: int | None = None,
        **options: Unpack[RAGOptions],
    ) -> None:
        super().__init__(llm, retriever, **options)
        check_above_zero(
            top_documents=top_documents, candidates=candidates, passages_per_document=passages_per_document
        )
        self._top_documents = top_documents
        self._candidates = max(candidates, self._top_k)
        self._per_document = passages_per_document or self._candidates

    async def _find(self, query: str, filters: dict[str, Any] | None) -> list[RetrievedPassage]:
        pool = await self._retriever.retrieve(query, top_k=self._candidates, filters=filters)
        if not pool:
            return []
        best = _best_documents(pool)[: self._top_documents]
        passages = await self._within(best, query, filters)
        searched = {_document(passage) for passage in passages}
        # Of a document that cannot be searched within, the first search has what there is.
        passages += [passage for passage in pool if _document(passage) not in searched]
        passages.sort(key=lambda passage: -passage["score"])
        taken: Counter[_DocumentKey] = Counter()
        found: list[RetrievedPassage] = []
        for passage in passages:
            document = _document(passage)
            taken[document] += 1
            if document in best and taken[document] <= self._per_document:
                found.append(passage)
        return found[: self._top_k]

    async def _within(
        self, documents: Sequence[_DocumentKey], query: str, filters: dict[str, Any] | None
    ) -> list[RetrievedPassage]:
        """The passages of some documents; none where the knowledge base cannot be asked for these alone."""
        names = [name for _, name in documents]
        if not all(names):
            return []
        try:
            return await self._retriever.retrieve(
                query,
                top_k=self._candidates,
                kb_ids=list(dict.fromkeys(base for base, _ in documents)),
                filters={**(filters or {}), "source": names},
            )
        # The same question without this filter has just been answered.
        except InvalidInputError as error:
            _log.info("Passages are not searched for within their documents: %s", error)
            return []


def _best_documents(pool: Sequence[RetrievedPassage]) -> list[_DocumentKey]:
    """The documents of some passages, best first."""
    scores = min_max({passage_key(passage): passage["score"] for passage in pool})
    by_document: defaultdict[_DocumentKey, list[float]] = defaultdict(list)
    for passage in pool:
        by_document[_document(passage)].append(scores[passage_key(passage)])
    totals = {
        document: sum(score / 2**i for i, score in enumerate(sorted(parts, reverse=True)[:_PARTS]))
        for document, parts in by_document.items()
    }
    return sorted(totals, key=lambda document: -totals[document])


def _document(passage: RetrievedPassage) -> _DocumentKey:
    return passage["knowledge_base_id"], str(passage["metadata"].get("uri") or passage["document_id"] or "")


class _TimedReranker:
    """A reranker with a time limit, which remembers why it failed."""

    def __init__(self, reranker: Reranker, seconds: float) -> None:
        self.failure = ""
        self._reranker = reranker
        self._seconds = seconds

    async def rerank(self, query: str, items: Sequence[KnowledgeItem], *, limit: int) -> list[KnowledgeItem]:
        """See `Reranker.rerank`."""
        try:
            with anyio.fail_after(self._seconds):
                return await self._reranker.rerank(query, items, limit=limit)
        except TimeoutError:
            self.failure = f"The reranker gave no answer within {self._seconds:g} s."
            raise LoomError(self.failure) from None
        except LoomError as error:
            self.failure = error.message
            raise
