"""Retrieval over a graph of passages: what a program imports to have a knowledge base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.knowledge.ingest.extraction.config import ExtractionConfig
    from loom_core.knowledge.ingest.extraction.llm.extractor import LLMEntityExtractor
    from loom_core.knowledge.ingest.extraction_estimate import ExtractionEstimate
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.retrieval.config import RAGConfig, SearchOptions, Strategy
    from loom_core.knowledge.retrieval.patterns import (
        HierarchicalRAG,
        MultiQueryRAG,
        RAGAnswer,
        RAGPattern,
    )
    from loom_core.knowledge.retrieval.searcher import Answer

__all__ = [
    "Answer",
    "ExtractionConfig",
    "ExtractionEstimate",
    "GraphRAGKnowledgeBase",
    "HierarchicalRAG",
    "LLMEntityExtractor",
    "MultiQueryRAG",
    "RAGAnswer",
    "RAGConfig",
    "RAGPattern",
    "SearchOptions",
    "Strategy",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "Answer": "loom_core.knowledge.retrieval.searcher",
            "ExtractionConfig": "loom_core.knowledge.ingest.extraction.config",
            "ExtractionEstimate": "loom_core.knowledge.ingest.extraction_estimate",
            "GraphRAGKnowledgeBase": ".knowledge_base",
            "HierarchicalRAG": "loom_core.knowledge.retrieval.patterns",
            "LLMEntityExtractor": "loom_core.knowledge.ingest.extraction.llm.extractor",
            "MultiQueryRAG": "loom_core.knowledge.retrieval.patterns",
            "RAGAnswer": "loom_core.knowledge.retrieval.patterns",
            "RAGConfig": "loom_core.knowledge.retrieval.config",
            "RAGPattern": "loom_core.knowledge.retrieval.patterns",
            "SearchOptions": "loom_core.knowledge.retrieval.config",
            "Strategy": "loom_core.knowledge.retrieval.config",
        },
    )
