"""Knowledge: documents as passages, entities and vectors, and questions answered with cited passages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.knowledge.interface import (
        Chunker,
        Extractor,
        GraphStore,
        KnowledgeBaseProvider,
        LexicalIndex,
        LexicalQuery,
        LexicalSearch,
        LexicalServerIndex,
        PassageSource,
        PassageVectors,
        RemoteGraphStore,
        Reranker,
        Retriever,
        VectorIndex,
        VectorQuery,
    )
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
        MapReduceRAG,
        MultiQueryRAG,
        RAGConfig,
        RAGPattern,
    )
    from loom_core.knowledge.rag.knowledge_base import KnowledgeBase
    from loom_core.knowledge.retrieval.retrievers import SourceRetriever
    from loom_core.knowledge.sources.collections.config import CollectionConfig
    from loom_core.knowledge.sources.collections.source import CollectionSource
    from loom_core.knowledge.sources.context_retriever import ContextRetriever, RetrievedContext
    from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase, TextDocument
    from loom_core.knowledge.sources.federation.federation import FederatedAnswer, Federation, SourceReport
    from loom_core.knowledge.sources.library import Library
    from loom_core.knowledge.sources.llama_index import LlamaIndexSource
    from loom_core.knowledge.sources.local import LocalKnowledgeBase
    from loom_core.knowledge.sources.remote.http import HTTPKnowledgeBase, HTTPKnowledgeConfig
    from loom_core.knowledge.sources.remote.mcp import MCPKnowledgeBase
    from loom_core.knowledge.sources.search_tool import DocumentSearchTool
    from loom_core.knowledge.sources.sharded import ShardedKnowledgeBase
    from loom_core.knowledge.sources.splitting import split_into_shards
    from loom_core.knowledge.sources.unified_tool import SourceInfo, UnifiedSearchToolBuilder

__all__ = [
    "Block",
    "Chunk",
    "Chunker",
    "CollectionConfig",
    "CollectionSource",
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
    "KnowledgeBase",
    "KnowledgeBaseProvider",
    "KnowledgeItem",
    "LexicalIndex",
    "LexicalQuery",
    "LexicalSearch",
    "LexicalServerIndex",
    "Library",
    "LlamaIndexSource",
    "LocalKnowledgeBase",
    "MCPKnowledgeBase",
    "MapReduceRAG",
    "Mention",
    "MultiQueryRAG",
    "PassageSource",
    "PassageVectors",
    "RAGConfig",
    "RAGPattern",
    "Relation",
    "RemoteGraphStore",
    "Reranker",
    "RetrievedContext",
    "RetrievedPassage",
    "Retriever",
    "ShardedKnowledgeBase",
    "SourceInfo",
    "SourceReport",
    "SourceRetriever",
    "TextDocument",
    "UnifiedSearchToolBuilder",
    "VectorIndex",
    "VectorQuery",
    "split_into_shards",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
