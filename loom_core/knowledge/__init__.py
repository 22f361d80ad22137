"""Knowledge: documents as passages, entities and vectors, and questions answered with cited passages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.knowledge.context import ContextRetriever, RetrievedContext
    from loom_core.knowledge.documents import DocumentsKnowledgeBase, TextDocument
    from loom_core.knowledge.federated import FederatedAnswer, SourceReport
    from loom_core.knowledge.federation import Federation
    from loom_core.knowledge.http import HTTPKnowledgeBase, HTTPKnowledgeConfig
    from loom_core.knowledge.interface import (
        Chunker,
        Extractor,
        GraphStore,
        KnowledgeBaseProvider,
        LexicalIndex,
        PassageSource,
        Reranker,
        Retriever,
        VectorIndex,
    )
    from loom_core.knowledge.library import Library
    from loom_core.knowledge.local import LocalKnowledgeBase
    from loom_core.knowledge.mcp import MCPKnowledgeBase
    from loom_core.knowledge.model import (
        Block,
        Chunk,
        DocumentDraft,
        Extraction,
        KnowledgeItem,
        Mention,
        Relation,
        RetrievedPassage,
    )
    from loom_core.knowledge.rag import (
        ExtractionConfig,
        GraphRAGKnowledgeBase,
        HierarchicalRAG,
        MultiQueryRAG,
        RAGConfig,
        RAGPattern,
    )
    from loom_core.knowledge.search_tool import DocumentSearchTool
    from loom_core.knowledge.unified import SourceInfo, UnifiedSearchToolBuilder

__all__ = [
    "Block",
    "Chunk",
    "Chunker",
    "ContextRetriever",
    "DocumentDraft",
    "DocumentSearchTool",
    "DocumentsKnowledgeBase",
    "Extraction",
    "ExtractionConfig",
    "Extractor",
    "FederatedAnswer",
    "Federation",
    "GraphRAGKnowledgeBase",
    "GraphStore",
    "HTTPKnowledgeBase",
    "HTTPKnowledgeConfig",
    "HierarchicalRAG",
    "KnowledgeBaseProvider",
    "KnowledgeItem",
    "LexicalIndex",
    "Library",
    "LocalKnowledgeBase",
    "MCPKnowledgeBase",
    "Mention",
    "MultiQueryRAG",
    "PassageSource",
    "RAGConfig",
    "RAGPattern",
    "Relation",
    "Reranker",
    "RetrievedContext",
    "RetrievedPassage",
    "Retriever",
    "SourceInfo",
    "SourceReport",
    "TextDocument",
    "UnifiedSearchToolBuilder",
    "VectorIndex",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "Block": ".model",
            "Chunk": ".model",
            "Chunker": ".interface",
            "ContextRetriever": ".context",
            "DocumentDraft": ".model",
            "DocumentSearchTool": ".search_tool",
            "DocumentsKnowledgeBase": ".documents",
            "Extraction": ".model",
            "ExtractionConfig": "loom_core.knowledge.rag",
            "Extractor": ".interface",
            "FederatedAnswer": ".federated",
            "Federation": ".federation",
            "GraphRAGKnowledgeBase": "loom_core.knowledge.rag",
            "GraphStore": ".interface",
            "HTTPKnowledgeBase": ".http",
            "HTTPKnowledgeConfig": ".http",
            "HierarchicalRAG": "loom_core.knowledge.rag",
            "KnowledgeBaseProvider": ".interface",
            "KnowledgeItem": ".model",
            "LexicalIndex": ".interface",
            "Library": ".library",
            "LocalKnowledgeBase": ".local",
            "MCPKnowledgeBase": ".mcp",
            "Mention": ".model",
            "MultiQueryRAG": "loom_core.knowledge.rag",
            "PassageSource": ".interface",
            "RAGConfig": "loom_core.knowledge.rag",
            "RAGPattern": "loom_core.knowledge.rag",
            "Relation": ".model",
            "Reranker": ".interface",
            "RetrievedContext": ".context",
            "RetrievedPassage": ".model",
            "Retriever": ".interface",
            "SourceInfo": ".unified",
            "SourceReport": ".federated",
            "TextDocument": ".documents",
            "UnifiedSearchToolBuilder": ".unified",
            "VectorIndex": ".interface",
        },
    )
