"""Retrievers: search strategies over one or several knowledge bases, by registered name.

Make one with `loom_core.plugins.create("retriever", name, sources, ...)`: `dense`, `bm25`, `keyword` and
`graph` ask one channel, `hybrid` and `fusion` combine two, `knowledge_base` asks the knowledge base's own
retrieval, `hyde`, `multi_query` and `decomposition` expand the question with a language model.

A custom retriever subclasses `SourceRetriever` or `BaseRetriever`, or is any class with the method of
`Retriever`, and is decorated with `register("retriever", name)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.knowledge.retrieval.retrievers.base import BaseRetriever, RetrievalRequest, SourceRetriever

__all__ = ["BaseRetriever", "RetrievalRequest", "SourceRetriever"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
