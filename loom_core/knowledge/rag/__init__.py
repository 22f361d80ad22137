"""GraphRAG: the public classes of a knowledge base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.knowledge.ingest.extraction.config import ExtractionConfig
    from loom_core.knowledge.ingest.extraction.llm.extractor import LLMEntityExtractor
    from loom_core.knowledge.ingest.extraction_estimate import ExtractionEstimate
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.rag.map_reduce import MapReduceRAG
    from loom_core.knowledge.retrieval.config import RAGConfig, SearchOptions, Strategy
    from loom_core.knowledge.retrieval.patterns import (
        HierarchicalRAG,
        MultiQueryRAG,
        RAGAnswer,
        RAGPattern,
    )
    from loom_core.knowledge.retrieval.searcher import SearchAnswer

__all__ = [
    "ExtractionConfig",
    "ExtractionEstimate",
    "GraphRAGKnowledgeBase",
    "HierarchicalRAG",
    "LLMEntityExtractor",
    "MapReduceRAG",
    "MultiQueryRAG",
    "RAGAnswer",
    "RAGConfig",
    "RAGPattern",
    "SearchAnswer",
    "SearchOptions",
    "Strategy",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
