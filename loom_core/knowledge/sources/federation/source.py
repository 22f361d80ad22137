"""A federation as one source, for everything that queries a knowledge base."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom_core.errors import InvalidInputError
from loom_core.knowledge.interface import KnowledgeBaseProvider

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind
    from loom_core.knowledge.interface import Channel
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.sources.federation.federation import Federation, SourceReport

__all__ = ["FederatedSource"]


class FederatedSource(KnowledgeBaseProvider):
    """Some or all sources of a federation as one, for retrievers and the patterns of generation.

    It is a `PassageSource` without channels: the retriever `knowledge_base` asks it as a whole.

        source = FederatedSource(federation)
        rag = RAGPattern(llm, KnowledgeBaseRetriever([source]))
        rag = MultiQueryRAG(llm, [source], base_retriever="knowledge_base")

    Create one for each question: it collects the reports of the sources.

    Args:
        federation: the federation to query.
        sources: names of the sources to ask; None for all.
        on_report: called with the report of each source as soon as it is known.

    Attributes:
        reports: the report of each source by its name; after a failure it is kept, as passages are then
            missing.
    """

    def __init__(
        self,
        federation: Federation,
        *,
        sources: Sequence[str] | None = None,
        on_report: Callable[[SourceReport], Awaitable[None]] | None = None,
    ) -> None:
        self._federation = federation
        self._names = None if sources is None else tuple(sources)
        self._on_report = on_report
        self.reports: dict[str, SourceReport] = {}
        self._taken: dict[str, frozenset[str]] = {}  # filters of the queries that each source has answered

    @property
    def name(self) -> str:
        """Name among several knowledge bases."""
        return "federation"

    @property
    def description(self) -> str:
        """Description of its sources."""
        return "; ".join(f"{each.name}: {each.description}" for each in self._sources())

    @property
    def supported_filters(self) -> Sequence[str]:
        """Filters that any of its sources supports."""
        return sorted({name for each in self._sources() for name in each.supported_filters})

    @property
    def channels(self) -> Collection[Channel]:
        """Empty: it is queried as a whole."""
        return ()

    @property
    def embedder_id(self) -> str:
        """Empty: its sources may have different ones."""
        return ""

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        """See `Federation.query`."""
        names = frozenset(filters or ())
        answer = await self._federation.query(
            query,
            source=self._eligible_sources(names),
            filters=filters,
            limit=min(limit, 100),
            on_report=self._on_report,
        )
        for report in answer.reports:
            known = self.reports.get(report.source)
            if known is None or known.state == "answered":
                self.reports[report.source] = report
            if report.state == "answered":
                self._taken[report.source] = self._taken.get(report.source, frozenset()) | names
        return answer.items

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        """See `Federation.get_by_id`."""
        return await self._federation.get_by_id(knowledge_id)

    async def embed(
        self, texts: Sequence[str], *, kind: EmbeddingKind = "query"
    ) -> NDArray[np.float32] | None:
        """Return None, as there is no common vector space."""
        return None

    async def ask(
        self,
        channel: Channel,
        query: str,
        *,
        limit: int,
        filters: dict[str, Any] | None = None,
        vector: NDArray[np.float32] | None = None,
    ) -> list[KnowledgeItem]:
        """See `PassageSource.ask`.

        Raises:
            InvalidInputError: always, as it has no channels.
        """
        raise InvalidInputError(
            f"Several sources together have no channel {channel!r}.",
            advice="Use the retriever knowledge_base, which queries each source as a whole.",
        )

    async def passages(self, *, limit: int, filters: dict[str, Any] | None = None) -> list[KnowledgeItem]:
        """Return an empty list, as the sources cannot list their passages."""
        return []

    def _eligible_sources(self, filters: frozenset[str]) -> Sequence[str] | None:
        """Return the sources to query: all but those that answered before and do not support these filters.

        A pattern adds a filter of its own (`source`): a source that lacks it would count as failed, although
        its passages of the first query are used.

        Raises:
            InvalidInputError: no source has the filter.
        """
        asked = self._sources()
        willing = [
            each.name
            for each in asked
            if each.name not in self._taken or filters <= self._taken[each.name].union(each.supported_filters)
        ]
        if asked and not willing:
            raise InvalidInputError("No source supports these filters.", advice="Leave them out.")
        return self._names if len(willing) == len(asked) else willing

    def _sources(self) -> list[KnowledgeBaseProvider]:
        return [each for each in self._federation.sources if self._names is None or each.name in self._names]
