"""A retriever object of LlamaIndex as a source. It is asked by its methods; LlamaIndex is not imported."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from loom_core.errors import InvalidInputError, LoomError, SourceError
from loom_core.knowledge.sources.named_source import NamedSource
from loom_core.knowledge.sources.remote.recent_items import RecentItems
from loom_core.knowledge.sources.remote.result_mapping import ResultMapping, read_row
from loom_core.knowledge.validation import check_limit, check_question

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["LlamaIndexSource"]

_MAX_LIMIT = 1000


class _Node(Protocol):
    """A passage of LlamaIndex: `BaseNode`."""

    @property
    def node_id(self) -> str: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    def get_content(self) -> str: ...


class _Hit(Protocol):
    """`NodeWithScore` of LlamaIndex."""

    @property
    def node(self) -> Any: ...  # noqa: ANN401 - a `BaseNode`
    @property
    def score(self) -> float | None: ...


class _Retriever(Protocol):
    """`BaseRetriever` of LlamaIndex, or what has the same method."""

    async def aretrieve(self, str_or_query_bundle: str) -> Sequence[_Hit]: ...


class LlamaIndexSource(NamedSource):
    """A retriever of LlamaIndex as a source; how many passages it finds is its own setting.

    Passages that it has found lately can be read again by their id.

    Args:
        retriever: the object, such as `index.as_retriever(similarity_top_k=10)`.
        name: its name among other sources.
        description: of its content, in one sentence.
        search_hints: what to search in it for.
    """

    def __init__(
        self,
        retriever: _Retriever,
        *,
        name: str,
        description: str = "",
        search_hints: Sequence[str] = (),
    ) -> None:
        super().__init__(name, description=description, search_hints=search_hints)
        self._retriever = retriever
        self._recent = RecentItems()

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        """See `KnowledgeBaseProvider.query`.

        Raises:
            InvalidInputError: as there; it has no filters.
            SourceError: the retriever raised an error.
        """
        check_question(query)
        check_limit(limit, most=_MAX_LIMIT)
        if filters:
            raise InvalidInputError(
                f"There is no filter {next(iter(filters))!r}.",
                advice="Leave filters out here: the retriever of LlamaIndex has its own.",
            )
        try:
            hits = await self._retriever.aretrieve(query)
        except LoomError:
            raise
        except Exception as error:  # other people's code
            raise SourceError(
                f"The retriever of {self._name!r} failed: {type(error).__name__}: {error}.",
                advice="Try it by itself: its method aretrieve.",
            ) from error
        items = [item for hit in hits if (item := self._item(hit)) is not None][:limit]
        self._recent.add(items)
        return items

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        """See `KnowledgeBaseProvider.get_by_id`."""
        return self._recent.get(knowledge_id)

    def _item(self, hit: _Hit) -> KnowledgeItem | None:
        node: _Node = hit.node
        row = {"id": node.node_id, "text": node.get_content(), "metadata": dict(node.metadata)}
        read = read_row(row, ResultMapping(), source=self._name)
        return None if read is None else replace(read[0], relevance=float(hit.score or 0.0))
