"""Retrieval over a graph of passages: what a program imports to have a knowledge base."""

from __future__ import annotations

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
