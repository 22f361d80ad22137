"""Retrieval over a graph of passages: what a program imports to have a knowledge base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.knowledge.extraction.config import ExtractionConfig
    from loom_core.knowledge.extraction.llm import LLMEntityExtractor
    from loom_core.knowledge.extraction_estimate import ExtractionEstimate
    from loom_core.knowledge.rag.answer import Answer
    from loom_core.knowledge.rag.config import RAGConfig, Strategy
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.rag.options import SearchOptions
    from loom_core.knowledge.rag.patterns import HierarchicalRAG, MultiQueryRAG, RAGAnswer, RAGPattern

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
            "Answer": ".answer",
            "ExtractionConfig": "loom_core.knowledge.extraction.config",
            "ExtractionEstimate": "loom_core.knowledge.extraction_estimate",
            "GraphRAGKnowledgeBase": ".knowledge_base",
            "HierarchicalRAG": ".patterns",
            "LLMEntityExtractor": "loom_core.knowledge.extraction.llm",
            "MultiQueryRAG": ".patterns",
            "RAGAnswer": ".patterns",
            "RAGConfig": ".config",
            "RAGPattern": ".patterns",
            "SearchOptions": ".options",
            "Strategy": ".config",
        },
    )
