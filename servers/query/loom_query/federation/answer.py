"""Answers of a language model from the passages of several sources. Imported at the first question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.retrieval.patterns import HierarchicalRAG, MultiQueryRAG, RAGPattern
from loom_core.knowledge.retrieval.retrievers.knowledge_base import KnowledgeBaseRetriever
from loom_core.knowledge.sources.federation.source import FederatedSource
from loom_query.federation.passages import passage_of
from loom_query.models import AskResult, SentenceInfo

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from loom_core.knowledge.model import RetrievedPassage
    from loom_core.knowledge.retrieval.patterns import RAGOptions
    from loom_core.knowledge.sources.federation.federation import Federation, SourceReport
    from loom_core.llm.interface import LLMProvider
    from loom_query.models import Pattern

__all__ = ["generate_answer"]

_MODEL_SECONDS = 30.0  # with what the sources may take, below what hosts wait for a call


async def generate_answer(
    llm: LLMProvider,
    federation: Federation,
    question: str,
    *,
    filters: Mapping[str, Any] | None,
    pattern: Pattern,
    limit: int,
    told: Callable[[SourceReport], Awaitable[None]] | None,
) -> tuple[AskResult, list[SourceReport]]:
    """Generate an answer with citations, and report the outcome of each source; see `QueryService.ask`.

    Raises:
        LLMError: the model fails, or does not answer in time.
        LoomError: no source can be asked.
    """
    source = FederatedSource(federation, on_report=told)
    rag = _pattern(pattern, llm, source, limit)
    answer = await rag.run(question, filters=dict(filters or {}) or None)
    sentences = [
        SentenceInfo(
            text=sentence.text,
            citations=list(sentence.citations),
            supported=sentence.supported,
            weak=list(sentence.weak),
        )
        for sentence in answer.sentences
    ]
    result = AskResult(
        answered=True,
        answer=answer.answer,
        sentences=sentences,
        passages=[passage_of(number, _item(each)) for number, each in enumerate(answer.passages, start=1)],
        sources=[],
        notes=list(answer.notes),
    )
    return result, list(source.reports.values())


def _pattern(pattern: Pattern, llm: LLMProvider, source: FederatedSource, limit: int) -> RAGPattern:
    options: RAGOptions = {"top_k": limit, "timeout": _MODEL_SECONDS}
    if pattern == "multi_query":
        return MultiQueryRAG(llm, [source], base_retriever="knowledge_base", **options)
    retriever = KnowledgeBaseRetriever([source])
    if pattern == "hierarchical":
        return HierarchicalRAG(llm, retriever, **options)
    return RAGPattern(llm, retriever, **options)


def _item(passage: RetrievedPassage) -> KnowledgeItem:
    return KnowledgeItem(
        id=passage["chunk_id"],
        content=passage["text"],
        source=str(passage["metadata"].get("uri", "")),
        relevance=passage["score"],
        metadata=passage["metadata"],
    )
