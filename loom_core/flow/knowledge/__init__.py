"""Knowledge for a message, prefetched while it is routed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.flow.knowledge.executor import (
        FlowKnowledge,
        KnowledgeAnswer,
        KnowledgeExecutor,
        KnowledgePrefetch,
    )
    from loom_core.flow.knowledge.sources import (
        ApiKnowledge,
        KnowledgeBaseExecutor,
        ProviderKnowledge,
        build_knowledge,
    )

__all__ = [
    "ApiKnowledge",
    "FlowKnowledge",
    "KnowledgeAnswer",
    "KnowledgeBaseExecutor",
    "KnowledgeExecutor",
    "KnowledgePrefetch",
    "ProviderKnowledge",
    "build_knowledge",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
