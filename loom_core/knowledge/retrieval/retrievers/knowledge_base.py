"""`knowledge_base`: the built-in search of a knowledge base as a retriever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from loom_core.errors import ConfigError
from loom_core.knowledge.interface import KnowledgeBaseProvider
from loom_core.knowledge.retrieval.retrievers.base import RetrievalRequest, SourceRetriever
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from loom_core.knowledge.interface import PassageSource
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.retrieval.config import Strategy
    from loom_core.knowledge.retrieval.searcher import SearchAnswer

    _AskSource = Callable[[RetrievalRequest], Awaitable[list[KnowledgeItem]]]

__all__ = ["KnowledgeBaseRetriever"]


@runtime_checkable
class _ByStrategy(Protocol):
    """A knowledge base whose search takes a strategy."""

    async def search(
        self, query: str, *, limit: int, filters: dict[str, Any] | None, strategy: Strategy | None
    ) -> SearchAnswer: ...


@register("retriever", "knowledge_base")
class KnowledgeBaseRetriever(SourceRetriever):
    """Searches knowledge bases as a whole: with all their channels and their own fusion.

    Args:
        sources: the sources to search; each must also be a `KnowledgeBaseProvider`.
        top_k: how many passages are returned where `retrieve` does not say.
        strategy: a strategy other than the knowledge base's own; None for its own.

    Raises:
        ConfigError: a source is no `KnowledgeBaseProvider`, or has no strategies to choose from.
    """

    name = "knowledge_base"
    by_channel = False

    def __init__(
        self, sources: Sequence[PassageSource], *, top_k: int = 5, strategy: Strategy | None = None
    ) -> None:
        super().__init__(sources, top_k=top_k)
        self._asking = {source.name: _ask_function(source, strategy) for source in sources}

    async def _search(self, source: PassageSource, request: RetrievalRequest) -> list[KnowledgeItem]:
        return await self._asking[source.name](request)


def _ask_function(source: PassageSource, strategy: Strategy | None) -> _AskSource:
    """Return the function that searches a source as a whole."""
    if not isinstance(source, KnowledgeBaseProvider):
        raise ConfigError(
            f"{source.name!r} is not a knowledge base that can be searched as a whole.",
            advice="Use a retriever of one of its channels, or hybrid or fusion.",
        )
    if strategy is None:
        return lambda request: source.query(request.text, limit=request.top_k, filters=request.filters)
    if not isinstance(source, _ByStrategy):
        raise ConfigError(
            f"{source.name!r} has no strategies to choose from.", advice="Leave `strategy` out."
        )

    async def ask(request: RetrievalRequest) -> list[KnowledgeItem]:
        answer = await source.search(
            request.text, limit=request.top_k, filters=request.filters, strategy=strategy
        )
        return answer.items

    return ask
